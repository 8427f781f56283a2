"""Lines in, lines out, and the order of both.

The reader hands every message over in the order of the wire, and a handler's plain part runs before the next message
is looked at; only what it returns to be awaited runs beside others. So a reservation that is made before the first
``await`` precedes everything that was written later (design section 4).

One writer keeps the order in which lines were produced. Producers of volume call :meth:`Connection.drained` between
lines; all others just queue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.abc

from sayagain.connection.calls import Call, ConnectionLost, peer_error
from sayagain.connection.requests import Deferred, IncomingRequest, Outcome, Reply, Result
from sayagain.errors import InvalidRequest, RequestCancelled, SayagainError, to_wire
from sayagain.protocol import jsonrpc
from sayagain.transports import ClosedTransport, Transport

__all__ = ["HIGH_WATER", "READ_WATER", "Connection", "Dispatcher"]

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Call)

HIGH_WATER: Final = 1 << 20
"""Queued bytes above which volume producers wait: what a replay may hold in memory for a client that reads slowly."""

READ_WATER: Final = 8 * HIGH_WATER
"""Queued bytes above which nothing more is read: a client that asks and asks without reading its answers waits too.
Well above :data:`HIGH_WATER`, so that a slow client's ``$/cancel_request`` is read while its replay waits."""

LAST_WORDS: Final = 1.0
"""Seconds without a write after the peer ended its side. Answers to ``printf … | sayagain`` leave at once; a client
that neither reads nor closes must not keep the process alive."""


class Dispatcher(Protocol):
    """Serves what comes in. All three are plain calls: what takes time is returned to be awaited."""

    def request(self, request: IncomingRequest) -> Outcome:
        """Begin to serve a request; errors raised here or by the awaitable become the error answer."""
        ...

    def notification(self, connection: Connection, method: str, params: Mapping[str, Any]) -> Awaitable[None] | None:
        """Take a notification; what it raises is logged, since nothing can answer it."""
        ...

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        ...


