"""Slash commands: what the session offers, how they are sent, and what must not reach the CLI."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from sayagain_claude.translate.blocks import as_list
from sayagain_claude.translate.prompts import prompt_content

__all__ = ["available_commands", "refusal", "with_command_last"]

_NEW_SESSION: Final = "would go on under another session id; start a new session instead"
_SIGN_IN: Final = "cannot work here; sign in and out by your client's agent settings, or by `claude` in a terminal"
_SESSIONS: Final = "cannot work here; open sessions by your client's session list"
_END: Final = "cannot work here; close the session in your client instead"

REFUSED: Final[Mapping[str, str]] = {
    "clear": _NEW_SESSION,
    "reset": _NEW_SESSION,
    "new": _NEW_SESSION,
    "login": _SIGN_IN,
    "logout": _SIGN_IN,
    "resume": _SESSIONS,
    "continue": _SESSIONS,
    "fork": "cannot work here; fork the session in your client instead",
    "branch": "cannot work here; fork the session in your client instead",
    "exit": _END,
    "quit": _END,
    "plan": "cannot work here; choose the plan mode in the session's options instead",
    "add-dir": "cannot work here; add the directory to the session's setup in your client",
}
"""``/clear`` and its aliases change the CLI's session id and file (measured): later prompts would land elsewhere. The
others need the CLI's own screen, which only says that they are not available."""

_SERVERS_PROMPT: Final = re.compile(r"([^:]+):(\S+) \(MCP\)")
_UNPLAIN: Final = re.compile(r"[^a-zA-Z0-9_-]")

HIDDEN: Final = frozenset({"color", "focus", "heapdump", "workflow-launch-exec"})
"""Commands about the CLI's own screen and insides: not offered, and passed on when somebody types them."""


def refusal(content: Sequence[Mapping[str, Any]], offered: Container[str] = ()) -> str | None:
    """Why this prompt cannot work here, or ``None``. ``offered`` are the session's commands: those of the user's own
    may have such a name.

    The CLI takes a command from the last text of a prompt, whatever comes before it (measured).
    """
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    name = _name(texts[-1]) if texts else ""
    reason = REFUSED.get(name) if name not in offered else None
    return f"/{name} {reason}" if reason else None


def with_command_last(content: Sequence[Mapping[str, Any]], offered: Container[str]) -> Sequence[Mapping[str, Any]]:
    """A prompt that begins with one of the ``offered`` commands, in the order in which the CLI sees the command.

    Clients send what a user mentions as blocks of its own behind the command, which would then be plain words: links
    become part of the command's arguments, all else goes before it.
    """
    if len(content) < 2 or content[0].get("type") != "text" or _name(str(content[0].get("text", ""))) not in offered:
        return content
    parts: list[str] = []
    attached: list[Mapping[str, Any]] = []
    for block in content:
        if block.get("type") == "text":
            parts.append(str(block.get("text", "")))
        elif block.get("type") == "resource_link":
            parts.append(str(prompt_content([block])))
        else:
            attached.append(block)
    return [*attached, {"type": "text", "text": "".join(parts)}]


def _name(text: str) -> str:
    words = text.split(maxsplit=1)
    return words[0][1:] if words and words[0].startswith("/") else ""


def _typed(name: str) -> str:
    """The name to type: the CLI lists a server's prompt as ``server:prompt (MCP)``, and takes it as
    ``mcp__server__prompt`` alone (measured)."""
    prompt = _SERVERS_PROMPT.fullmatch(name)
    return f"mcp__{_UNPLAIN.sub('_', prompt[1])}__{prompt[2]}" if prompt else name


def available_commands(commands: object) -> list[dict[str, Any]]:
    """The CLI's list in wire form: unique names without slash or white space (UPD-11), nothing that is refused."""
    result: dict[str, dict[str, Any]] = {}
    for command in as_list(commands):
        if not isinstance(command, Mapping):
            continue
        listed: object = command.get("name")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        name = _typed(listed) if isinstance(listed, str) else ""
        if not name or name.startswith("/") or name != "".join(name.split()):
            continue
        builtin = command.get("builtin") is True or REFUSED.get(name) == _NEW_SESSION  # pyright: ignore
        if name in result or (builtin and (name in REFUSED or name in HIDDEN or name.startswith("__"))):
            continue
        description: object = command.get("description")  # pyright: ignore
        hint: object = command.get("argumentHint")  # pyright: ignore
        entry: dict[str, Any] = {
            "type": "command",
            "name": name,
            "description": description if isinstance(description, str) else "",
        }
        if isinstance(hint, str) and hint:
            entry["input"] = {"type": "text", "hint": hint}
        result[name] = entry
    return list(result.values())
