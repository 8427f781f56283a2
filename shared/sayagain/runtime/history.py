"""What a stored session yields: one pass over everything retained, compacted parts and subagents included."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from sayagain.runtime.events import WireMapping

__all__ = ["ChildStarts", "HistoryEnds", "HistoryEntry", "HistoryUpdate", "Unreadable", "UserTurn", "closing"]


@dataclass(frozen=True, slots=True)
class UserTurn:
    """A stored user message.

    ``message_ids`` are all the ids under which a retry of it must be recognised: the first is the one it is replayed
    with, others come from messages that the runtime merged into it. ``update`` is its ``user_message`` upsert, or
    ``None`` for a message that is stored but not shown (a local command).
    """

    session_id: str
    message_ids: tuple[str, ...]
    update: WireMapping | None


@dataclass(frozen=True, slots=True)
class HistoryUpdate:
    """Anything else that is replayed: a full upsert of a message, tool call, terminal, plan or compaction."""

    session_id: str
    update: WireMapping


@dataclass(frozen=True, slots=True)
class ChildStarts:
    """A child session is announced on its parent's stream; its own entries follow, then :class:`HistoryEnds`."""

    parent_id: str
    child_id: str
    update: WireMapping


@dataclass(frozen=True, slots=True)
class HistoryEnds:
    """Nothing more is replayed for this child. (The session itself ends with the stream.)"""

    session_id: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A known gap: entries of a session could not be read, or all of a child's (RPL-7).

    ``what`` is a short phrase for the user, such as ``"3 damaged entries"``.
    """

    what: str

    @classmethod
    def entries(cls, count: int) -> Unreadable:
        """So many entries."""
        return cls("1 damaged entry" if count == 1 else f"{count} damaged entries")


HistoryEntry: TypeAlias = UserTurn | HistoryUpdate | ChildStarts | HistoryEnds | Unreadable


@asynccontextmanager
async def closing(entries: AsyncIterator[HistoryEntry]) -> AsyncGenerator[AsyncIterator[HistoryEntry]]:
    """A pass that ends early closes what it reads from; otherwise files stay open until the next collection."""
    try:
        yield entries
    finally:
        if isinstance(entries, AsyncGenerator):
            with anyio.CancelScope(shield=True):
                await entries.aclose()
