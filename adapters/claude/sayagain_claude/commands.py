"""Slash commands: what the session offers, and what must not reach the CLI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

__all__ = ["available_commands", "refusal"]

REFUSED: Final[Mapping[str, str]] = {
    "clear": "/clear would go on under another session id; start a new session instead",
    "reset": "/reset would go on under another session id; start a new session instead",
    "new": "/new would go on under another session id; start a new session instead",
}
"""``/clear`` and its aliases change the CLI's session id and file (measured): later prompts would land elsewhere."""


def refusal(content: Sequence[Mapping[str, Any]]) -> str | None:
    """Why this prompt cannot work here, or ``None``."""
    if len(content) != 1 or content[0].get("type") != "text":
        return None
    words = str(content[0].get("text", "")).split(maxsplit=1)
    return REFUSED.get(words[0][1:]) if words and words[0].startswith("/") else None


def available_commands(commands: Iterable[object]) -> list[dict[str, Any]]:
    """The CLI's list in wire form: unique names without slash or white space (UPD-11), nothing that is refused."""
    result: dict[str, dict[str, Any]] = {}
    for command in commands:
        if not isinstance(command, Mapping):
            continue
        name: object = command.get("name")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        if not isinstance(name, str) or not name or name.startswith("/") or name != "".join(name.split()):
            continue
        if name in REFUSED or name in result:
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
