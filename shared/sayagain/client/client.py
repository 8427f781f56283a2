"""The client: one agent, reached as often as needed, and its sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import anyio
import anyio.abc

from sayagain.client.errors import AgentFault, AgentFloods, AgentGone, OutcomeUnknown, ResumeFailed
from sayagain.client.events import Disconnected
from sayagain.client.inbox import Inbox
from sayagain.client.link import Link, LinkLost
from sayagain.client.moving import Elsewhere, made_id
from sayagain.client.outbox import Outbox
from sayagain.client.reach import Connector, Reach
from sayagain.client.replay import UNREADABLE, Replay
from sayagain.client.resuming import Resuming
from sayagain.client.retries import Retries
from sayagain.client.session import Session
from sayagain.connection import IncomingRequest, Outcome, PeerError
from sayagain.errors import MethodNotFound
from sayagain.retry import RETRY, RetryClass

__all__ = ["Client", "Handler", "Listener"]

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
        self._inbox = Inbox(max_unread)
        self._resuming = Resuming(self, self._inbox, patience)
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
            lost=self._lost,
            changed=self.change,
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
        with self._inbox.making():
            link, answer = await self._request("session/new", {**setup, "cwd": cwd})
            session_id = made_id(answer)
            # A session is one object, also when the agent has used the id before: two would wait for the same updates.
            session = self._inbox.sessions.get(session_id) or Session(self, session_id, cwd, setup)
            session.cwd, session.setup = cwd, setup
            # In the outbox first: without this row a lost first prompt could not be told from a deleted session.
            await self.outbox.opened(session.session_id, cwd)
            self._inbox.expect(session)
            self.activate(session, link, answer)
            self._inbox.take_stray(session)
            return session

    async def resume(
        self, session_id: str, cwd: str, *, replay: bool = False, **setup: Any
    ) -> tuple[Session, Replay | None]:
        """A stored session; ``replay`` sends all its history first, to the stream and as a value.

        On return every update that the agent sent before its response is in the session's stream, in order. Raises
        :class:`~sayagain.client.errors.ResumeFailed`, which has the replay as far as it came.

        With retries it is asked again after a lost connection and after an error that may pass (-32603), since a resume
        is safe to repeat. A session that the application did not have before has the updates of the last attempt alone.

        Several calls for one session get the same object, and ask one after the other.
        """
        while True:
            session = self._inbox.find(session_id)
            if session is None:
                session = Session(self, session_id, cwd, setup)
                # Before anything is awaited: who asks for it meanwhile has to get the same one.
                self._inbox.expect(session)
            try:
                return session, await self._resuming.resume(session, cwd, setup, replay=replay)
            except Elsewhere:
                continue

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

    def reattach(self, session: Session) -> None:
        """The agent says that the session is not active: resume it."""
        if self._reach.link is not None and session.attached is self._reach.link:
            session.attached = None
            self._reach.tasks.start_soon(self._resuming.attach, session, self._reach.link)

    def progress(self) -> None:
        """The agent does real work: the count of failures starts anew."""
        self._reach.progress()

    def read(self, weight: int) -> None:
        """The application has read what weighs so much."""
        self._inbox.read(weight)

    def forget(self, session: Session) -> None:
        """Its updates are of no interest any more."""
        self._inbox.forget(session)

    def activate(self, session: Session, link: Link, answer: Mapping[str, Any]) -> None:
        """The agent has made or resumed the session on this connection."""
        session.offers = answer
        session.attached = link
        session.broken = None
        if not session.known:
            session.known = True
            self._tasks.start_soon(session.send_prompts)
        if self._reach.link is not None and self._reach.link is not link:
            # The answer was read after its connection was lost.
            self._reach.tasks.start_soon(self._resuming.attach, session, self._reach.link)
        self.change()

    def lose(self, session: Session, failed: ResumeFailed) -> None:
        """The session cannot be resumed: its stream ends with that, and its prompts are kept."""
        session.broken = failed
        # It may be one that the client has no more.
        session.change()
        self.change()

    def change(self) -> None:
        """Something that tasks may wait for has happened."""
        self._changed.set()
        self._changed = anyio.Event()
        for session in self._inbox.sessions.values():
            session.change()

    # The connection.

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a connection until the client ends, or it is lost for good."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            try:
                await self._reach.run()
            finally:
                self.change()

    def _begun(self, link: Link) -> None:
        for session in self._inbox.sessions.values():
            if session.known:
                self._reach.tasks.start_soon(self._resuming.attach, session, link)

    def _lost(self, link: Link) -> None:
        for session in list(self._inbox.sessions.values()):
            if session.known and session.attached is link:
                self._inbox.deliver(session, Disconnected(session.session_id))

    # What the agent sends.

    def updated(self, link: Link, session_id: str, update: Mapping[str, Any]) -> None:
        """A ``session/update``, in the order of the wire."""
        self._inbox.take(session_id, update)
        if self._inbox.full and link.is_open:
            limit = f"{self._inbox.limit >> 20} MiB"
            wait = f"more than {limit} of updates wait to be read: the application does not keep up"
            link.end(AgentFloods(wait, for_good=True))

    def missed(self, link: Link, session_id: str | None) -> None:
        """What may have been an update could not be read."""
        self._inbox.missed(session_id, UNREADABLE)

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
