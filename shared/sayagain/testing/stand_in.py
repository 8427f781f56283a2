"""What all stand-in services share: HTTP on loopback, gates that hold replies, the record of what was asked.

A service derives from :class:`StandIn`; :func:`listening` serves it, one request a connection, so that a stream that
ends, or is cut, is the end of its connection. Nothing here looks at a clock.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict
from itertools import count, takewhile
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import anyio
import h11
from anyio.abc import SocketAttribute, SocketListener, SocketStream

from sayagain.testing.stand_in_script import ApiError, AskedLike, Close, Hold, Piece, Wait

__all__ = [
    "Exchange",
    "StandIn",
    "leading_error",
    "listening",
    "open_listener",
    "pass_holds",
    "run_service",
    "serve_connections",
]

_MAX_BODY: Final = 64 * 1024 * 1024
"""Twice what the real services take: a body beyond it is a bug in the caller."""

AskedT = TypeVar("AskedT", bound=AskedLike)
ScriptT = TypeVar("ScriptT")


class _Gate:
    """Closed until released; while closed, single steps can be granted."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self._open = False
        self._steps = 0
        self._changed = anyio.Event()

    def release(self) -> None:
        self._open = True
        self._wake()

    def close(self) -> None:
        self._open = False
        self.reached = anyio.Event()

    def grant(self, steps: int) -> None:
        self._steps += steps
        self._wake()

    async def wait(self, *, step: bool) -> None:
        self.reached.set()
        while not self._open:
            if step and self._steps:
                self._steps -= 1
                return
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class StandIn(Generic[AskedT]):
    """A running stand-in: what was asked of it, and the gates that hold its replies."""

    def __init__(self, url: str, *, id_seed: str | None = None) -> None:
        self.url = url
        self.requests: list[AskedT] = []
        self._seed = id_seed or secrets.token_hex(6)
        self._numbers = count(1)
        self._gates: dict[str, _Gate] = {}
        self._arrival = anyio.Event()
        self._hang_ups = 0

    def turns(self, text: str) -> list[AskedT]:
        """The turn-starting requests whose newest user input contains ``text``, in order."""
        return [asked for asked in self.requests if asked.kind == "turn" and text in asked.newest_text]

    def count(self, text: str) -> int:
        """How often the model was asked to start on ``text``. An HTTP retry by the runtime counts again."""
        return len(self.turns(text))

    async def asked(self, text: str, times: int = 1) -> AskedT:
        """Wait until the model was asked ``times`` times to start on ``text``; the last of those requests."""
        while len(found := self.turns(text)) < times:
            await self._arrival.wait()
        return found[times - 1]

    async def arrived(self, number: int) -> AskedT:
        """Wait until ``number`` requests of any kind came; the last of those."""
        while len(self.requests) < number:
            await self._arrival.wait()
        return self.requests[number - 1]

    async def hung_up(self, times: int = 1) -> None:
        """Wait until clients have left ``times`` replies before their end, as an interrupted runtime does."""
        while self._hang_ups < times:
            await self._arrival.wait()

    def note_hang_up(self) -> None:
        """Record that a client has left a reply."""
        self._hang_ups += 1
        self._wake()

    def release(self, name: str) -> None:
        """Let every reply that waits at ``name`` go on, now and later."""
        self._gate(name).release()

    def hold(self, name: str) -> None:
        """Close a gate again that was released."""
        self._gate(name).close()

    def step(self, name: str, steps: int = 1) -> None:
        """Let ``steps`` deltas of a gated text pass."""
        self._gate(name).grant(steps)

    async def held(self, name: str) -> None:
        """Wait until a reply has come to the gate."""
        await self._gate(name).reached.wait()

    async def wait_gate(self, wait: Wait) -> None:
        """Wait as a reply does."""
        await self._gate(wait.name).wait(step=wait.step)

    def new_id(self, prefix: str) -> str:
        """An id that no other service has given out."""
        return f"{prefix}_{self._seed}{next(self._numbers):06d}"

    def control(self, name: str, query: Mapping[str, Sequence[str]]) -> Any:
        """What ``/stand-in/NAME`` answers to other processes; ``None`` if there is no such thing."""
        match name, query:
            case "requests", _:
                return [asdict(cast("Any", asked)) for asked in self.requests]
            case "count", {"text": [text]}:
                return {"count": self.count(text)}
            case "release", {"name": [name]}:
                self.release(name)
                return {}
            case _:
                return None

    def note(self, asked: AskedT) -> None:
        """Record a request."""
        self.requests.append(asked)
        self._wake()

    def _wake(self) -> None:
        self._arrival.set()
        self._arrival = anyio.Event()

    def _gate(self, name: str) -> _Gate:
        return self._gates.setdefault(name, _Gate())


