"""A stand-in for the Responses API on loopback, driven by a script and by the test's own hand.

For tests, the benchmarks and the recorder. ``async with serve_responses(script) as service`` gives its ``url`` (with
``/v1`` behind it the ``base_url`` of a model provider of Codex), the ordered ``requests``, and gates: nothing here
looks at a clock. As a process: ``python -m sayagain.testing.responses_api --script NAME|FILE`` prints ``{"url": ...}``
as its first line; then ``GET /stand-in/requests``, ``GET /stand-in/count?text=...``, ``GET
/stand-in/occurrences?text=...`` and ``POST /stand-in/release?name=...`` serve other processes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from sayagain.testing.responses_request import Asked, Memory, read_request
from sayagain.testing.responses_script import (
    NAMED_SCRIPTS,
    ApiError,
    Reply,
    Script,
    ScriptLike,
    Text,
    parse_script,
)
from sayagain.testing.responses_stream import error_body, stream_reply
from sayagain.testing.stand_in import Exchange, StandIn, leading_error, listening, open_listener, run_service

__all__ = ["ResponsesService", "main", "serve_responses"]

_SIDE_REPLY: Final[Reply] = (Text('{"title": "Stand-in title"}'),)
_DEFAULT_REPLY: Final[Reply] = (Text("Done."),)
_NOT_FOUND: Final = ApiError(404, "not_found_error", "Not found")
_NO_SOCKET: Final = ApiError(426, "upgrade_required", "No web sockets here")


class ResponsesService(StandIn[Asked]):
    """A running stand-in for the Responses API."""

    def __init__(self, url: str, script: ScriptLike, *, keep_items: bool = False, id_seed: str | None = None) -> None:
        super().__init__(url, id_seed=id_seed)
        self._script = script
        self._keep_items = keep_items
        self._memories: dict[str, Memory] = {}

    def occurrences(self, text: str) -> int:
        """In how many user messages of the newest request that has it ``text`` stands.

        One is right; two are a ghost, a prompt that the model sees twice.
        """
        counts = (sum(text in said for said in asked.inputs) for asked in reversed(self.requests))
        return next((number for number in counts if number), 0)

    def take(self, body: Mapping[str, Any]) -> Reply:
        """Record a request and choose its reply."""
        asked = read_request(body, len(self.requests), self._memories)
        self.note(asked if self._keep_items else replace(asked, items=()))
        reply = self._script(asked)
        if reply is None:
            reply = _SIDE_REPLY if asked.kind == "side" else _DEFAULT_REPLY
        return reply

    def control(self, name: str, query: Mapping[str, Sequence[str]]) -> Any:
        match name, query:
            case "occurrences", {"text": [text]}:
                return {"occurrences": self.occurrences(text)}
            case _:
                return super().control(name, query)


@asynccontextmanager
async def serve_responses(
    script: ScriptLike | Mapping[str, Any] | None = None,
    *,
    port: int = 0,
    keep_items: bool = False,
    id_seed: str | None = None,
) -> AsyncGenerator[ResponsesService]:
    """Serve on 127.0.0.1 until the block ends. ``script`` is a callable, the JSON form, or ``None`` for short texts."""
    chosen: ScriptLike = script if callable(script) else parse_script(script or {})
    listener, url = await open_listener(port)
    service = ResponsesService(url, chosen, keep_items=keep_items, id_seed=id_seed)

    async def serve_one(exchange: Exchange) -> None:
        match exchange.method, exchange.path:
            case "POST", "/v1/responses":
                reply = service.take(exchange.json())
                await exchange.while_there(service, lambda: _send_reply(exchange, service, reply))
            case "GET", "/v1/responses":
                # The built-in provider tries a web socket first; at this status it turns to HTTP at once (measured).
                await exchange.answer(_NO_SOCKET.status, error_body(_NO_SOCKET))
            case _:
                await exchange.answer(404, error_body(_NOT_FOUND))

    async with listening(listener, service, serve_one):
        yield service


async def _send_reply(exchange: Exchange, service: ResponsesService, reply: Reply) -> None:
    error = await leading_error(service, reply)
    if error is not None:
        await exchange.answer(error.status, error_body(error), error.headers)
        return
    await exchange.stream(service, stream_reply(reply, service.new_id("resp"), service.new_id))


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the first line on standard output is ``{"url": ...}``."""

    def serve(script: Script, port: int) -> AbstractAsyncContextManager[ResponsesService]:
        return serve_responses(script, port=port)

    run_service("A stand-in for the Responses API on loopback.", NAMED_SCRIPTS, parse_script, serve, arguments)


if __name__ == "__main__":
    main()
