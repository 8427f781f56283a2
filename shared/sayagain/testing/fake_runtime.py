"""A runtime without a model or a process: for rules and races, never the proof that something works.

What is stored lives in a :class:`FakeStore`, which outlives any :class:`FakeRuntime`: a second runtime over the same
store is the same agent after a restart. By default a submitted prompt is stored and answered at once; a session whose
``manual`` is set does nothing by itself, and the test says what happens and when.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import anyio.lowlevel

from sayagain.errors import InvalidParams, SessionNotFound
from sayagain.identity import new_session_id
from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, HistoryUpdate, Unreadable, UserTurn
from sayagain.runtime.seam import SessionPage, SessionSetup, StoredSession
from sayagain.testing.fake_session import FakeSession, FakeStore, text

__all__ = ["FakeRuntime", "FakeSession", "FakeStore", "text"]


class FakeRuntime:
    """Implements ``Runtime`` over a store."""

    name = "fake"
    title = "Fake"

    def __init__(self, store: FakeStore | None = None, *, capabilities: RuntimeCapabilities | None = None) -> None:
        self.store = store or FakeStore()
        self.capabilities = capabilities or RuntimeCapabilities(
            image=True,
            embedded_context=True,
            mcp_stdio=True,
            fork=True,
            delete=True,
            additional_directories=True,
            title=True,
            archive=True,
            auth_status=True,
            system_prompt_modes=frozenset({"append"}),
        )
        self.manual = False
        self.sessions: dict[str, FakeSession] = {}
        self.logins: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for session in self.sessions.values():
            await session.close()

    async def warm_up(self) -> None:
        pass

    def auth_methods(self, client_capabilities: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        method = {"type": "agent", "methodId": "fake-login", "name": "Fake login"}
        terminal = {"type": "terminal", "methodId": "fake-terminal", "name": "Fake terminal login"}
        auth: Mapping[str, Any] = client_capabilities.get("auth") or {}
        offered = auth.get("terminal") is not None
        return [method, terminal] if offered else [method]

    async def login(self, method_id: str, params: Mapping[str, Any]) -> None:
        if method_id != "fake-login":
            raise InvalidParams("methodId", "no such method that the agent serves")
        self.logins.append(method_id)

    async def logout(self) -> None:
        self.logins.clear()

    async def new(self, setup: SessionSetup) -> FakeSession:
        return self._session(new_session_id(), setup)

    async def resume(self, session_id: str, setup: SessionSetup) -> FakeSession:
        if session_id not in self.store.sessions:
            raise SessionNotFound(session_id)
        return self._session(session_id, setup)

    async def fork(self, session_id: str, setup: SessionSetup) -> FakeSession:
        if session_id not in self.store.sessions:
            raise SessionNotFound(session_id)
        session = self._session(new_session_id(), setup)
        for entry in self.store.sessions[session_id]:
            if isinstance(entry, UserTurn | HistoryUpdate) and entry.session_id == session_id:
                session.persist(replace(entry, session_id=session.session_id))
        return session

    async def list(self, *, cwd: str | None, cursor: str | None, archived: str = "exclude") -> SessionPage:
        if cursor not in (None, "", "0"):
            raise InvalidParams("cursor", "is not one of ours")
        rows = [
            StoredSession(
                session_id,
                self.store.directories[session_id],
                self.store.titles.get(session_id),
                archived=session_id in self.store.archived,
            )
            for session_id in reversed(self.store.sessions)
            if cwd in (None, self.store.directories[session_id])
        ]
        shown = {"exclude": (False,), "include": (False, True), "only": (True,)}[archived]
        return SessionPage([row for row in rows if row.archived in shown])

    async def stored(self, session_id: str) -> bool:
        return session_id in self.store.sessions

    async def set_title(self, session_id: str, title: str) -> None:
        if session_id not in self.store.sessions:
            raise SessionNotFound(session_id)
        self.store.titles[session_id] = title
        if (session := self.sessions.get(session_id)) is not None:
            session.update({"sessionUpdate": "session_info_update", "title": title})

    async def archive(self, session_id: str, *, archived: bool) -> None:
        if session_id not in self.store.sessions:
            raise SessionNotFound(session_id)
        if archived:
            self.store.archived.add(session_id)
        else:
            self.store.archived.discard(session_id)

    async def auth_status(self) -> Mapping[str, Any]:
        return {"state": "authenticated" if self.logins else "unauthenticated"}

    async def delete(self, session_id: str) -> None:
        self.store.sessions.pop(session_id, None)

    async def history(self, session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        self.store.reads += 1
        if session_id not in self.store.sessions:
            raise SessionNotFound(session_id)
        # Like a file, it may grow while it is read.
        entries, index, open_children = self.store.sessions[session_id], 0, dict[str, None]()
        while index < len(entries):
            if self.store.before_entry is not None:
                await self.store.before_entry(index)
            if self.store.read_error is not None:
                raise self.store.read_error
            entry = entries[index]
            if isinstance(entry, ChildStarts):
                open_children[entry.child_id] = None
            elif isinstance(entry, HistoryEnds):
                open_children.pop(entry.session_id, None)
            yield entry if live else _over(entry)
            index += 1
        for child_id in reversed(open_children):
            yield HistoryEnds(child_id)

    async def message_ids(self, session_id: str) -> Set[str]:
        await anyio.lowlevel.checkpoint()
        self.store.reads += 1
        if self.store.read_error is not None:
            raise self.store.read_error
        return set(self.store.ids(session_id))

    def gap(self, session_id: str, what: str) -> None:
        """Store a gap."""
        self.store.sessions[session_id].append(Unreadable(what))

    def _session(self, session_id: str, setup: SessionSetup) -> FakeSession:
        session = self.sessions[session_id] = FakeSession(self, session_id, setup)
        return session


def _over(entry: HistoryEntry) -> HistoryEntry:
    """As it is told when nobody works on the session: what is not finished never will be."""
    if isinstance(entry, HistoryUpdate) and entry.update.get("status") == "in_progress":
        return replace(entry, update={**entry.update, "status": "failed"})
    return entry