class Connection:
    """JSON-RPC over one transport. :meth:`serve` runs it to its end.

    ``answers_late``: requests under way are answered though the peer ended its side. A client may close its side and
    read on, while of an agent that is gone nobody reads an answer.
    """

    def __init__(self, transport: Transport, dispatcher: Dispatcher, *, answers_late: bool = False) -> None:
        self._transport = transport
        self._dispatcher = dispatcher
        self._decoder = jsonrpc.Decoder()
        self._incoming: dict[int | str, IncomingRequest] = {}
        self._outgoing = jsonrpc.PendingRequests[Call]()
        self._begun: deque[tuple[IncomingRequest, Awaitable[Result | Deferred], anyio.CancelScope]] = deque()
        self._answers_late = answers_late
        self._working = 0
        self._queue: list[bytes] = []
        self._queued = 0
        self._wake = anyio.Event()
        self._below = anyio.Event()
        self._closed = False
        self._tasks: anyio.abc.TaskGroup | None = None

    @property
    def is_closed(self) -> bool:
        """Whether lines can no longer reach the client."""
        return self._closed

    async def serve(self) -> None:
        """Read and dispatch until the client closes or the transport breaks; then flush what can be flushed."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._write)
                await self._read()
                await self._say_last_words()
                self._close()
                self._tasks.cancel_scope.cancel()
        finally:
            self._close()

    def abandon(self) -> None:
        """End it from this side, without the last words: for a client that does not read them."""
        self._close()
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    # Outgoing.

    def update(self, session_id: str, update: Mapping[str, Any]) -> None:
        """Queue a ``session/update``."""
        self._send(jsonrpc.encode_notification("session/update", {"sessionId": session_id, "update": update}))

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue any other notification."""
        self._send(jsonrpc.encode_notification(method, params))

    def begin_request(self, method: str, params: Mapping[str, Any]) -> Call:
        """Queue a request of ours, in its place among the updates; await ``call.result()`` for the answer."""
        return self._begin(Call(self._withdraw), method, params)

    def _begin(self, call: C, method: str, params: Mapping[str, Any]) -> C:
        call.id = self._outgoing.add(call)
        self._send(jsonrpc.encode_request(call.id, method, params))
        if self._closed:
            call.end(ConnectionLost("the connection is closed"))
        return call

    def _withdraw(self, call: Call) -> None:
        if self._outgoing.resolve(call.id) is not None:
            self.notify("$/cancel_request", {"requestId": call.id})

    @property
    def is_full(self) -> bool:
        """Whether :meth:`drained` would wait."""
        return self._queued > HIGH_WATER and not self._closed

    async def drained(self, limit: int = HIGH_WATER) -> None:
        """Wait until ``limit`` bytes wait at most: a slow client slows its producer, and memory is bounded (I11)."""
        while self._queued > limit and not self._closed:
            await self._below.wait()

    async def _say_last_words(self) -> None:
        """Until all is written, as long as something is: a request that was deferred may take as long as a turn."""
        while not self._closed and (self._queued or (self._answers_late and self._working)):
            with anyio.move_on_after(LAST_WORDS) as silence:
                await self._below.wait()
            if silence.cancelled_caught:
                return

    def _send(self, line: bytes) -> None:
        if self._closed:
            return
        if not self._queue:
            self._wake.set()
        self._queue.append(line)
        self._queued += len(line)

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                while self._queue:
                    lines, self._queue = self._queue, []
                    await self._transport.send(b"".join(lines))
                    self._queued = sum(map(len, self._queue))
                    self._below.set()
                    self._below = anyio.Event()
        except ClosedTransport:
            # The reader sees the end too, or has: a client may close one direction first.
            logger.info("the client no longer reads")
            self._close()

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.clear()
        self._queued = 0
        self._below.set()
        for call in self._outgoing.drain():
            call.end(ConnectionLost("the connection ended"))
        self._dispatcher.closed(self)

    # Incoming.

    async def _read(self) -> None:
        assert self._tasks is not None
        while True:
            try:
                data = await self._transport.receive()
            except ClosedTransport:
                data = b""
            for message in self._decoder.feed(data) if data else self._decoder.eof():
                if self._closed:
                    return
                if isinstance(message, jsonrpc.Batch):
                    self._take_batch(message)
                else:
                    self._take(message, self._send)
                # Up to their first wait, requests are served in the order of the wire; trio shuffles new tasks.
                while self._begun:
                    await self._tasks.start(self._finish, *self._begun.popleft())
            if not data:
                return
            await self.drained(READ_WATER)

    def _take(self, message: jsonrpc.Message, reply: Reply) -> None:
        match message:
            case jsonrpc.Request():
                self._request(message, reply)
            case jsonrpc.Notification():
                self._notification(message)
            case jsonrpc.Response():
                if (call := self._outgoing.resolve(message.id)) is not None:
                    call.end(message.result if message.error is None else peer_error(message.error))
            case jsonrpc.Invalid():
                if message.answered:
                    reply(jsonrpc.encode_error(message.id, to_wire(message.error)))

    def _take_batch(self, batch: jsonrpc.Batch) -> None:
        """Served entry by entry; the answers are written as one array when all are there (RPC-8)."""
        replies = jsonrpc.BatchReply(batch)

        def collect(position: int, line: bytes) -> None:
            replies.add(position, line)
            if replies.complete:
                self._send(replies.encode() or b"")

        if replies.complete and (line := replies.encode()) is not None:
            self._send(line)
        for position, item in enumerate(batch.items):
            # What is invalid was answered above, or waits in the array already.
            if isinstance(item, jsonrpc.Invalid):
                self._skipped(item)
            else:
                self._take(item, partial(collect, position))

    def _skipped(self, item: jsonrpc.Invalid) -> None:
        """The place of an invalid entry among the others of its batch."""

    def _request(self, message: jsonrpc.Request, reply: Reply) -> None:
        if message.id in self._incoming:
            reply(
                jsonrpc.encode_error(message.id, to_wire(InvalidRequest("a request with this id is not answered yet")))
            )
            return
        request = IncomingRequest(self, message.id, message.method, message.params, reply)
        self._incoming[message.id] = request
        try:
            outcome = self._dispatcher.request(request)
        except Exception as error:  # noqa: BLE001 - the one boundary: every error is answered
            self._failed(request, error)
            return
        if isinstance(outcome, Deferred):
            return
        if isinstance(outcome, Mapping):
            request.respond(outcome)
            return
        scope = anyio.CancelScope()
        # Set before the task runs: the cancellation may be the next line of the same read.
        if request.on_cancel is None:
            request.on_cancel = scope.cancel
        self._begun.append((request, outcome, scope))

    async def _finish(
        self,
        request: IncomingRequest,
        outcome: Awaitable[Result | Deferred],
        scope: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None],
    ) -> None:
        self._working += 1
        task_status.started()
        try:
            with scope:
                result = await outcome
                if isinstance(result, Deferred):
                    return
                request.respond(result)
                return
        except Exception as error:  # noqa: BLE001 - the one boundary: every error is answered
            self._failed(request, error)
            return
        finally:
            self._working -= 1
            if not self._working:
                self._below.set()
                self._below = anyio.Event()
        request.fail(RequestCancelled("cancelled by its sender"))

    def _failed(self, request: IncomingRequest, error: Exception) -> None:
        if not isinstance(error, SayagainError):
            logger.exception("%s failed", request.method)
        request.fail(error)

    def forget(self, request: IncomingRequest) -> None:
        """The request's id is free again."""
        if self._incoming.get(request.id) is request:
            del self._incoming[request.id]

    def _notification(self, message: jsonrpc.Notification) -> None:
        if message.method == "$/cancel_request":
            self._cancel(message.params.get("requestId"))
            return
        try:
            rest = self._dispatcher.notification(self, message.method, message.params)
        except Exception as error:  # noqa: BLE001 - a notification has no answer
            self._dropped(message.method, error)
            return
        if rest is not None:
            assert self._tasks is not None
            self._tasks.start_soon(self._run_notification, message.method, rest)

    async def _run_notification(self, method: str, rest: Awaitable[None]) -> None:
        try:
            await rest
        except Exception as error:  # noqa: BLE001 - a notification has no answer
            self._dropped(method, error)

    def _dropped(self, method: str, error: Exception) -> None:
        if isinstance(error, SayagainError):
            logger.warning("notification %s dropped: %s", method, error)
        else:
            logger.exception("notification %s failed", method)

    def _cancel(self, request_id: object) -> None:
        """An id that never came, or that is answered, is ignored (CAN-5). ``True == 1``, so types are compared too."""
        if isinstance(request_id, bool) or not isinstance(request_id, int | str):
            return
        request = self._incoming.get(request_id)
        if request is not None and request.on_cancel is not None:
            request.on_cancel()
