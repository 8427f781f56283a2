"""The replay gate: only history before the marker, and one marker. A pure state machine (design section 4).

One gate for each attachment and session id: the session itself and every child that is announced to it. While a
replay runs, what comes from the history passes, and all else waits in order, the agent's requests included (RPL-4,
RPL-6). The marker is made here and nowhere else, by the one transition out of ``REPLAYING`` that certifies.

===========  =================  ============  ==================================================
state        event              next          effect
===========  =================  ============  ==================================================
open         begin              replaying     live updates wait from here on
replaying    history            replaying     passes
replaying    complete           marked        the marker, ``replay_complete``
replaying    abort              open          no marker; what waited is returned or dropped
marked       release            open          what waited
open         hold               marked        not active yet, or about to be replayed: live updates wait
replaying    hold               replaying     waits already
===========  =================  ============  ==================================================

What waits and what the history tells must not overlap: a chunk that is sent after a message which contains it shows its
text twice. So :meth:`Gate.cut` drops what waits and is in the cut, and :meth:`Gate.history` drops what waits of a
message that the history gives whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from typing_extensions import TypeIs

from sayagain.agent.journal import APPENDING, entity_of

__all__ = ["MARKER", "TRANSITIONS", "Gate", "GateEvent", "GateState"]

T = TypeVar("T")

MARKER: Final[Mapping[str, Any]] = {"sessionUpdate": "replay_complete"}

RECENT: Final = 64
"""Replayed messages that live chunks may be on the way for in a session that has not worked in this process: those in
the runtime's pipe. Of one that has, every replayed message is remembered: what a slow client holds up between the
runtime and us is bounded by the runtime's own buffer alone."""


class GateState(Enum):
    """Where a gate stands."""

    OPEN = "live updates pass"
    REPLAYING = "history passes, live updates wait"
    MARKED = "live updates wait for the response"


class GateEvent(Enum):
    """What moves a gate."""

    BEGIN = "a replay begins"
    COMPLETE = "everything selected was sent"
    ABORT = "the replay failed or was cancelled"
    HOLD = "updates wait for a response"
    RELEASE = "the response was written, or nothing is left to wait for"


TRANSITIONS: Final[Mapping[tuple[GateState, GateEvent], GateState]] = {
    (GateState.OPEN, GateEvent.BEGIN): GateState.REPLAYING,
    (GateState.MARKED, GateEvent.BEGIN): GateState.REPLAYING,
    (GateState.REPLAYING, GateEvent.COMPLETE): GateState.MARKED,
    (GateState.REPLAYING, GateEvent.ABORT): GateState.OPEN,
    (GateState.MARKED, GateEvent.ABORT): GateState.OPEN,
    (GateState.OPEN, GateEvent.HOLD): GateState.MARKED,
    (GateState.MARKED, GateEvent.HOLD): GateState.MARKED,
    (GateState.REPLAYING, GateEvent.HOLD): GateState.REPLAYING,
    (GateState.MARKED, GateEvent.RELEASE): GateState.OPEN,
    (GateState.OPEN, GateEvent.RELEASE): GateState.OPEN,
}


