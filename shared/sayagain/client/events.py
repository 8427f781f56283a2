"""What a session's stream yields, in the order of the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

__all__ = ["Disconnected", "Event", "Moved", "Reconnected", "Update", "weigh"]


@dataclass(frozen=True, slots=True)
class Update:
    """A ``session/update`` in wire form; ``session_id`` is the session's or that of a child of it."""

    session_id: str
    update: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The agent was lost while the session was active there. With retries it is reached again, if that is possible.

    Work that was under way has mostly ended with it: then the next ``state_update`` of the session is idle, and has no
    ``stopReason``.
    """

    session_id: str


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The agent was lost and reached again, and the session resumed there without replay.

    What happened meanwhile was not seen: an application that shows a transcript resumes with replay.
    """

    session_id: str


@dataclass(frozen=True, slots=True)
class Moved:
    """The agent does not know the session, of which nothing was ever stored: a new one has its prompts now."""

    old_id: str
    session_id: str
    keys: Sequence[str]
    """Of the prompts that moved, in order."""


Event: TypeAlias = Update | Disconnected | Reconnected | Moved

_NODE: Final = 64
"""Bytes that a value costs beside its text; a rough guess is enough for a limit."""


def weigh(value: object) -> int:
    """About how many bytes a wire value holds."""
    total, rest = 0, [value]
    while rest:
        item: Any = rest.pop()
        total += _NODE
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            rest += item
            rest += item.values()
        elif isinstance(item, list):
            rest += item
    return total
