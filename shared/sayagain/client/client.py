"""The client: one agent, reached as often as needed, and its sessions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.client.errors import (
    AgentFault,
    AgentFloods,
    AgentGone,
    OutcomeUnknown,
    ResumeFailed,
)
from sayagain.client.events import Moved, Reconnected, Update
from sayagain.client.inbox import Inbox
from sayagain.client.link import Link, LinkLost
from sayagain.client.moving import find_home, made_id
from sayagain.client.outbox import Outbox
from sayagain.client.prompts import Fate, fate_of
from sayagain.client.reach import Connector, Reach
from sayagain.client.replay import Replay, ReplayTracker, empty_replay, failed_replay
from sayagain.client.retries import Retries
from sayagain.client.session import Session
from sayagain.connection import IncomingRequest, Outcome, PeerError
from sayagain.errors import MethodNotFound
from sayagain.fault_points import Point
from sayagain.retry import RETRY, RetryClass

__all__ = ["Client", "Handler", "Listener"]

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers a request of the agent's: params in, result out."""

Listener: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Hears a notification of the agent's: its params."""

Params: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class Client:
    """Made by :func:`~sayagain.client.connect` and :func:`~sayagain.client.with_retries`."""

    def __init__(
        self,
        connector: Connector,
        outbox: Outbox,
        *,
        retries: Retries | None,
        handlers: Mapping[str, Handler],
        listeners: Mapping[str, Listener],
        info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        patience: float,
        max_unread: int,
    ) -> None:
        self.outbox = outbox
        self.retries = retries
        self._handlers = handlers
        self._listeners = listeners
        self._patience = patience
        self._inbox = Inbox(max_unread)
        self._changed = anyio.Event()
        self._tasks: anyio.abc.TaskGroup
        self._reach = Reach(
            connector,
            outbox,
            self,
            hello={"info": info, "capabilities": capabilities},
            retries=retries,
            patience=patience,
            begun=self._begun,
            changed=self._change,
        )

    @property
    def agent(self) -> Mapping[str, Any]:
        """The agent's answer to ``initialize``: ``info``, ``capabilities``, ``authMethods``."""
        return self._reach.agent

    @property
    def fault(self) -> AgentFault | None:
        """Why the agent is lost for good; ``None`` while it is reached or tried."""
        return self._reach.fault

    # Sessions.

    async def new_session(self, cwd: str, **setup: Any) -> Session:
        """A new session in an absolute directory; ``setup`` are further params (``mcpServers``, …).

        When its answer is lost the request is not sent again (:class:`OutcomeUnknown`): an unused session may be left.
        """
        link, answer = await self._request("session/new", {**setup, "cwd": cwd})
        session = Session(self, made_id(answer), cwd, setup)
        # In the outbox first: without this row a lost first prompt could not be told from a deleted session.
        await self.outbox.opened(session.session_id, cwd)
        self._adopt(session, link, answer)
        return session

    async def resume(
        self, session_id: str, cwd: str, *, replay: bool = False, **setup: Any
    ) -> tuple[Session, Replay | None]:
        """A stored session; ``replay`` sends all its history first, to the stream and as a value.

        On return every update that the agent sent before its response is in the session's stream, in order. Raises
        :class:`~sayagain.client.errors.ResumeFailed`, which has the replay as far as it came.

        With retries it is asked again after a lost connection and after an error that may pass (-32603), since a resume
        is safe to repeat. A session that the application did not have before has the updates of the last attempt alone.
        """
        session = self._inbox.sessions.get(session_id) or Session(self, session_id, cwd, setup)
        session.cwd, session.setup = cwd, setup
        # Two markers on one session could not be told apart (spec of the marker, FAQ).
        async with session.resuming:
            self._inbox.expect(session)
            try:
                result = await self._resume(session, replay=replay)
            except BaseException:
                if not session.known:
                    self.forget(session)
                raise
        return session, result

    async def list_sessions(self, cwd: str | None = None) -> Sequence[Mapping[str, Any]]:
        """All stored sessions (``sessionId``, ``cwd``, ``title``, ``updatedAt``), of one directory or of all."""
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        seen = set[str]()
        while True:
            params = ({} if cwd is None else {"cwd": cwd}) | ({} if cursor is None else {"cursor": cursor})
            answer = await self.request("session/list", params)
            page: object = answer.get("sessions")
            rows = cast("list[object]", page) if isinstance(page, list) else []
            found += [cast("Mapping[str, Any]", row) for row in rows if isinstance(row, dict)]
            cursor = answer.get("nextCursor")
            # An agent that turns in circles would never end.
            if not isinstance(cursor, str) or cursor in seen:
                return found
            seen.add(cursor)

    async def delete_session(self, session_id: str) -> None:
        """Delete a stored session; its pending prompts stay in the outbox."""
        await self.request("session/delete", {"sessionId": session_id})

    async def request(self, method: str, params: Params, session: Session | None = None) -> Mapping[str, Any]:
        """Any request but ``session/prompt``; ``params`` may be made anew for each attempt.

        With ``session`` it waits until that is active on the connection.

        With retries, one whose answer was lost is sent again if its retry class is "safe"; else
        :class:`~sayagain.client.errors.OutcomeUnknown` is raised.
        """
        _, answer = await self._request(method, params, session)
        return answer

    async def _request(
        self, method: str, params: Params, session: Session | None = None
    ) -> tuple[Link, Mapping[str, Any]]:
        while True:
            link = await self.linked(session)
            try:
                answer = await link.call(method, params() if callable(params) else params)
            except LinkLost:
                await link.ended.wait()
                rule = RETRY.get(method)
                safe = rule is not None and rule.retry_class is RetryClass.SAFE
                if self.retries is None and safe:
                    raise link.fault or AgentGone("the connection ended") from None
                if not safe:
                    raise OutcomeUnknown(method, rule) from link.fault
            except PeerError:
                self.progress()
                raise
            else:
                self.progress()
                return link, answer

    # What sessions need.

    async def linked(self, session: Session | None = None) -> Link:
        """An open connection, on which the session is active; raises when there will be none."""
        while True:
            if self.fault is not None:
                raise self.fault
            if session is not None and session.broken is not None:
                raise session.broken
            link = self._reach.link
            if link is not None and link.is_open and (session is None or session.attached is link):
                return link
            await self._changed.wait()

    async def reattach(self, session: Session) -> None:
        """The agent says that the session is not active: resume it."""
        if self._reach.link is not None and session.attached is self._reach.link:
            session.attached = None
            self._reach.tasks.start_soon(self._attach, session, self._reach.link)

    def progress(self) -> None:
        """The agent does real work: the count of failures starts anew."""
        self._reach.progress()

    def read(self, weight: int) -> None:
        """The application has read what weighs so much."""
        self._inbox.read(weight)

    def forget(self, session: Session) -> None:
        """Its updates are of no interest any more."""
        self._inbox.forget(session)

    def _adopt(self, session: Session, link: Link, answer: Mapping[str, Any]) -> None:
        """The session was made on this connection."""
        self._inbox.expect(session)
        self._activate(session, link, answer)
        self._inbox.take_stray()

    def _activate(self, session: Session, link: Link, answer: Mapping[str, Any]) -> None:
        session.offers = answer
        session.attached = link
        session.broken = None
        if not session.known:
            session.known = True
            self._tasks.start_soon(session.send_prompts)
        if self._reach.link is not None and self._reach.link is not link:
            # The answer was read after its connection was lost.
            self._reach.tasks.start_soon(self._attach, session, self._reach.link)
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        for session in self._inbox.sessions.values():
            session.change()

    # Resuming.

    async def _resume(self, session: Session, *, replay: bool) -> Replay | None:
        looks, refusals = 0, 0
        part: Replay | None = None
        while True:
            if not session.known:
                # Nobody has read it yet: what a failed attempt brought would be told twice.
                for event in session.pending_events():
                    if not isinstance(event, Update):
                        self._inbox.deliver(session, event)
            tracker = session.tracker = ReplayTracker(session.session_id) if replay else None
            try:
                link = await self.linked()
            except AgentFault as fault:
                raise ResumeFailed(session.session_id, fault, failed_replay(tracker, part)) from fault
            try:
                answer = await self._ask_resume(session, link, replay=replay)
            except LinkLost:
                part = failed_replay(tracker, part)
                if self.retries is None:
                    await self._ended()
                    lost = self.fault or AgentGone("the connection ended")
                    raise ResumeFailed(session.session_id, lost, part) from lost
            except PeerError as error:
                part = failed_replay(tracker, part)
                if self.retries is None:
                    raise ResumeFailed(session.session_id, error, part) from error
                if error.code != -32002:
                    refusals += 1
                    if fate_of(error) is not Fate.AGAIN or refusals >= self.retries.attempts:
                        raise ResumeFailed(session.session_id, error, part) from error
                    # It was answered: no marker of it can come among those of the next one.
                    await anyio.sleep(self.retries.pause(refusals))
                    continue
                looks += 1
                if looks == 1:
                    await self._outlive(session)
                    continue
                try:
                    moved = await self._move(session, link)
                except LinkLost:
                    continue
                if not moved:
                    raise ResumeFailed(session.session_id, error, part) from error
                if session.attached is link:
                    return None if tracker is None else empty_replay(session.session_id)
                looks, part = 0, None
            else:
                self._activate(session, link, answer)
                return None if tracker is None else tracker.finish(succeeded=True)
            finally:
                session.tracker = None

    async def _ended(self) -> None:
        while self.fault is None:
            await self._changed.wait()

    async def _ask_resume(self, session: Session, link: Link, *, replay: bool) -> Mapping[str, Any]:
        params = {**session.setup, "sessionId": session.session_id, "cwd": session.cwd}
        if replay:
            params["replayFrom"] = {"type": "start"}
        return await link.call("session/resume", params, streams=True)

    async def _attach(self, session: Session, link: Link) -> None:
        """Resume a session that the application has, on a new connection; errors end in ``session.broken``."""
        async with session.resuming:
            if session.attached is link or not self._inbox.has(session):
                return
            retries = self.retries or Retries()
            refusals = 0
            while link.is_open:
                try:
                    answer = await self._ask_resume(session, link, replay=False)
                    self._activate(session, link, answer)
                    self._inbox.deliver(session, Reconnected(session.session_id))
                    return
                except LinkLost:
                    return
                except PeerError as error:
                    refusals += 1
                    gone = error.code == -32002
                    if gone and refusals > 1:
                        try:
                            if await self._move(session, link):
                                if session.attached is link:
                                    return
                                refusals = 0
                                continue
                        except LinkLost:
                            return
                        except ResumeFailed as refused:
                            self._break(session, refused)
                            return
                    hopeless = fate_of(error) in (Fate.NEVER, Fate.USER)
                    if hopeless or (gone and refusals > 1) or refusals >= retries.attempts:
                        failed = ResumeFailed(session.session_id, error, None)
                        failed.__cause__ = error
                        self._break(session, failed)
                        return
                    if gone:
                        await self._outlive(session)
                    else:
                        await anyio.sleep(retries.pause(refusals))

    def _break(self, session: Session, error: ResumeFailed) -> None:
        session.broken = error
        self._change()

    async def _outlive(self, session: Session) -> None:
        """Before a second look at a session that the agent does not know: who could still store its first prompt is
        gone then. The agent of a killed client lives a moment longer, and a first look during that proves nothing.
        """
        if await self.outbox.unsettled(session.session_id):
            await self.outbox.take(session.session_id, patience=self._patience)
        await anyio.sleep((self.retries or Retries()).pause(2))

    async def _move(self, session: Session, link: Link) -> bool:
        """The agent does not know the session: go on in another one, if nothing was ever confirmed in it.

        True when the session has a new id; it is still to be resumed if another client was quicker, else active. Raises
        as :func:`~sayagain.client.moving.find_home` does.
        """
        old = session.session_id
        home = await find_home(self.outbox, link, session)
        if home is None:
            return False
        fault_points.passing(Point.CLIENT_MOVED)
        self.forget(session)
        session.rename(home.session_id)
        self._inbox.expect(session)
        keys = [prompt.key for prompt in await self.outbox.prompts(home.session_id)]
        logger.info("session %s was never stored; %s has its %d prompts", old, home.session_id, len(keys))
        self._inbox.deliver(session, Moved(old, home.session_id, keys))
        if home.answer is not None:
            self._activate(session, link, home.answer)
        return True

    # The connection.

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a connection until the client ends, or it is lost for good."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            try:
                await self._reach.run()
            finally:
                self._change()

    def _begun(self, link: Link) -> None:
        for session in self._inbox.sessions.values():
            if session.known:
                self._reach.tasks.start_soon(self._attach, session, link)

    # What the agent sends.

    def updated(self, link: Link, session_id: str, update: Mapping[str, Any]) -> None:
        """A ``session/update``, in the order of the wire."""
        self._inbox.take(session_id, update)
        if self._inbox.full and link.is_open:
            limit = f"{self._inbox.limit >> 20} MiB"
            wait = f"more than {limit} of updates wait to be read: the application does not keep up"
            link.end(AgentFloods(wait, for_good=True))

    def asked(self, request: IncomingRequest) -> Outcome:
        """A request of the agent's: the application's handler answers it."""
        handler = self._handlers.get(request.method)
        if handler is None:
            raise MethodNotFound(request.method)
        return handler(request.params)

    def told(self, method: str, params: Mapping[str, Any]) -> Awaitable[None] | None:
        """Another notification of the agent's: the application's listener hears it."""
        listener = self._listeners.get(method)
        return None if listener is None else listener(params)
