"""A replaying ``session/resume``: history, one marker a session, then what waited (design section 4, RPL-*).

The history comes from the runtime in one pass. A session that works in this process is cut at the instant the replay
begins: the gates close and the journals are copied in one step, so that history, cut and waiting updates fit together
without a seam.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayagain import fault_points
from sayagain.agent.attachment import Attachment
from sayagain.agent.journal import entity_of
from sayagain.agent.session import Session
from sayagain.errors import SessionInUse, SessionNotFound
from sayagain.fault_points import Point
from sayagain.protocol.notices import notice_from
from sayagain.runtime.history import (
    ChildStarts,
    HistoryEnds,
    HistoryEntry,
    HistoryUpdate,
    Unreadable,
    UserTurn,
    closing,
)
from sayagain.runtime.seam import GLANCE

__all__ = ["replay"]


@dataclass(slots=True)
class _Cut:
    """What a session and its children looked like when the replay began."""

    updates: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict[str, Sequence[Mapping[str, Any]]])
    entities: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict[str, frozenset[tuple[str, str]]])


async def replay(session: Session, attachment: Attachment) -> None:
    """Send the whole history and the markers to one attachment.

    When this raises or is cancelled, nothing was certified that was not sent whole, and the caller aborts the gates.
    """
    async with session.replay_lock:
        owned = await _own(session)
        reading = session.pump.table.reading
        ids = await _Replay(session, attachment, owned=owned).run()
        if owned:
            session.pump.learn(ids, reading)
        else:
            session.pump.saw(ids)


async def _own(session: Session) -> bool:
    """Own the session if that is possible: then this read serves the keys too. A replay needs no owner."""
    try:
        await session.backend.own(patience=GLANCE)
    except SessionInUse:
        return False
    return True


class _Replay:
    def __init__(self, session: Session, attachment: Attachment, *, owned: bool) -> None:
        self._session = session
        self._owned = owned
        self._attachment = attachment
        self._connection = attachment.connection
        self._root = session.session_id
        self._begun: set[str] = set()
        self._ids: set[str] = set()
        self._gaps: list[Unreadable] = []
        # What the history said of the entities of the cut: those that it told in their present state are told once.
        self._told: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._cut = _Cut()

    async def run(self) -> set[str]:
        """Replay; the ids of all stored messages."""
        self._close_gates()
        fault_points.passing(Point.REPLAY_BEGUN)
        try:
            # Unfinished work in the history goes on while this process works on the session. Whether another owner
            # does is not known here, so it is shown as it is stored.
            live = not self._owned or self._session.foreground.active or bool(self._session.working_children())
            async with closing(self._session.runtime.history(self._root, live=live)) as entries:
                async for entry in entries:
                    self._take(entry)
                    await self._session.drained(self._connection)
        except SessionNotFound:
            # Made in this process and never prompted: an empty history, which is told as one (RPL-2).
            if not self._session.fresh:
                raise
        self._end(self._root)
        self._attachment.prompts_before = self._session.pump.given
        if not self._owned:
            self._notice(
                "Another process works on this session",
                "What it has stored is shown; prompts are refused until it ends.",
            )
        for gap in self._gaps:
            self._notice("Parts of this session's history could not be read", gap.what)
        # A child that started meanwhile is announced before the response too: it gets its marker (RPL-8).
        for child_id in self._attachment.open(self._root, list(self._session.current_state())) - self._begun:
            gate = self._attachment.gate(child_id)
            gate.begin()
            self._connection.update(child_id, gate.complete())
        return self._ids

    def _take(self, entry: HistoryEntry) -> None:
        match entry:
            case HistoryUpdate():
                self._send(entry.session_id, entry.update)
            case UserTurn():
                if entry.session_id == self._root:
                    self._ids.update(entry.message_ids)
                if entry.update is not None:
                    self._send(entry.session_id, entry.update)
            case ChildStarts():
                self._begin_child(entry.parent_id, entry.child_id, entry.update)
            case HistoryEnds():
                self._end(entry.session_id)
            case Unreadable():
                self._gaps.append(entry)

    def _close_gates(self) -> None:
        """The cut: nothing is awaited in here."""
        session, attachment = self._session, self._attachment
        for session_id in (self._root, *session.children):
            journal = session.journal(session_id)
            self._cut.updates[session_id] = journal.updates()
            self._cut.entities[session_id] = journal.entities()
            attachment.gate(session_id).hold()
            attachment.gate(session_id).cut(self._cut.entities[session_id])
        attachment.gate(self._root).begin(live=session.worked)
        self._begun.add(self._root)

    def _begin_child(self, parent_id: str, child_id: str, update: Mapping[str, Any]) -> bool:
        """Announce a child and begin its history; false when that was done before."""
        self._send(parent_id, update)
        if child_id in self._begun:
            return False
        self._begun.add(child_id)
        self._attachment.gate(child_id).begin(live=self._session.worked)
        return True

    def _send(self, session_id: str, update: Mapping[str, Any]) -> None:
        cut = self._cut.entities.get(session_id)
        if cut and (entity := entity_of(update)) in cut:
            if self._told.get(entity) == update:
                return
            self._told[entity] = update
        self._connection.update(session_id, self._attachment.gate(session_id).history(update))

    def _unless_ended(self, session_id: str, update: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of a terminal that ended the history has all of the output, and the journal may have its end alone."""
        told = self._told.get(entity_of(update) or ("", ""), {})
        if update["sessionUpdate"] == "terminal_update" and told.get("exitStatus") is not None:
            return {name: value for name, value in update.items() if name != "output"}
        return update

    def _end(self, session_id: str) -> None:
        """The cut of what still works, then the marker."""
        for update in self._cut.updates.pop(session_id, ()):
            if update["sessionUpdate"] == "subagent_update":
                child_id: str = update["sessionId"]
                # A child whose announcement is not stored yet has all of its history in its own cut.
                if self._begin_child(session_id, child_id, update):
                    self._end(child_id)
            else:
                self._send(session_id, self._unless_ended(session_id, update))
        fault_points.passing(Point.MARKER_DUE)
        self._connection.update(session_id, self._attachment.gate(session_id).complete())
        fault_points.passing(Point.MARKER_SENT)

    def _notice(self, title: str, description: str) -> None:
        self._connection.update(self._root, notice_from("sayagain", "warning", title, description))