class Exchange:
    """One HTTP request, and the ways to answer it."""

    STREAM_HEADERS: ClassVar = [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
        ("connection", "close"),
    ]

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)
        self.method = ""
        self.path = ""
        self.query: Mapping[str, Sequence[str]] = {}
        self.body = b""

    async def read(self) -> None:
        """Take the request; raises what a client that goes away or speaks no HTTP makes."""
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    await self._stream.send(self._http.send(go_on) or b"")
                self._http.receive_data(await self._stream.receive())
            elif isinstance(event, h11.Request):
                target = urlsplit(event.target.decode("ascii", "replace"))
                self.method, self.path = event.method.decode("ascii"), target.path
                self.query = parse_qs(target.query)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MAX_BODY:
                    raise h11.RemoteProtocolError("body too large")
            elif isinstance(event, h11.EndOfMessage):
                self.body = bytes(body)
                return
            else:
                raise anyio.EndOfStream

    def json(self) -> Mapping[str, Any]:
        """The body as an object; empty if it is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    async def answer(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON, or with an empty body for ``None``."""
        body = b"" if value is None else json.dumps(value).encode()
        fields = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        await self._send(h11.Response(status_code=status, headers=[*fields, *(headers or {}).items()]))
        if body:
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def stream(
        self, service: StandIn[AskedT], pieces: Iterable[Piece], headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with server-sent events, waiting at the service's gates."""
        fields = [*self.STREAM_HEADERS, *(headers or {}).items()]
        await self._send(h11.Response(status_code=200, headers=fields))
        for piece in pieces:
            match piece:
                case Wait():
                    await service.wait_gate(piece)
                case Close():
                    return
                case bytes():
                    await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    async def while_there(self, service: StandIn[AskedT], reply: Callable[[], Awaitable[None]]) -> None:
        """Run ``reply``; a client that hangs up (an interrupt) ends it, also one that waits at a gate."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_at_hang_up, service, tasks.cancel_scope)
            # One that is reset may be noticed here first.
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await reply()
            tasks.cancel_scope.cancel()

    async def _cancel_at_hang_up(self, service: StandIn[AskedT], scope: anyio.CancelScope) -> None:
        try:
            while True:
                await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            service.note_hang_up()
            scope.cancel()

    async def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send(data)


async def pass_holds(service: StandIn[AskedT], parts: Sequence[object]) -> None:
    """Wait at every hold among ``parts``."""
    for part in parts:
        if isinstance(part, Hold):
            await service.wait_gate(Wait(part.name))


async def leading_error(service: StandIn[AskedT], parts: Sequence[object]) -> ApiError | None:
    """The HTTP error that a reply is, once the holds before it are passed; one of status 200 is part of a stream."""
    holds = list(takewhile(lambda part: isinstance(part, Hold), parts))
    first = next(iter(parts[len(holds) :]), None)
    if not isinstance(first, ApiError) or first.status == 200:
        return None
    await pass_holds(service, holds)
    return first


async def open_listener(port: int) -> tuple[SocketListener, str]:
    """A listener on 127.0.0.1 and its URL; port 0 takes a free one."""
    addresses = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    listener = cast("SocketListener", addresses.listeners[0])
    return listener, f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"


async def serve_connections(
    listener: SocketListener, handle: Callable[[SocketStream], Coroutine[Any, Any, None]]
) -> None:
    """Give each connection to a ``handle`` of its own, until cancelled; one that comes in that moment is no error.

    ``listener.serve`` waits for a callback that fails when the cancellation was first: asyncio's own for TCP sockets,
    and AnyIO's for UNIX sockets.
    """
    socket = listener.extra(SocketAttribute.raw_socket)
    async with anyio.create_task_group() as handles:
        while True:
            await anyio.wait_readable(socket)
            handles.start_soon(handle, await listener.accept())


@asynccontextmanager
async def listening(
    listener: SocketListener, service: StandIn[AskedT], serve_one: Callable[[Exchange], Awaitable[None]]
) -> AsyncGenerator[None]:
    """Serve until the block ends. ``/stand-in/`` paths are answered here, all others by ``serve_one``."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                exchange = Exchange(stream)
                await exchange.read()
                if exchange.path.startswith("/stand-in/"):
                    found = service.control(exchange.path.removeprefix("/stand-in/"), exchange.query)
                    missing = {"error": {"type": "not_found_error", "message": "Not found"}}
                    await exchange.answer(404 if found is None else 200, missing if found is None else found)
                else:
                    await serve_one(exchange)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, h11.RemoteProtocolError):
                return  # the client went away or spoke no HTTP: its own affair

    failure: Exception | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(serve_connections, listener, handle)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below: a test sees its own error, not a group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def run_service(
    description: str,
    named: Mapping[str, Callable[[], ScriptT]],
    parse: Callable[[Mapping[str, Any]], ScriptT],
    serve: Callable[[ScriptT, int], AbstractAsyncContextManager[StandIn[Any]]],
    arguments: Sequence[str] | None,
) -> None:
    """A service as a process: the first line on standard output is ``{"url": ...}``; it runs until interrupted."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--script", default="short", help=f"a JSON file, or one of: {', '.join(named)}")
    options = parser.parse_args(arguments)
    if options.script in named:
        script = named[options.script]()
    else:
        try:
            script = parse(json.loads(Path(options.script).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            parser.error(f"the script {options.script} cannot be read: {error}")

    async def run() -> None:
        async with serve(script, options.port) as service:
            print(json.dumps({"url": service.url}), flush=True)
            await anyio.sleep_forever()

    anyio.run(run)
