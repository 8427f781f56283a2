"""Everything that passed between the check and the agent, in order, as it was on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from sayagain.check.form import is_id

__all__ = ["HISTORY", "MARKER", "Event", "Message", "Side", "Trace", "as_mapping", "blocks_text", "told"]

Side: TypeAlias = Literal["client", "agent", "note"]

MARKER: Final = "replay_complete"

HISTORY: Final = frozenset({"user_message", "user_message_chunk", "agent_message", "agent_message_chunk"})
"""Updates that tell of messages."""


def as_mapping(value: object) -> dict[str, Any]:
    """The value, if it is a JSON object; else an empty one. Nothing that an agent writes is trusted to be one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, eq=False)
class Event:
    """One line on the wire, or a note of what happened beside it (``side`` is ``note``).

    ``index`` counts over the whole run, ``connection`` the agent's processes from 1. ``message`` is ``None`` for a line
    that is no JSON. Each entry of a batch is an event of its own.
    """

    index: int
    connection: int
    side: Side
    text: str
    message: Any = None

    @property
    def is_object(self) -> bool:
        """Whether the line is a JSON object, as a message has to be."""
        return isinstance(self.message, dict)

    @property
    def call(self) -> tuple[int, str | int | None]:
        """The connection, and the id of the request or answer; ``None`` where there is none, or one that is no id."""
        request_id = as_mapping(self.message).get("id")
        return self.connection, request_id if is_id(request_id) else None

    @property
    def method(self) -> str | None:
        """The method of a request or notification."""
        method = as_mapping(self.message).get("method")
        return method if isinstance(method, str) else None

    @property
    def params(self) -> dict[str, Any]:
        """The params; empty when there are none."""
        return as_mapping(as_mapping(self.message).get("params"))

    @property
    def session_id(self) -> str | None:
        """The session that a request or notification is about."""
        session_id = self.params.get("sessionId")
        return session_id if isinstance(session_id, str) else None

    @property
    def update(self) -> dict[str, Any]:
        """The update of a ``session/update`` of the agent; else empty."""
        if self.side != "agent" or self.method != "session/update":
            return {}
        return as_mapping(self.params.get("update"))

    @property
    def kind(self) -> str:
        """The kind of the update, or the empty string."""
        kind = self.update.get("sessionUpdate")
        return kind if isinstance(kind, str) else ""

    @property
    def is_request(self) -> bool:
        """Whether it is a request, of either side."""
        return self.method is not None and "id" in self.message


@dataclass
class Trace:
    """The events of one run, over all processes of the agent."""

    events: list[Event] = field(default_factory=list[Event])

    def add(self, connection: int, side: Side, text: str, message: Any = None) -> Event:
        """Record an event."""
        event = Event(len(self.events), connection, side, text, message)
        self.events.append(event)
        return event

    def between(self, start: Event | None, end: Event | None = None) -> Sequence[Event]:
        """The events after ``start`` and before ``end``."""
        first = start.index + 1 if start is not None else 0
        return self.events[first : end.index if end is not None else None]

    def updates(
        self, session_id: str | None = None, *, after: Event | None = None, before: Event | None = None, kind: str = ""
    ) -> list[Event]:
        """The agent's updates, of one session and kind if these are given."""
        return list(self._updates(session_id, after, before, kind))

    def _updates(self, session_id: str | None, after: Event | None, before: Event | None, kind: str) -> Iterator[Event]:
        for event in self.between(after, before):
            if event.kind and session_id in (None, event.session_id) and kind in ("", event.kind):
                yield event


@dataclass
class Message:
    """A message as a client that folds updates would show it, and the events that made it."""

    message_id: str
    role: str
    text: str
    events: list[Event]


def told(updates: Sequence[Event]) -> list[Message]:
    """The messages that these updates tell, in the order of their first appearance."""
    messages: dict[tuple[str, str], Message] = {}
    for event in updates:
        if event.kind not in HISTORY:
            continue
        role = event.kind.removesuffix("_chunk")
        message_id = event.update.get("messageId")
        if not isinstance(message_id, str):
            message_id = f"(no id, line {event.index})"
        message = messages.setdefault((role, message_id), Message(message_id, role, "", []))
        message.events.append(event)
        if event.kind.endswith("_chunk"):
            message.text += blocks_text([event.update.get("content")])
        elif "content" in event.update:
            message.text = blocks_text(event.update["content"])
    return list(messages.values())


def blocks_text(content: object) -> str:
    """The text of content blocks; anything else in there counts as its JSON."""
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content)
    texts: list[str] = []
    for block in cast("list[Any]", content):
        text = as_mapping(block).get("text")
        texts.append(text if isinstance(text, str) else json.dumps(block))
    return "".join(texts)
