"""What a live session said lately, folded into entities: the cut point of a replay (RPL-5, design section 4).

A runtime stores a message some time after it was streamed, so at any instant part of what clients saw is not in the
history yet. A replay of a live session therefore sends the history first and then, still before the marker, every
entity of this journal in its present state. Full upserts replace what the history said of the same entity, and
everything that follows the marker applies to exactly this state.

Only what is history by nature is kept: messages, thoughts, tool calls, terminals, plans, compactions, children.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, cast

__all__ = ["APPENDING", "ENTITIES", "Entity", "Journal", "entity_of"]

ENTITIES: Final[Mapping[str, str]] = {
    "user_message": "messageId",
    "user_message_chunk": "messageId",
    "agent_message": "messageId",
    "agent_message_chunk": "messageId",
    "agent_thought": "messageId",
    "agent_thought_chunk": "messageId",
    "session_message": "messageId",
    "session_message_chunk": "messageId",
    "tool_call_update": "toolCallId",
    "tool_call_content_chunk": "toolCallId",
    "terminal_update": "terminalId",
    "terminal_output_chunk": "terminalId",
    "plan_update": "plan",
    "compaction_update": "compactionId",
    "compaction_summary_chunk": "compactionId",
    "subagent_update": "sessionId",
}
"""Update kinds that describe a lasting entity, and the field that names it."""

APPENDING: Final[Mapping[str, tuple[str, str, str]]] = {
    # kind: (kind of the upsert, field that the chunk carries, field of the upsert that it extends)
    "user_message_chunk": ("user_message", "content", "content"),
    "agent_message_chunk": ("agent_message", "content", "content"),
    "agent_thought_chunk": ("agent_thought", "content", "content"),
    "session_message_chunk": ("session_message", "content", "content"),
    "tool_call_content_chunk": ("tool_call_update", "content", "content"),
    "compaction_summary_chunk": ("compaction_update", "content", "summary"),
}
"""Chunks that extend a list of another update kind. Terminal output extends bytes."""

_UPSERTS: Final[Mapping[str, tuple[str, str]]] = {
    kind: (APPENDING[kind][0] if kind in APPENDING else kind.replace("_output_chunk", "_update"), name)
    for kind, name in ENTITIES.items()
}
"""The kind of the upsert, and the field that names the entity: looked up for every update that is sent."""

SETTLED: Final = 256
"""How many entities are kept before the oldest go. The history lags by a tenth of a second (measured: a write queue
of 100 ms), so what 256 entities have followed is stored long since."""

OUTPUT: Final = 1 << 20
"""Characters of a running terminal's output, in base64, that are kept: what a server printed for days is not history.
The oldest go first, half of them at once."""

_FINAL_STATUS: Final = frozenset({"completed", "failed", "cancelled"})


def entity_of(update: Mapping[str, Any]) -> tuple[str, str] | None:
    """The entity that an update belongs to, as (kind of its upsert, id); ``None`` for all that is not history."""
    found = _UPSERTS.get(update["sessionUpdate"])
    if found is None:
        return None
    upsert, name = found
    identity = update["plan"].get("planId") if name == "plan" else update.get(name)
    return upsert, str(identity)


@dataclass(slots=True)
class Entity:
    """The present state of one entity: patch fields folded, chunks collected."""

    fields: dict[str, Any]
    chunks: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    extends: str = "content"
    size: int = 0
    """Characters in ``chunks``, of a terminal."""

    def output(self, chunk: Mapping[str, Any]) -> None:
        """Collect a chunk of terminal output."""
        self.extends = "output"
        self.fields["terminalId"] = chunk["terminalId"]
        self.chunks.append(chunk)
        self.size += len(chunk["data"])
        if self.size > OUTPUT:
            gone = 0
            while self.size > OUTPUT // 2 and gone < len(self.chunks) - 1:
                self.size -= len(self.chunks[gone]["data"])
                gone += 1
            del self.chunks[:gone]

    def updates(self) -> Iterator[Mapping[str, Any]]:
        """The upsert that carries all of it."""
        if not self.chunks:
            yield dict(self.fields)
            return
        if self.extends == "output":
            # A snapshot replaces what the history tells of the same bytes (TC-2); chunks would come on top.
            before = self.fields.get("output") or {"data": ""}
            data = b"".join(base64.b64decode(part["data"]) for part in (before, *self.chunks))
            yield {**self.fields, "output": {"data": base64.b64encode(data).decode("ascii")}}
            return
        content = [*(self.fields.get(self.extends) or ()), *_joined(self.chunks)]
        yield {**self.fields, self.extends: content}

    @property
    def settled(self) -> bool:
        """Whether nothing more is expected to come for it."""
        if "terminalId" in self.fields:
            # A client that comes later must see it, whatever came since: it can be cancelled (RES-11, TC-2).
            return self.fields.get("exitStatus") is not None
        status = self.fields.get("status")
        state = self.fields.get("state")
        # A subagent is done when it is idle, however long ago its announcement was stored.
        if isinstance(state, Mapping) and cast("Mapping[str, Any]", state).get("state") != "idle":
            return False
        return status is None or status in _FINAL_STATUS


class Journal:
    """The journal of one session or child session."""

    def __init__(self) -> None:
        self._entities: dict[tuple[str, str], Entity] = {}

    def __contains__(self, entity: tuple[str, str]) -> bool:
        return entity in self._entities

    def note(self, update: Mapping[str, Any]) -> None:
        """Fold an update in. Called for every update of the session, so it is cheap for chunks."""
        identity = entity_of(update)
        if identity is None:
            return
        kind: str = update["sessionUpdate"]
        entity = self._entities.get(identity)
        if entity is None:
            entity = self._entities[identity] = Entity({"sessionUpdate": identity[0]})
            self._prune()
        if kind in APPENDING:
            _, carried, extended = APPENDING[kind]
            if not entity.chunks:
                entity.extends = extended
                entity.fields |= {k: v for k, v in update.items() if k not in ("sessionUpdate", carried)}
            entity.chunks.append(update[carried])
        elif kind == "terminal_output_chunk":
            entity.output(update)
        else:
            if entity.extends in update:
                entity.chunks.clear()
                entity.size = 0
            entity.fields |= update

    def settle(self) -> None:
        """A later message was stored, and rows are stored in order: all that is finished is in the history."""
        self._entities = {name: entity for name, entity in self._entities.items() if not entity.settled}

    def updates(self, only: Set[tuple[str, str]] | None = None) -> list[Mapping[str, Any]]:
        """Every entity, or ``only`` these, in its present state, in the order in which they first appeared."""
        return [
            update
            for name, entity in self._entities.items()
            if only is None or name in only
            for update in entity.updates()
        ]

    def entities(self) -> frozenset[tuple[str, str]]:
        """What :meth:`updates` covers."""
        return frozenset(self._entities)

    def _prune(self) -> None:
        if len(self._entities) <= SETTLED:
            return
        for name, entity in self._entities.items():
            if entity.settled:
                del self._entities[name]
                return


def _joined(blocks: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The same blocks with neighbouring plain texts in one."""
    text: list[str] = []
    for block in blocks:
        if block.get("type") == "text" and len(block) == 2:
            text.append(block["text"])
            continue
        if text:
            yield {"type": "text", "text": "".join(text)}
            text = []
        yield block
    if text:
        yield {"type": "text", "text": "".join(text)}
