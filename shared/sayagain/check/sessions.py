"""A session of the agent under check, and a replay of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sayagain.check.trace import MARKER, Event, Message, told
from sayagain.check.wire import Call

__all__ = ["Replay", "Session"]


@dataclass
class Session:
    """A session of the agent, and what was prompted in it."""

    session_id: str
    tokens: list[str] = field(default_factory=list[str])


@dataclass
class Replay:
    """A replaying resume: its request, its answer, and the session's updates between them."""

    session: Session
    call: Call
    answer: Event
    updates: Sequence[Event]
    """Of the session itself, between the request and its answer."""
    all: Sequence[Event]
    """All that the agent wrote between the request and its answer."""

    @property
    def marker(self) -> Event | None:
        """The session's first marker."""
        return next((event for event in self.updates if event.kind == MARKER), None)

    @property
    def history(self) -> list[Event]:
        """What is taken for history: all before the marker; without one, whatever tells of messages."""
        if (marker := self.marker) is not None:
            return [event for event in self.updates if event.index < marker.index]
        return list(self.updates)

    def messages(self) -> list[Message]:
        """The messages that the whole replay tells, with or without a marker."""
        return told(self.updates)
