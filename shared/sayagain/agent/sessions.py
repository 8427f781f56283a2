"""The sessions of this process, and the methods that open, list and end them.

Sessions belong to the process, not to a connection: a retry from a second connection meets the same prompt table
(design section 4).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.agent.attachment import Attachment
from sayagain.agent.resume import replay
from sayagain.agent.session import Session
from sayagain.agent.setup import changed, session_setup
from sayagain.connection import Connection, IncomingRequest
from sayagain.errors import InvalidParams, SayagainError, SessionInUse, SessionNotFound
from sayagain.fault_points import Point
from sayagain.identity import root_session_id
from sayagain.protocol.notices import notice_from
from sayagain.runtime.seam import GLANCE, Runtime, RuntimeSession, SessionSetup

__all__ = ["Sessions"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


class Sessions:
    """The registry. ``tasks`` lives as long as the agent and runs the sessions."""

    def __init__(self, runtime: Runtime, tasks: anyio.abc.TaskGroup) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._sessions: dict[str, Session] = {}
        # Opening and ending one session are never done side by side. A lock lives as long as somebody holds it or
        # waits for it, so that ids which clients make up leave nothing behind.
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def active(self, connection: Connection, session_id: str) -> Session:
        """The session, if it is active on this connection; else :class:`SessionNotFound` (PRM-4, RES-14)."""
        session = self._sessions.get(session_id)
        attachment = session.attachments.get(connection) if session else None
        if session is None or session.ended or attachment is None or not attachment.active:
            if self.is_child(session_id):
                raise InvalidParams("sessionId", "a subagent session takes no requests of its own")
            raise SessionNotFound(session_id)
        return session

    def is_child(self, session_id: str) -> bool:
        """Whether this names a subagent session of one that is active here (SUB-5, SUB-9)."""
        return root_session_id(session_id) in self._sessions

    def detach(self, connection: Connection) -> None:
        """The connection ended: its sessions are no longer active there; their work goes on."""
        for session in self._sessions.values():
            session.detach(connection)

    # Methods.

    async def new(self, request: IncomingRequest, params: Params, client: Params) -> Params:
        """``session/new``."""
        setup = self._setup(params, client)
        return await self._opened(request, await self._runtime.new(setup), setup)

    async def fork(self, request: IncomingRequest, params: Params, client: Params) -> Params:
        """``session/fork``: no replay and no marker (RPL-11)."""
        setup = self._setup(params, client)
        return await self._opened(request, await self._runtime.fork(params["sessionId"], setup), setup, fresh=False)

    async def resume(self, request: IncomingRequest, params: Params, client: Params) -> Params:
        """``session/resume``, with or without replay (RES-*)."""
        cursor: Mapping[str, Any] | None = params.get("replayFrom")
        if cursor is not None and cursor.get("type") != "start":
            raise InvalidParams("replayFrom.type", "this cursor is not supported")
        session_id: str = params["sessionId"]
        if self.is_child(session_id):
            raise InvalidParams("sessionId", "a subagent session cannot be resumed; resume its root session")
        setup = self._setup(params, client)
        # Until here nothing was awaited, so what the session says from now on waits for the marker.
        held = self._hold(request.connection, session_id) if cursor is not None else None
        session: Session | None = None
        attachment: Attachment | None = None
        try:
            async with self._lock(session_id):
                here = self._sessions.get(session_id)
                if here is None or here.ended:
                    backend = await self._runtime.resume(session_id, setup)
                    session = Session(self._runtime, backend, setup, fresh=False)
                    session.resumes += 1
                    # Before it works, so that its first words are not lost.
                    attachment = session.attach(request.connection)
                    await self._run(session)
                else:
                    session = here
                    session.resumes += 1
            async with session.turn(request.connection):
                if held is not None:
                    held.queued -= 1
                    held = None
                await self._show(request, session, setup, replaying=cursor is not None)
            return _options(session)
        except BaseException:
            self._let_go(request, held)
            if attachment and session and session.attachments.get(request.connection) is attachment:
                # It was cancelled before its turn.
                session.detach(request.connection)
            raise
        finally:
            if session is not None:
                session.resumes -= 1
                if session.unused:
                    self._tasks.start_soon(self._drop, session)

    async def _show(self, request: IncomingRequest, session: Session, setup: SessionSetup, *, replaying: bool) -> None:
        """Attach the client, and send what it is to see before the response."""
        attachment = session.attach(request.connection)
        try:
            if replaying:
                await replay(session, attachment)
            if session.ended:
                raise SessionNotFound(session.session_id)
        except BaseException:
            self._abort(request, session, attachment)
            raise
        if kept := changed(session.setup, setup):
            request.connection.update(session.session_id, _kept(kept))
        for update in session.current_state():
            request.connection.update(session.session_id, update)
        fault_points.passing(Point.RESUMED)
        request.after_success = lambda: session.activate(attachment)

    async def close(self, connection: Connection, session_id: str) -> Params:
        """``session/close``: succeeds for what is not active (CLS-4). A resume of it comes to its end first (CLS-3)."""
        async with self._lock(session_id):
            session = self._sessions.get(session_id)
            if session is not None and connection in session.attachments:
                async with session.turn(connection):
                    await session.close()
        return {}

    async def delete(self, session_id: str) -> Params:
        """``session/delete``: an active session ends first (DEL-1). A child has no life of its own (SUB-5)."""
        root = root_session_id(session_id)
        if root is not None and (root in self._sessions or await self._runtime.stored(root)):
            raise InvalidParams("sessionId", "a subagent session cannot be deleted; delete its root session")
        async with self._lock(session_id):
            await self._once_closed(session_id, lambda: self._runtime.delete(session_id))
        return {}

    async def archive(self, session_id: str, *, archived: bool) -> Params:
        """``session/archive`` and ``session/unarchive``: an active session ends before it is archived (ARC-1)."""
        async with self._lock(session_id):
            if not archived:
                # What is open is not archived: to archive ends it, and what is archived is not opened.
                if (session := self._sessions.get(session_id)) is None or session.ended:
                    await self._runtime.archive(session_id, archived=False)
                return {}
            if session_id in self._sessions and not await self._runtime.stored(session_id):
                raise SessionNotFound(session_id)
            await self._once_closed(session_id, lambda: self._runtime.archive(session_id, archived=True))
        return {}

    async def status(self, session_id: str) -> Params:
        """``session/status``: open in this process, or saved; nothing is changed by the question (STS-1)."""
        session = self._sessions.get(session_id)
        if session is not None and not session.ended:
            state = {key: value for key, value in session.foreground.snapshot().items() if key != "sessionUpdate"}
            return {"status": "open", "state": state}
        if not await self._runtime.stored(session_id):
            raise SessionNotFound(session_id)
        return {"status": "saved"}

    async def list(self, params: Params) -> Params:
        """``session/list`` (LST-1 to LST-4)."""
        archived = params.get("archived") or "exclude"
        if archived not in ("exclude", "include", "only"):
            raise InvalidParams("archived", "this filter is not supported")
        if not self._runtime.capabilities.archive:
            # Nothing is archived here, so two of the filters mean what they always mean.
            if archived == "only":
                return {"sessions": []}
            archived = "exclude"
        page = await self._runtime.list(cwd=params.get("cwd"), cursor=params.get("cursor"), archived=archived)
        result: dict[str, Any] = {"sessions": []}
        for stored in page.sessions:
            row: dict[str, Any] = {"sessionId": stored.session_id, "cwd": stored.cwd}
            if stored.title is not None:
                row["title"] = stored.title
            if stored.updated_at is not None:
                row["updatedAt"] = stored.updated_at
            if stored.archived:
                row["archived"] = True
            result["sessions"].append(row)
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        return result

    async def close_all(self) -> None:
        """The process ends: every session is closed."""
        async with anyio.create_task_group() as group:
            for session in list(self._sessions.values()):
                group.start_soon(session.close)

    def _setup(self, params: Params, client: Params) -> SessionSetup:
        return session_setup(params, self._runtime.capabilities, client)

    async def _opened(
        self, request: IncomingRequest, backend: RuntimeSession, setup: SessionSetup, *, fresh: bool = True
    ) -> Params:
        session = Session(self._runtime, backend, setup, fresh=fresh)
        # Before it works, so that its first words are not lost.
        attachment = session.attach(request.connection)
        await self._run(session)
        # What the runtime has to say about the new session waits for the response: a client that gets updates of a
        # session it does not know yet may hang (seen with one IDE).
        request.after_success = lambda: session.activate(attachment)
        return {"sessionId": session.session_id, **_options(session)}

    async def _run(self, session: Session) -> None:
        self._sessions[session.session_id] = session
        await self._tasks.start(self._guard, session)

    async def _guard(self, session: Session, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """A session that fails ends alone."""
        try:
            await session.run(task_status=task_status)
        except Exception:
            logger.exception("a session ended unexpectedly")
        finally:
            if self._sessions.get(session.session_id) is session:
                del self._sessions[session.session_id]

    async def _once_closed(self, session_id: str, change: Callable[[], Awaitable[None]]) -> None:
        """Make a change that no open session outlives (DEL-1, ARC-1). One that is refused leaves it open.

        What another owner forbids is known before. All else the runtime finds out when it tries, and it tries nothing
        on a session that works: then the session is opened again.
        """
        session = self._sessions.get(session_id)
        was_open = session is not None and not session.ended
        if session is not None:
            if was_open:
                await _check_owner(session)
            await session.close()
        try:
            await change()
        except Exception:
            if session is not None and was_open:
                await self._reopen(session)
            raise

    async def _reopen(self, closed: Session) -> None:
        """Open it for those to whom it was, with its setup and what is stored.

        What its end stopped or withdrew was told so, and stays it; keys that the runtime does not store are forgotten
        (KEY-9). It stays closed when nobody is there any more, and when it cannot be resumed: nothing was stored of it,
        or the fault is the same.
        """
        try:
            backend = await self._runtime.resume(closed.session_id, closed.setup)
        except SayagainError as error:
            logger.warning("a session could not be opened again: %s", type(error).__name__)
            return
        session = Session(self._runtime, backend, closed.setup, fresh=False)
        before = [attachment.connection for attachment in closed.attachments.values() if attachment.usable]
        attachments = [session.attach(connection) for connection in before]
        await self._run(session)
        if not attachments:
            await session.close()
        for attachment in attachments:
            for update in session.current_state():
                attachment.connection.update(session.session_id, update)
            session.activate(attachment)

    def _lock(self, session_id: str) -> anyio.Lock:
        return self._locks.setdefault(session_id, anyio.Lock())

    def _hold(self, connection: Connection, session_id: str) -> Attachment | None:
        """A replay was asked for: the gates of a client that is attached close now, not when its turn has come."""
        session = self._sessions.get(session_id)
        attachment = session.attachments.get(connection) if session is not None and not session.ended else None
        if session is not None and attachment is not None:
            attachment.queued += 1
            attachment.hold(session.children)
        return attachment

    def _let_go(self, request: IncomingRequest, attachment: Attachment | None) -> None:
        """The turn of a replay never came. Its client goes on, unless another replay keeps the gates closed."""
        if attachment is None:
            return
        attachment.queued -= 1
        session = self._sessions.get(attachment.session_id)
        if session is None or session.attachments.get(request.connection) is not attachment or not attachment.active:
            return
        if not attachment.queued and not session.turn(request.connection).locked():
            waiting = attachment.abort(session.journal)
            request.after_error = lambda: attachment.deliver(waiting)

    def _abort(self, request: IncomingRequest, session: Session, attachment: Attachment) -> None:
        if not attachment.active:
            session.detach(request.connection)
            return
        waiting = attachment.abort(session.journal)
        if attachment.queued:
            attachment.hold(session.children)
        request.after_error = lambda: attachment.deliver(waiting)

    async def _drop(self, session: Session) -> None:
        """A resume opened the session and failed: without this, it would be owned here for nobody."""
        async with self._lock(session.session_id):
            if session.unused:
                await session.close()


async def _check_owner(session: Session) -> None:
    """Raise :class:`SessionInUse` while another process works on the session."""
    try:
        await session.backend.own(patience=GLANCE)
    except SessionInUse:
        raise
    except SayagainError as error:
        # What cannot be loaded may still be deleted.
        logger.info("a session was not loaded before its end: %s", type(error).__name__)


def _kept(what: Sequence[str]) -> Params:
    """It is active in this process, and goes on as it was opened (RES-12)."""
    title = f"The session keeps the {' and '.join(what)} that it was opened with"
    return notice_from("sayagain", "warning", title, "It is active already. Close it first to resume it with others.")


def _options(session: Session) -> dict[str, Any]:
    """``configOptions`` of a set-up response; left out while they are not known (RPC-6)."""
    options = session.backend.options()
    return {"configOptions": [dict(option) for option in options]} if options else {}
