"""One connection to an agent: requests with limits, and what comes in handed to its receiver."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, cast

import anyio

from sayagain.client.errors import AgentFault, AgentGarbled, AgentGone, AgentSilent
from sayagain.client.process import ProcessTransport
from sayagain.connection import (
    Call,
    Connection,
    ConnectionLost,
    Dispatcher,
    IncomingRequest,
    Outcome,
    PeerError,
    Reply,
)
from sayagain.legible import excerpt, plain
from sayagain.protocol import jsonrpc
from sayagain.transports import Transport

__all__ = ["MAX_GARBAGE", "Link", "LinkCall", "LinkLost", "Receiver"]

logger = logging.getLogger(__name__)

MAX_GARBAGE: Final = 1000
"""Lines that are no JSON-RPC before the connection is given up. A few are forgiven: chatty dependencies are common
(anomalyco/opencode#13634)."""

_RESUME: Final = "session/resume"

_EXCERPT: Final = 120
"""Bytes of the first output that an error may show."""


def _nothing() -> None:
    pass


class LinkLost(Exception):
    """The connection ended with a request unanswered."""


class Receiver(Protocol):
    """Gets what the agent sends by itself, in the order of the wire, by plain calls."""

    def updated(self, link: Link, session_id: str, update: Mapping[str, Any]) -> None:
        """A ``session/update``."""
        ...

    def missed(self, link: Link, session_id: str | None) -> None:
        """What may have been an update could not be read; of which session, if that is known."""
        ...

    def asked(self, request: IncomingRequest) -> Outcome:
        """A request of the agent's."""
        ...

    def told(self, method: str, params: Mapping[str, Any]) -> Awaitable[None] | None:
        """Any other notification; what is returned is awaited beside all else."""
        ...


class _Heard:
    """Passes a transport on and remembers when the agent was heard, and how it began."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.last = anyio.current_time()
        self.first = b""

    async def receive(self) -> bytes:
        data = await self._transport.receive()
        self.last = anyio.current_time()
        if len(self.first) < _EXCERPT:
            self.first = (self.first + data)[:_EXCERPT]
        return data

    async def send(self, data: bytes) -> None:
        await self._transport.send(data)

    async def aclose(self) -> None:
        await self._transport.aclose()


class LinkCall(Call):
    """A request whose wait can be given up without giving up the request.

    ``over`` is called in the place of the answer among all that comes: before anything later on the wire is looked at,
    while a task that waits for the answer runs after it.
    """

    def __init__(self, withdraw: Callable[[Call], None], over: Callable[[], None]) -> None:
        super().__init__(withdraw)
        self.answered = anyio.Event()
        self._over = over

    def end(self, outcome: Any) -> None:
        super().end(outcome)
        if not self.answered.is_set():
            self.answered.set()
            self._over()


@dataclass(slots=True)
class _Resume:
    """A ``session/resume`` that is not answered."""

    call: LinkCall
    given_up: bool = False
    heard: float = 0.0
    """When it was given up, or an update of its session or of a child came later."""
    children: set[str] = field(default_factory=set[str])
    """Announced since it was sent, by its session or by one of these."""


class _Connection(Connection):
    """Does not answer lines that are no JSON-RPC: an agent's stray output is not helped by errors."""

    garbage = 0
    answered = False
    """Whether the agent has answered anything at all."""

    def __init__(
        self,
        transport: Transport,
        dispatcher: Dispatcher,
        *,
        flooded: Callable[[], None],
        missed: Callable[[], None],
    ) -> None:
        super().__init__(transport, dispatcher)
        self._flooded = flooded
        self._missed = missed

    def begin_call(self, method: str, params: Mapping[str, Any], over: Callable[[], None]) -> LinkCall:
        return self._begin(LinkCall(self._withdraw, over), method, params)

    def _take(self, message: jsonrpc.Message, reply: Reply) -> None:
        if isinstance(message, jsonrpc.Invalid):
            self.garbage += 1
            if self.garbage == 1:
                logger.warning("the agent sends what is no JSON-RPC: %s", message.error)
            if self.garbage == MAX_GARBAGE:
                self._flooded()
            if not message.stray:
                self._missed()
        else:
            self.answered = self.answered or isinstance(message, jsonrpc.Response)
            super()._take(message, reply)

    def _skipped(self, item: jsonrpc.Invalid) -> None:
        self._missed()


class Link:
    """Run :meth:`run` in a task; it returns when the connection is over. ``fault`` then says why."""

    def __init__(self, transport: Transport, receiver: Receiver, *, patience: float) -> None:
        self._transport = transport
        self._receiver = receiver
        self._patience = patience
        self._heard = _Heard(transport)
        self._connection = _Connection(
            self._heard, self, flooded=self._garbled, missed=partial(receiver.missed, self, None)
        )
        self._scope = anyio.CancelScope()
        self._resumes: dict[str, _Resume] = {}
        """By session id."""
        self.ended = anyio.Event()
        self.fault: AgentFault | None = None

    async def run(self) -> None:
        """Serve until the agent ends the connection or :meth:`end` does."""
        try:
            with self._scope:
                await self._connection.serve()
            if self.fault is None:
                self.fault = AgentGone(await self._why())
        finally:
            self.ended.set()
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    def end(self, fault: AgentFault | None = None) -> None:
        """End the connection; the first reason counts."""
        self.fault = self.fault or fault or AgentGone("the connection was closed")
        self._scope.cancel()

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return not self._connection.is_closed and not self._scope.cancel_called

    def begin(self, method: str, params: Mapping[str, Any]) -> LinkCall:
        """Queue a request at once, in the order of the calls."""
        return self._connection.begin_call(method, params, _nothing)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification."""
        self._connection.notify(method, params)

    async def greet(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """``initialize``. What prints something else and then nothing for a third of the limit is no agent.

        Raises as :meth:`call` does.
        """
        call = self.begin("initialize", params)
        silence = self._patience / 3
        until = anyio.current_time() + self._patience
        while (left := until - anyio.current_time()) > 0:
            garbage = self._connection.garbage
            if garbage and self._silent_for() >= silence:
                break
            with anyio.move_on_after(min(left, silence - self._silent_for() if garbage else silence)):
                return await self._result(call)
        self.end(self._garbage() if self._connection.garbage else self._silence("initialize"))
        raise LinkLost

    async def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A request that is answered soon.

        Raises :class:`~sayagain.connection.PeerError` and :class:`LinkLost`. When the limit is over, the link ends.
        """
        if method == _RESUME:
            return await self.resume(params)
        return await self._answer(self.begin(method, params), method)

    async def resume(
        self, params: Mapping[str, Any], *, begun: Callable[[], None] = _nothing, over: Callable[[], None] = _nothing
    ) -> Mapping[str, Any]:
        """``session/resume``. As long as anything is heard, it may take its time.

        The updates between ``begun`` and ``over`` belong to this request and to no other of its session; a marker does
        not say whose it is (spec of the marker, FAQ). So it waits until earlier ones are answered, which an agent does
        exactly once, cancelled or not (CAN-5); those too that were given up, which cancels them (CAN-6).

        Raises as :meth:`call` does; what was given up has the same limit.
        """
        session_id: object = params.get("sessionId")
        if not isinstance(session_id, str):
            # Of the application's own making. The agent refuses it.
            return await self._answer(self.begin(_RESUME, params), _RESUME)
        await self._vacate(session_id)

        def end() -> None:
            self._resumes.pop(session_id, None)
            over()

        begun()
        call = self._connection.begin_call(_RESUME, params, end)
        resume = _Resume(call)
        if not call.answered.is_set():
            self._resumes[session_id] = resume
        try:
            return await self._answer(call, _RESUME, streams=True)
        finally:
            if not call.answered.is_set():
                resume.given_up, resume.heard = True, anyio.current_time()
                self.notify("$/cancel_request", {"requestId": call.id})

    async def _vacate(self, session_id: str) -> None:
        """Wait until no resume of the session is unanswered.

        One that was not given up is limited by its caller, one that was is limited here: when nothing of its session
        was heard for ``patience`` seconds, the agent is taken to be stuck, and the link ends.
        """
        while (resume := self._resumes.get(session_id)) is not None:
            left = self._patience
            if resume.given_up and (left := resume.heard + self._patience - anyio.current_time()) <= 0:
                self.end(self._silence(f"a cancelled {_RESUME}"))
                raise LinkLost
            with anyio.move_on_after(left):
                await resume.call.answered.wait()

    async def _answer(self, call: LinkCall, method: str, *, streams: bool = False) -> Mapping[str, Any]:
        while True:
            with anyio.move_on_after(self._patience) as limit:
                return await self._result(call)
            assert limit.cancelled_caught
            if streams and self._silent_for() < self._patience:
                continue
            self.end(self._silence(method))
            raise LinkLost

    async def wait(self, call: LinkCall) -> Mapping[str, Any]:
        """The answer to a request that may wait long, such as a held prompt: for as long as the agent lives.

        Whether it does is asked when nothing has been heard for a while.
        """
        while True:
            garbage = self._connection.garbage
            with anyio.move_on_after(self._patience):
                return await self._result(call)
            if self._silent_for() >= self._patience:
                # Any answer will do, and an unknown method has no effects.
                with suppress(PeerError):
                    await self.call("_sayagain/ping", {})
            if self._connection.garbage > garbage:
                # The answer may have been among it; with a key it can be asked for again.
                self.end(AgentGarbled("the agent sends what is no JSON-RPC, and no answer"))
                raise LinkLost

    async def _result(self, call: LinkCall) -> Mapping[str, Any]:
        try:
            # Not ``call.result()``, which cancels the request with the wait.
            await call.answered.wait()
            return await call.result()
        except ConnectionLost as error:
            raise LinkLost from error

    def _silent_for(self) -> float:
        return anyio.current_time() - self._heard.last

    def _garbled(self) -> None:
        self.end(self._garbage())

    def _garbage(self) -> AgentGarbled:
        said = excerpt(plain(self._heard.first.decode("utf-8", "replace")))
        why = f"the agent speaks no JSON-RPC; its output begins with {said!r}"
        # One that has answered once is an agent, and may do better in another life.
        return AgentGarbled(why, for_good=not self._connection.answered)

    def _silence(self, method: str) -> AgentSilent:
        return AgentSilent(f"{method} was not answered within {self._patience:g} s")

    async def _why(self) -> str:
        if isinstance(self._transport, ProcessTransport):
            return await self._transport.epitaph()
        return "the agent closed the connection"

    # The dispatcher.

    def request(self, request: IncomingRequest) -> Outcome:
        """The agent asks."""
        if request.method == "session/update":
            # No request is one; what it says reaches nobody.
            session_id: object = request.params.get("sessionId")
            self._receiver.missed(self, session_id if isinstance(session_id, str) else None)
        return self._receiver.asked(request)

    def notification(self, connection: Connection, method: str, params: Mapping[str, Any]) -> Awaitable[None] | None:
        """The agent tells; what is malformed or unknown is ignored (RPC-3)."""
        if method != "session/update":
            return self._receiver.told(method, params)
        session_id, update = params.get("sessionId"), params.get("update")
        if isinstance(session_id, str) and isinstance(update, dict):
            self._hear(session_id, cast("dict[str, Any]", update))
            self._receiver.updated(self, session_id, cast("dict[str, Any]", update))
        else:
            self._receiver.missed(self, session_id if isinstance(session_id, str) else None)
        return None

    def _hear(self, session_id: str, update: Mapping[str, Any]) -> None:
        """The agent works on the resume that this is of, be it on the history of a child."""
        for root, resume in self._resumes.items():
            if session_id == root or session_id in resume.children:
                resume.heard = self._heard.last
                child: object = update.get("sessionId")
                if update.get("sessionUpdate") == "subagent_update" and isinstance(child, str):
                    resume.children.add(child)

    def closed(self, connection: Connection) -> None:
        """The connection is gone; :meth:`run` is about to return."""
