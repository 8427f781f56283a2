"""Whole history or cut history: the outcome table of the marker's spec, as a value. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from sayagain.protocol.v2.history import NOT_HISTORY

__all__ = [
    "SHARED",
    "UNANNOUNCED",
    "UNREADABLE",
    "Outcome",
    "Replay",
    "ReplayTracker",
    "ReplayedSession",
    "empty_replay",
    "failed_replay",
]

UNREADABLE: Final = "what may be an update could not be read"

UNANNOUNCED: Final = "an update of a child that was not announced"

SHARED: Final = "a child that is a session of its own"

_MISSED: Final = 1000
"""Ids of sessions that are not known, of which it is remembered what was missed."""


class Outcome(Enum):
    """What a replay is worth (spec of the marker, section "Outcomes")."""

    COMPLETE = "complete"
    """The marker came, and nothing was lost before it: this is the whole history, whatever became of the request."""

    UNCERTIFIED = "uncertified"
    """No marker came, and the request succeeded: the agent breaks the protocol, but its success certifies the history.
    What came live before the response cannot be told from it, but for the kinds in :data:`NOT_HISTORY`."""

    TRUNCATED = "truncated"
    """No marker came, and the request failed or the connection ended; or something came before it that may have been a
    part of it, and could not be read or told apart. It must not be used as the history."""

    @property
    def whole(self) -> bool:
        """Whether it may replace a stored copy."""
        return self is not Outcome.TRUNCATED


@dataclass(frozen=True, slots=True)
class ReplayedSession:
    """The history of one session: updates in wire form, in order."""

    session_id: str
    outcome: Outcome
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replaying resume gave: for its session, and for each child that was announced meanwhile."""

    session_id: str
    sessions: Mapping[str, ReplayedSession]
    violations: Sequence[str]
    """What the agent did against the rules of the marker, in words; for a log. What the application did meanwhile, such
    as to close the session, is none."""

    @property
    def outcome(self) -> Outcome:
        """Of the session that the request named; children have their own."""
        return self.sessions[self.session_id].outcome

    @property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """Of the session that the request named."""
        return self.sessions[self.session_id].history

    @property
    def whole(self) -> bool:
        """Whether all of it may replace stored copies, children included."""
        return all(session.outcome.whole for session in self.sessions.values())


@dataclass(slots=True)
class _Part:
    announced: bool
    marked: bool = False
    lacking: bool = False
    """Whether something of it may be missing."""
    history: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


class ReplayTracker:
    """Follows one ``session/resume`` with a cursor, from its request to its end.

    ``active``: the session was active on this connection, so what the agent wrote before it read the request comes too,
    and is no fault of the agent's. What tells the present is left out; content cannot be told from history. An agent
    that replays full upserts, as ours does, replaces it.
    """

    def __init__(self, session_id: str, *, active: bool = False) -> None:
        self._session_id = session_id
        self._active = active
        self._parts = {session_id: _Part(announced=True)}
        self._missed: dict[str, str | None] = {}
        self._violations: list[str] = []

    def miss(self, session_id: str | None = None, violation: str | None = None) -> None:
        """What may have been an update before the response has not come here: of this session, or of any.

        A marker that came already vouches for what was before it. ``violation`` is what the agent did, if it is to
        blame.
        """
        if session_id is not None and session_id not in self._parts:
            if len(self._missed) < _MISSED:
                self._missed.setdefault(session_id, violation)
            return
        for part in self._parts.values() if session_id is None else (self._parts[session_id],):
            if not part.marked:
                self._lack(part, violation)

    def _lack(self, part: _Part, violation: str | None) -> None:
        part.lacking = True
        if violation is not None and violation not in self._violations:
            self._violations.append(violation)

    def take(self, session_id: str, update: Mapping[str, Any]) -> None:
        """An update of the session or of a child that came before the response."""
        part = self._parts.get(session_id)
        if part is None:
            part = self._parts[session_id] = _Part(announced=False)
            # On a connection on which it was active it may have been announced before.
            if not self._active:
                self._violations.append(UNANNOUNCED)
        kind = update.get("sessionUpdate")
        if kind == "replay_complete":
            if part.marked:
                self._violations.append("a second replay_complete")
            part.marked = True
            return
        child = update.get("sessionId") if kind == "subagent_update" else None
        if isinstance(child, str) and child != self._session_id:
            if child not in self._parts:
                self._parts[child] = _Part(announced=True)
                # What came before its announcement reached no session.
                if child in self._missed or len(self._missed) >= _MISSED:
                    self._lack(self._parts[child], self._missed.get(child, UNANNOUNCED))
            self._parts[child].announced = True
        if part.marked:
            return
        # A child's state before the response is historical (RPL-9).
        if _not_history(update) and not (kind == "state_update" and session_id != self._session_id):
            if part.history or not self._active:
                self._violations.append(f"{kind} before replay_complete")
            return
        part.history.append(update)

    def finish(self, *, succeeded: bool) -> Replay:
        """The request was answered, or its connection ended."""
        sessions: dict[str, ReplayedSession] = {}
        for session_id, part in self._parts.items():
            if not part.announced:
                continue
            history = part.history
            if part.lacking:
                outcome = Outcome.TRUNCATED
            elif part.marked:
                outcome = Outcome.COMPLETE
            elif succeeded:
                outcome = Outcome.UNCERTIFIED
                self._violations.append("no replay_complete")
                # Without the marker a child's state may be the present one.
                history = [update for update in history if not _not_history(update)]
            else:
                outcome = Outcome.TRUNCATED
            sessions[session_id] = ReplayedSession(session_id, outcome, tuple(history))
        return Replay(self._session_id, MappingProxyType(sessions), tuple(self._violations))


def _not_history(update: Mapping[str, Any]) -> bool:
    kind: object = update.get("sessionUpdate")
    return isinstance(kind, str) and kind in NOT_HISTORY


def empty_replay(session_id: str) -> Replay:
    """Of a session that was made a moment ago: there is nothing that could be missing."""
    return Replay(session_id, MappingProxyType({session_id: ReplayedSession(session_id, Outcome.COMPLETE, ())}), ())


def failed_replay(tracker: ReplayTracker | None, earlier: Replay | None) -> Replay | None:
    """What an attempt that failed has brought, or an earlier one: a history that was complete stays so (RPL-10)."""
    if tracker is None:
        return None
    replay = tracker.finish(succeeded=False)
    return earlier if earlier is not None and earlier.outcome.whole and not replay.outcome.whole else replay
