"""A stand-in for the Messages API on loopback, driven by a script and by the test's own hand.

For tests, the demo, the benchmarks and the recorder. ``async with serve_messages(script) as service`` gives its
``url`` (for ``ANTHROPIC_BASE_URL``), the ordered ``requests``, and gates: nothing here looks at a clock. As a process:
``python -m sayagain.testing.messages_api --script NAME|FILE`` prints ``{"url": ...}`` as its first line; then ``GET
/stand-in/requests``, ``GET /stand-in/count?text=...`` and ``POST /stand-in/release?name=...`` serve other processes.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from sayagain.testing.messages_request import Asked, read_request
from sayagain.testing.messages_script import (
    NAMED_SCRIPTS,
    ApiError,
    Hold,
    Reply,
    Script,
    ScriptLike,
    Text,
    parse_script,
)
from sayagain.testing.messages_stream import Close, Wait, stream_reply, whole_reply

__all__ = ["MessagesService", "main", "serve_messages"]

_SIDE_REPLY: Final[Reply] = (Text('{"title": "Stand-in title"}'),)
_DEFAULT_REPLY: Final[Reply] = (Text("Done."),)
_MAX_BODY: Final = 64 * 1024 * 1024
"""Twice what the real service takes: a body beyond it is a bug in the caller."""


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


class MessagesService:
    """A running stand-in: what was asked of it, and the gates that hold its replies."""

    def __init__(
        self, url: str, script: ScriptLike, *, keep_messages: bool = False, id_seed: str | None = None
    ) -> None:
        self.url = url
        self.requests: list[Asked] = []
        self._script = script
        self._keep_messages = keep_messages
        self._seed = id_seed or secrets.token_hex(6)
        self._numbers = count(1)
        self._gates: dict[str, _Gate] = {}
        self._seen: dict[str, list[list[str]]] = {}
        self._arrival = anyio.Event()
        self._hang_ups = 0

    def turns(self, text: str) -> list[Asked]:
        """The turn-starting requests whose newest user input contains ``text``, in order."""
        return [asked for asked in self.requests if asked.kind == "turn" and text in asked.newest_text]

    def count(self, text: str) -> int:
        """How often the model was asked to start on ``text``. An HTTP retry by the runtime counts again."""
        return len(self.turns(text))

    async def asked(self, text: str, times: int = 1) -> Asked:
        """Wait until the model was asked ``times`` times to start on ``text``; the last of those requests."""
        while len(found := self.turns(text)) < times:
            await self._arrival.wait()
        return found[times - 1]

    async def arrived(self, number: int) -> Asked:
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

    def take(self, body: Mapping[str, Any]) -> tuple[Asked, Reply]:
        """Record a request and choose its reply."""
        asked = read_request(body, len(self.requests), self._seen)
        self.requests.append(asked if self._keep_messages else replace(asked, messages=()))
        self._wake()
        reply = self._script(asked)
        if reply is None:
            reply = _SIDE_REPLY if asked.kind == "side" else _DEFAULT_REPLY
        return asked, reply

    def new_id(self, prefix: str) -> str:
        """An id that no other service has given out."""
        return f"{prefix}_{self._seed}{next(self._numbers):06d}"

    def _wake(self) -> None:
        self._arrival.set()
        self._arrival = anyio.Event()

    def _gate(self, name: str) -> _Gate:
        return self._gates.setdefault(name, _Gate())


@asynccontextmanager
async def serve_messages(
    script: ScriptLike | Mapping[str, Any] | None = None,
    *,
    port: int = 0,
    keep_messages: bool = False,
    id_seed: str | None = None,
) -> AsyncGenerator[MessagesService]:
    """Serve on 127.0.0.1 until the block ends. ``script`` is a callable, the JSON form, or ``None`` for short texts."""
    chosen: ScriptLike = script if callable(script) else parse_script(script or {})
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    bound = listener.extra(SocketAttribute.local_port)
    service = MessagesService(f"http://127.0.0.1:{bound}", chosen, keep_messages=keep_messages, id_seed=id_seed)

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                await _serve_one(stream, service)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, h11.RemoteProtocolError):
                return  # the client went away or spoke no HTTP: its own affair

    failure: Exception | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        try:
            yield service
        except Exception as error:  # noqa: BLE001 - raised again below: a test sees its own error, not a group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _serve_one(stream: SocketStream, service: MessagesService) -> None:
    """One request a connection: a stream that ends, or is cut, is then the end of its connection."""
    http = h11.Connection(h11.SERVER)
    request, body = await _read(stream, http)
    target = urlsplit(request.target.decode("ascii", "replace"))
    match request.method, target.path:
        case b"POST", "/v1/messages":
            await _answer_messages(stream, http, service, _json(body))
        case b"POST", "/v1/messages/count_tokens":
            await _send_json(stream, http, 200, {"input_tokens": max(1, len(body) // 4)})
        case b"HEAD", _:
            await _send_json(stream, http, 200, None)
        case _, path if path.startswith("/stand-in/"):
            status, answer = _answer_control(service, path, parse_qs(target.query))
            await _send_json(stream, http, status, answer)
        case _:
            await _send_json(stream, http, 404, _error_body("not_found_error", "Not found"))


async def _read(stream: SocketStream, http: h11.Connection) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                await stream.send(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            http.receive_data(await stream.receive())
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MAX_BODY:
                raise h11.RemoteProtocolError("body too large")
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, bytes(body)
        else:
            raise anyio.EndOfStream


async def _answer_messages(
    stream: SocketStream, http: h11.Connection, service: MessagesService, body: Mapping[str, Any]
) -> None:
    asked, reply = service.take(body)
    async with anyio.create_task_group() as tasks:
        # A client that hangs up (an interrupt) ends the reply, also one that waits at a gate.
        tasks.start_soon(_cancel_at_hang_up, stream, service, tasks.cancel_scope)
        # One that is reset may be noticed here first.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await _send_reply(stream, http, service, asked, reply)
        tasks.cancel_scope.cancel()


async def _cancel_at_hang_up(stream: SocketStream, service: MessagesService, scope: anyio.CancelScope) -> None:
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        service.note_hang_up()
        scope.cancel()


async def _send_reply(
    stream: SocketStream, http: h11.Connection, service: MessagesService, asked: Asked, reply: Reply
) -> None:
    first = next((part for part in reply if not isinstance(part, Hold)), None)
    if isinstance(first, ApiError):
        await _pass_holds(service, reply[: reply.index(first)])
        await _send_json(stream, http, first.status, _error_body(first.type, first.message), first.headers)
        return
    message_id = service.new_id("msg")

    def tool_id() -> str:
        return service.new_id("toolu")

    if not asked.stream:
        await _pass_holds(service, reply)
        await _send_json(stream, http, 200, whole_reply(reply, message_id, asked.model, tool_id))
        return
    headers = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
    await _send(stream, http, h11.Response(status_code=200, headers=[*headers, ("connection", "close")]))
    for piece in stream_reply(reply, message_id, asked.model, tool_id):
        match piece:
            case Wait():
                await service.wait_gate(piece)
            case Close():
                return
            case bytes():
                await _send(stream, http, h11.Data(data=piece))
    await _send(stream, http, h11.EndOfMessage())


async def _pass_holds(service: MessagesService, parts: Reply) -> None:
    for part in parts:
        if isinstance(part, Hold):
            await service.wait_gate(Wait(part.name))


def _answer_control(service: MessagesService, path: str, query: Mapping[str, Sequence[str]]) -> tuple[int, Any]:
    match path.removeprefix("/stand-in/"), query:
        case "requests", _:
            return 200, [asdict(asked) for asked in service.requests]
        case "count", {"text": [text]}:
            return 200, {"count": service.count(text)}
        case "release", {"name": [name]}:
            service.release(name)
            return 200, {}
        case _:
            return 404, _error_body("not_found_error", "Not found")


async def _send_json(
    stream: SocketStream, http: h11.Connection, status: int, value: object, headers: Mapping[str, str] | None = None
) -> None:
    body = b"" if value is None else json.dumps(value).encode()
    fields = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
    await _send(stream, http, h11.Response(status_code=status, headers=[*fields, *(headers or {}).items()]))
    if body:
        await _send(stream, http, h11.Data(data=body))
    await _send(stream, http, h11.EndOfMessage())


async def _send(stream: SocketStream, http: h11.Connection, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
    data = http.send(event)
    if data:
        await stream.send(data)


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _error_body(error_type: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": error_type, "message": message}}


def _load_script(name: str) -> Script:
    if name in NAMED_SCRIPTS:
        return NAMED_SCRIPTS[name]()
    return parse_script(json.loads(Path(name).read_text(encoding="utf-8")))


async def _serve_forever(port: int, script: Script) -> None:
    async with serve_messages(script, port=port) as service:
        print(json.dumps({"url": service.url}), flush=True)
        await anyio.sleep_forever()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the first line on standard output is ``{"url": ...}``."""
    parser = argparse.ArgumentParser(description="A stand-in for the Messages API on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--script", default="short", help=f"a JSON file, or one of: {', '.join(NAMED_SCRIPTS)}")
    options = parser.parse_args(arguments)
    anyio.run(_serve_forever, options.port, _load_script(options.script))


if __name__ == "__main__":
    main()
