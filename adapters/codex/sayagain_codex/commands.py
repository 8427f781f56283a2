"""Slash commands: what a session offers, and how a prompt that is one is given to Codex. Pure.

The app-server itself knows no slash commands: those of Codex's own terminal are requests of their own here, and skills
are a kind of input. What Codex stores nothing of is live-only (PRM-7): its key lasts as long as the session is active.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sayagain.errors import PromptRefused
from sayagain.protocol.loose import as_list, as_mapping, as_text

__all__ = ["Command", "Skills", "parse", "refusal"]

Params = Mapping[str, Any]

_LOCAL: Final[Mapping[str, tuple[str, str | None]]] = {
    "compact": ("Summarise the conversation to free up context", None),
    "review": ("Review the uncommitted changes, or what the instructions say", "optional instructions"),
    "review-branch": ("Review the changes against a base branch", "branch"),
    "review-commit": ("Review a commit", "commit"),
    "rename": ("Give this session a title", "title"),
}

_NEW_SESSION: Final = "start a new session in your client instead"
_FORK: Final = "fork the session in your client instead"
_END: Final = "close the session in your client instead"
_SIGN_IN: Final = "sign in and out by your client's agent settings, or by `codex` in a terminal"
_OPTIONS: Final = "choose it in the session's options instead"
_BACKGROUND: Final = "your client shows what runs in the background, and can stop it"
_SUBAGENTS: Final = "your client shows subagents as sessions of their own"
_WORDS: Final = "ask for it in your own words"
_TERMINAL: Final = "run `codex` in a terminal for it"

REFUSED: Final[Mapping[str, str]] = {
    "clear": _NEW_SESSION,
    "new": _NEW_SESSION,
    "cd": "start a session in that directory instead",
    "worktree": "start a session in the worktree's directory instead",
    "resume": "open sessions by your client's session list",
    "archive": "archive the session in your client instead",
    "delete": "delete the session in your client instead",
    "fork": _FORK,
    "side": _FORK,
    "btw": _FORK,
    "exit": _END,
    "quit": _END,
    "login": _SIGN_IN,
    "logout": _SIGN_IN,
    "model": _OPTIONS,
    "permissions": _OPTIONS,
    "plan": "choose the plan mode in the session's options instead",
    "ps": _BACKGROUND,
    "stop": _BACKGROUND,
    "agents": _SUBAGENTS,
    "subagents": _SUBAGENTS,
    "skills": "your client lists them among the commands",
    "mention": "attach the file in your client instead",
    **dict.fromkeys(("copy", "diff", "export", "init", "pwd", "recap"), _WORDS),
    **dict.fromkeys(
        (
            *("approve", "config", "daemon", "debug-config", "experimental", "feedback", "goal", "hooks", "ide"),
            *("import", "keymap", "mcp", "memories", "pets", "plugins", "raw", "setup-default-sandbox", "status"),
            *("statusline", "theme", "title", "tui", "usage", "vim", "voice", "warnings"),
        ),
        _TERMINAL,
    ),
}
"""What Codex's own terminal does itself (codex 0.163), and what to do instead. To the app-server they are words."""

_TAKE_WORDS: Final = frozenset({"btw", "cd", "clear", "export", "fork", "goal", "mcp", "new", "plan", "resume", "side"})
"""Commands of the terminal with words behind them, too; the others are words then, there as well (measured)."""

_COMMAND: Final = re.compile(r"/(\S*)\s*(.*)", re.DOTALL)
"""A name, and its argument behind any white space: what is pasted mostly begins on a line of its own."""


@dataclass(frozen=True, slots=True)
class Command:
    """A request to the app-server instead of ``turn/start``, its ``threadId`` left out.

    ``works`` says that a turn follows; else it is over with the answer.
    """

    method: str
    params: Params
    works: bool = True


def parse(content: Sequence[Params]) -> Command | None:
    """The command that this prompt is; ``None`` for a prompt to the model.

    Raises :class:`~sayagain.errors.PromptRefused` for one that lacks its argument, or would lose one.
    """
    name, argument = _split(content)
    match name:
        case "compact":
            if argument:
                raise PromptRefused("/compact takes no argument; send what follows as a prompt of its own")
            return Command("thread/compact/start", {})
        case "review":
            target = {"type": "custom", "instructions": argument} if argument else {"type": "uncommittedChanges"}
            return Command("review/start", {"target": target})
        case "review-branch":
            return Command("review/start", {"target": {"type": "baseBranch", "branch": _needed(name, argument)}})
        case "review-commit":
            return Command("review/start", {"target": {"type": "commit", "sha": _needed(name, argument)}})
        case "rename":
            return Command("thread/name/set", {"name": " ".join(_needed(name, argument).split())}, works=False)
        case _:
            return None


def refusal(content: Sequence[Params]) -> str | None:
    """Why this prompt cannot work here, or ``None``. A skill may have such a name: it goes first."""
    name, argument = _split(content)
    hint = REFUSED.get(name) if name and (not argument or name in _TAKE_WORDS) else None
    return f"/{name} cannot work here; {hint}" if hint else None


def _split(content: Sequence[Params]) -> tuple[str | None, str]:
    if len(content) != 1 or content[0].get("type") != "text":
        return None, ""
    text = str(content[0].get("text", "")).strip()
    match = _COMMAND.fullmatch(text)
    return (match[1], match[2]) if match else (None, "")


def _needed(name: str, argument: str) -> str:
    if not argument:
        raise PromptRefused(f"/{name} needs an argument")
    return argument


class Skills:
    """The skills of ``skills/list`` for one directory."""

    def __init__(self) -> None:
        self._skills: dict[str, Params] = {}

    def listed(self, result: Params, cwd: str) -> None:
        """The answer to ``skills/list``."""
        entries = [entry for entry in map(as_mapping, as_list(result.get("data"))) if entry.get("cwd") == cwd]
        skills = [skill for entry in entries for skill in map(as_mapping, as_list(entry.get("skills")))]
        named = {as_text(skill.get("name")): skill for skill in skills if skill.get("enabled") is not False}
        self._skills = {
            name: skill
            for name, skill in named.items()
            if name and name not in _LOCAL and name == "".join(name.split()) and as_text(skill.get("path"))
        }

    def available_commands(self) -> list[dict[str, Any]]:
        """Everything that a prompt may begin with, in wire form: unique names without slash or space (UPD-11)."""
        commands = [_command(name, text, hint) for name, (text, hint) in _LOCAL.items()]
        for name, skill in self._skills.items():
            interface = as_mapping(skill.get("interface"))
            text = interface.get("shortDescription") or skill.get("shortDescription") or skill.get("description")
            commands.append(_command(name, as_text(text), "optional instructions"))
        return commands

    def mention(self, content: Sequence[Params]) -> list[dict[str, Any]]:
        """The input that makes Codex load the skill that the prompt begins with; empty when it is none."""
        name, _ = _split(content)
        skill = self._skills.get(name) if name else None
        return [] if skill is None else [{"type": "skill", "name": skill["name"], "path": skill["path"]}]


def _command(name: str, description: str, hint: str | None) -> dict[str, Any]:
    command: dict[str, Any] = {"type": "command", "name": name, "description": description}
    return command if hint is None else {**command, "input": {"type": "text", "hint": hint}}
