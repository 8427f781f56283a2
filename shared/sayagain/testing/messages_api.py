"""A stand-in for the Messages API on loopback, driven by a script and by the test's own hand.

For tests, the demo, the benchmarks and the recorder. ``async with serve_messages(script) as service`` gives its
``url`` (for ``ANTHROPIC_BASE_URL``), the ordered ``requests``, and gates: nothing here looks at a clock. As a process:
``python -m sayagain.testing.messages_api --script NAME|FILE`` prints ``{"url": ...}`` as its first line; then ``GET
/stand-in/requests``, ``GET /stand-in/count?text=...`` and ``POST /stand-in/release?name=...`` serve other processes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from sayagain.testing.messages_request import Asked, read_request
from sayagain.testing.messages_script import (
    NAMED_SCRIPTS,
    Reply,
    Script,
    ScriptLike,
    Text,
    parse_script,
)
from sayagain.testing.messages_stream import stream_reply, whole_reply
from sayagain.testing.stand_in import (
    Exchange,
    StandIn,
    leading_error,
    listening,
    open_listener,
    pass_holds,
    run_service,
)

__all__ = ["MessagesService", "main", "serve_messages"]

_SIDE_REPLY: Final[Reply] = (Text('{"title": "Stand-in title"}'),)
_DEFAULT_REPLY: Final[Reply] = (Text("Done."),)


class MessagesService(StandIn[Asked]):
    """A running stand-in for the Messages API."""

    def __init__(
        self, url: str, script: ScriptLike, *, keep_messages: bool = False, id_seed: str | None = None
    ) -> None:
        super().__init__(url, id_seed=id_seed)
        self._script = script
        self._keep_messages = keep_messages
        self._seen: dict[str, list[list[str]]] = {}

    def take(self, body: Mapping[str, Any]) -> tuple[Asked, Reply]:
        """Record a request and choose its reply."""
        asked = read_request(body, len(self.requests), self._seen)
        self.note(asked if self._keep_messages else replace(asked, messages=()))
        reply = self._script(asked)
        if reply is None:
            reply = _SIDE_REPLY if asked.kind == "side" else _DEFAULT_REPLY
        return asked, reply


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
    listener, url = await open_listener(port)
    service = MessagesService(url, chosen, keep_messages=keep_messages, id_seed=id_seed)

    async def serve_one(exchange: Exchange) -> None:
        match exchange.method, exchange.path:
            case "POST", "/v1/messages":
                asked, reply = service.take(exchange.json())
                await exchange.while_there(service, lambda: _send_reply(exchange, service, asked, reply))
            case "POST", "/v1/messages/count_tokens":
                await exchange.answer(200, {"input_tokens": max(1, len(exchange.body) // 4)})
            case "HEAD", _:
                await exchange.answer(200, None)
            case _:
                await exchange.answer(404, _error_body("not_found_error", "Not found"))

    async with listening(listener, service, serve_one):
        yield service


async def _send_reply(exchange: Exchange, service: MessagesService, asked: Asked, reply: Reply) -> None:
    error = await leading_error(service, reply)
    if error is not None:
        await exchange.answer(error.status, _error_body(error.type, error.message), error.headers)
        return
    message_id = service.new_id("msg")

    def tool_id() -> str:
        return service.new_id("toolu")

    if asked.stream:
        await exchange.stream(service, stream_reply(reply, message_id, asked.model, tool_id))
    else:
        await pass_holds(service, reply)
        await exchange.answer(200, whole_reply(reply, message_id, asked.model, tool_id))


def _error_body(error_type: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": error_type, "message": message}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the first line on standard output is ``{"url": ...}``."""

    def serve(script: Script, port: int) -> AbstractAsyncContextManager[MessagesService]:
        return serve_messages(script, port=port)

    run_service("A stand-in for the Messages API on loopback.", NAMED_SCRIPTS, parse_script, serve, arguments)


if __name__ == "__main__":
    main()