class Gate(Generic[T]):
    """Decides what may go out now. ``T`` is an agent request that waits among the updates."""

    def __init__(self) -> None:
        self._state = GateState.OPEN
        self._waiting: list[Mapping[str, Any] | T] = []
        self._growing: set[tuple[str, str]] = set()
        """Entities of which chunks wait."""
        self._recent: dict[tuple[str, str], None] = {}
        self._remembered: int | None = RECENT
        self._cut: frozenset[tuple[str, str]] = frozenset()
        self._uncut: list[Mapping[str, Any] | T] = []
        """What the cut took away, for a replay that fails."""
        self._told: set[tuple[str, str]] = set()
        """Entities of the cut that were sent."""

    @property
    def state(self) -> GateState:
        """Where the gate stands."""
        return self._state

    @property
    def waiting(self) -> int:
        """How many entries wait."""
        return len(self._waiting)

    def cut(self, entities: frozenset[tuple[str, str]]) -> None:
        """The journal was copied, ``entities`` are in it: their present state is added to the history.

        What waits of any entity is older than the copy. It goes: it is in the copy, or the journal let go of it because
        the history has it. All else keeps its place.
        """
        self._cut = entities
        self._uncut = [item for item in self._waiting if _is_update(item) and entity_of(item) is not None]
        self._told.clear()
        self._drop(lambda update: entity_of(update) is not None)

    def begin(self, *, live: bool = False) -> None:
        """A replay begins; of a session that is ``live``, chunks of any message may be on the way."""
        self._move(GateEvent.BEGIN)
        self._recent.clear()
        self._remembered = None if live else RECENT

    def passed(self) -> None:
        """All that was on the way when the replay was read has come."""
        if self._state is not GateState.REPLAYING:
            self._recent.clear()

    def history(self, update: Mapping[str, Any]) -> Mapping[str, Any]:
        """An update from the history, or of the cut; passes while replaying."""
        assert self._state is GateState.REPLAYING
        entity = entity_of(update)
        if entity is None:
            return update
        if entity in self._cut:
            self._told.add(entity)
            return update
        self._recent[entity] = None
        if self._remembered is not None and len(self._recent) > self._remembered:
            del self._recent[next(iter(self._recent))]
        if entity in self._growing:
            self._drop(lambda waiting: entity_of(waiting) == entity and _grows(waiting))
        return update

    def complete(self) -> Mapping[str, Any]:
        """Everything selected was sent. Returns the marker (RPL-1, RPL-2)."""
        self._move(GateEvent.COMPLETE)
        self._uncut.clear()
        self._told.clear()
        return MARKER

    def hold(self) -> None:
        """Live updates wait for a response, without a replay."""
        self._move(GateEvent.HOLD)

    def live(self, update: Mapping[str, Any]) -> bool:
        """A live update: true when it may go out now; else it was kept, or dropped as already replayed.

        A chunk for a message that the history gave whole was still on its way from the runtime when the history was
        read: to append it would show its text twice.
        """
        if self._recent and self._replayed_whole(update):
            return False
        if self._state is GateState.OPEN:
            return True
        if not (self._waiting and self._joined(update)):
            self._waiting.append(update)
        if _grows(update) and (entity := entity_of(update)) is not None:
            self._growing.add(entity)
        return False

    def ask(self, request: T) -> bool:
        """An agent request: true when it may go out now; else it waits in its place among the updates (RPL-6)."""
        if self._state is GateState.OPEN:
            return True
        self._waiting.append(request)
        return False

    def withdraw(self, request: T) -> bool:
        """Take back a request that waits here; false when it is not among them."""
        if request in self._waiting:
            self._waiting.remove(request)
            return True
        return False

    def release(self) -> list[Mapping[str, Any] | T]:
        """Open the gate; what waited, in order."""
        self._move(GateEvent.RELEASE)
        return self._drain()

    def abort(self) -> list[Mapping[str, Any] | T]:
        """The replay failed or was cancelled: no marker. What waited, for a session that stays attached.

        What the cut took away was to come with the history, so it is given back. Entities of the cut that were sent
        already (:attr:`told`) may have been sent as an older state: whoever delivers this sends their present one.
        """
        self._move(GateEvent.ABORT)
        self._waiting[:0], self._uncut = self._uncut, []
        self._drop(lambda update: entity_of(update) in self._told)
        return self._drain()

    @property
    def told(self) -> frozenset[tuple[str, str]]:
        """Entities of the cut that this replay sent."""
        return frozenset(self._told)

    def _move(self, event: GateEvent) -> None:
        self._state = TRANSITIONS[self._state, event]

    def _drain(self) -> list[Mapping[str, Any] | T]:
        waiting, self._waiting = self._waiting, []
        self._growing.clear()
        return waiting

    def _drop(self, covered: Callable[[Mapping[str, Any]], bool]) -> None:
        self._waiting = [item for item in self._waiting if not (_is_update(item) and covered(item))]

    def _replayed_whole(self, update: Mapping[str, Any]) -> bool:
        return _grows(update) and entity_of(update) in self._recent

    def _joined(self, update: Mapping[str, Any]) -> bool:
        """Append a text delta to the one that waits before it, so that what waits stays small (I11)."""
        last = self._waiting[-1]
        kind = update["sessionUpdate"]
        if not kind.endswith("_message_chunk") and kind != "agent_thought_chunk":
            return False
        if not _is_update(last):
            return False
        if last.get("sessionUpdate") != kind or last.get("messageId") != update["messageId"]:
            return False
        before, after = last["content"], update["content"]
        if before.get("type") != "text" or after.get("type") != "text" or len(before) != 2 or len(after) != 2:
            return False
        self._waiting[-1] = {**last, "content": {"type": "text", "text": before["text"] + after["text"]}}
        return True


def _is_update(item: object) -> TypeIs[Mapping[str, Any]]:
    return isinstance(item, Mapping)


def _grows(update: Mapping[str, Any]) -> bool:
    """Whether the update extends what its entity has."""
    return update["sessionUpdate"] in APPENDING or update["sessionUpdate"] == "terminal_output_chunk"
