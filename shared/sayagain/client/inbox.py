"""What the agent sends, on its way to the sessions, and how much of it nobody has read yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sayagain.client.events import Event, Update
from sayagain.client.replay import SHARED, UNANNOUNCED
from sayagain.client.session import Session

__all__ = ["Inbox"]

_STRAY: Final = 1000
"""Updates that are kept for sessions whose ids are not known yet: they may come before the answer to session/new."""


class Inbox:
    """``limit`` is the weight, in bytes, that may wait to be read."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sessions: dict[str, Session] = {}
        self._unread = 0
        self._moved: dict[str, str] = {}
        """By the id of a session that was moved, the id of the one that has its prompts."""
        self._roots: dict[str, str] = {}
        """By child session, the session that the application has."""
        self._making = 0
        """How many sessions the agent is asked for."""
        self._stray: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_STRAY)
        """What came meanwhile for none that is here."""

    @property
    def full(self) -> bool:
        """Whether the application does not keep up."""
        return self._unread > self.limit

    def expect(self, session: Session) -> None:
        """From now on what comes under the session's id is the session's."""
        self.sessions[session.session_id] = session
        # No session that is there was moved: so there are no circles, whatever ids an agent makes.
        self._moved.pop(session.session_id, None)

    def find(self, session_id: str) -> Session | None:
        """The session that the application has under this id, or that has the prompts of the one that had it."""
        while session_id in self._moved:
            session_id = self._moved[session_id]
        return self.sessions.get(session_id)

    def move(self, session: Session, to: str) -> bool:
        """It goes on under another id; false when the application has a session of that id already."""
        old = session.session_id
        self.forget(session)
        free = to not in self.sessions
        if free:
            session.rename(to)
            self.expect(session)
        self._moved[old] = to
        return free

    @contextmanager
    def making(self) -> Generator[None]:
        """From before the agent is asked for a session until :meth:`take_stray`: what comes for it before its id is
        known is kept. What is older cannot be its.
        """
        self._making += 1
        try:
            yield
        finally:
            self._making -= 1
            if not self._making:
                self._stray.clear()

    def take_stray(self, session: Session) -> None:
        """The session was made, and is here: what came for it and its children before is for it.

        All else stays as it was: it may be of another that is being made, and what it is a part of has missed it.
        """
        stray, self._stray = self._stray, deque(maxlen=_STRAY)
        for session_id, update in stray:
            if session.session_id in (session_id, self._roots.get(session_id)):
                self.take(session_id, update)
            else:
                self._stray.append((session_id, update))

    def has(self, session: Session) -> bool:
        """Whether the session gets what comes under its id."""
        return self.sessions.get(session.session_id) is session

    def forget(self, session: Session) -> None:
        """Its updates are of no interest any more."""
        if self.has(session):
            del self.sessions[session.session_id]
            if session.tracker is not None:
                # What is still to come of a replay does not reach it: by our doing, not the agent's.
                session.tracker.miss()
        for child in [child for child, root in self._roots.items() if root == session.session_id]:
            del self._roots[child]

    def take(self, session_id: str, update: Mapping[str, Any]) -> None:
        """A ``session/update``, in the order of the wire."""
        root = self.sessions.get(self._roots.get(session_id, session_id))
        session = self.sessions.get(session_id, root)
        if session is None:
            if self._making:
                self._stray.append((session_id, update))
            self.missed(session_id, UNANNOUNCED)
            return
        if root is not None and root is not session and root.tracker is not None:
            # No child is a session of its own (SUB-9). If both are replayed, nobody knows which replay this is of.
            root.tracker.miss(session_id, SHARED)
            if session.tracker is not None:
                session.tracker.miss(session_id, SHARED)
        child = update.get("sessionId")
        if update.get("sessionUpdate") == "subagent_update" and isinstance(child, str):
            self._roots[child] = session.session_id
        if session.tracker is not None:
            session.tracker.take(session_id, update)
        self.deliver(session, Update(session_id, update))

    def missed(self, session_id: str | None, violation: str) -> None:
        """An update of this session, or of any, reaches none that is here: no replay that it is part of is whole."""
        for session in self.sessions.values():
            if session.tracker is not None:
                session.tracker.miss(session_id, violation)

    def deliver(self, session: Session, event: Event) -> None:
        """Put an event into the session's stream."""
        self._unread += session.deliver(event)

    def read(self, weight: int) -> None:
        """The application has read what weighs so much."""
        self._unread -= weight
