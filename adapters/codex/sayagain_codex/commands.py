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

__all__ = ["Command", "Skills", "parse"]

Params = Mapping[str, Any]

_LOCAL: Final[Mapping[str, tuple[str, str | None]]] = {
    "compact": ("Summarise the conversation to free up context", None),
    "review": ("Review the uncommitted changes, or what the instructions say", "optional instructions"),
    "review-branch": ("Review the changes against a base branch", "branch"),
    "review-commit": ("Review a commit", "commit"),
    "rename": ("Give this session a title", "title"),
}

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
