"""A raw ACP client for tests: it sees every line, in order, and interprets as little as possible.

``Wire`` works over anything with ``receive`` and ``send``: the in-memory transport, or a process's pipes. Every line
that the agent sends is kept in ``lines``; ``strict`` lines are JSON objects or arrays of them, or the test fails.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

__all__ = ["INFO", "Wire", "WireError", "entities", "prompt_params", "text", "wire_over"]

INFO = {"name": "test-client", "version": "1.0"}
PATIENCE = 20.0


class Pipe(Protocol):
    async def receive(self) -> bytes: ...
    async def send(self, data: bytes) -> None: ...


class WireError(Exception):
    """The agent's error answer."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def prompt_params(session_id: str, content: str, key: str | None = None) -> dict[str, Any]:
    params: dict[str, Any] = {"sessionId": session_id, "prompt": [text(content)]}
    if key is not None:
        params["idempotencyKey"] = key
    return params


class Wire:
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        # The reader answers what the agent asks while a test writes.
        self._writing = anyio.Lock()
        self._last_id = 0
        self._answers: dict[Any, dict[str, Any]] = {}
        self._changed = anyio.Event()
        self._handlers: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        self.lines: list[Any] = []
        """Everything that the agent sent, in order: objects, and lists for batches."""
        self.asked: list[dict[str, Any]] = []
        """The agent's requests; those whose method has a handler are answered."""
        self.closed = False

    # Out.

    async def raw(self, data: bytes) -> None:
        async with self._writing:
            await self._pipe.send(data)

    async def post(self, *messages: Mapping[str, Any]) -> None:
        """Several messages in one write."""
        await self.raw(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def request_message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}

    async def begin(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a request; its id."""
        message = self.request_message(method, params)
        await self.post(message)
        return int(message["id"])

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self.answer(await self.begin(method, params))

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self.post({"jsonrpc": "2.0", "method": method, "params": params})

    async def cancel(self, request_id: Any) -> None:
        await self.notify("$/cancel_request", {"requestId": request_id})

    # In.

    def handle(self, method: str, handler: Callable[[Mapping[str, Any]], Any]) -> None:
        """Answer the agent's requests of this method with what ``handler(params)`` returns."""
        self._handlers[method] = handler

    async def answer(self, request_id: Any) -> Any:
        """The result of a request; raises :class:`WireError`."""
        await self.until(lambda: request_id in self._answers)
        answer = self._answers[request_id]
        if "error" in answer:
            raise WireError(answer["error"])
        return answer["result"]

    def answered(self, request_id: Any) -> bool:
        return request_id in self._answers

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that was read makes the condition true."""
        with anyio.fail_after(PATIENCE):
            while not condition():
                assert not self.closed, "the agent closed the connection"
                await self._changed.wait()

    async def until_closed(self) -> None:
        with anyio.fail_after(PATIENCE):
            while not self.closed:
                await self._changed.wait()

    async def run(self) -> None:
        buffer = b""
        while data := await self._receive():
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                await self._take(json.loads(line))
        self.closed = True
        self._wake()

    async def _receive(self) -> bytes:
        try:
            return await self._pipe.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return b""

    async def _take(self, message: Any) -> None:
        self.lines.append(message)
        for item in message if isinstance(message, list) else [message]:
            assert item["jsonrpc"] == "2.0"
            if "method" not in item:
                assert item["id"] not in self._answers, f"two answers for {item['id']}"
                if item["id"] is not None:
                    self._answers[item["id"]] = item
            elif "id" in item:
                self.asked.append(item)
                handler = self._handlers.get(item["method"])
                if handler is not None:
                    await self.post({"jsonrpc": "2.0", "id": item["id"], "result": handler(item["params"])})
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # What was seen.

    def updates(self, session_id: str | None = None, kind: str | None = None) -> list[dict[str, Any]]:
        return [
            line["params"]["update"]
            for line in self.lines
            if isinstance(line, dict)
            and line.get("method") == "session/update"
            and session_id in (None, line["params"]["sessionId"])
            and kind in (None, line["params"]["update"]["sessionUpdate"])
        ]

    def states(self, session_id: str | None = None) -> list[str]:
        """The states in order, an idle with its stop reason: ``running``, ``idle:end_turn``."""
        return [
            update["state"] + (f":{update['stopReason']}" if update.get("stopReason") else "")
            for update in self.updates(session_id, "state_update")
        ]

    def index(self, condition: Callable[[Any], bool]) -> int:
        """The position of the first line of which the condition holds."""
        return next(position for position, line in enumerate(self.lines) if condition(line))

    def answer_index(self, request_id: Any) -> int:
        return self.index(lambda line: isinstance(line, dict) and "method" not in line and line["id"] == request_id)

    def update_index(self, session_id: str, kind: str, start: int = 0) -> int:
        return next(
            position
            for position, line in enumerate(self.lines)
            if position >= start
            and isinstance(line, dict)
            and line.get("method") == "session/update"
            and line["params"]["sessionId"] == session_id
            and line["params"]["update"]["sessionUpdate"] == kind
        )

    # Everyday calls.

    async def initialize(self, **capabilities: Any) -> Any:
        params = {"protocolVersion": 2, "info": INFO, "capabilities": capabilities}
        return await self.request("initialize", params)

    async def new(self, cwd: str = "/", **params: Any) -> str:
        return str((await self.request("session/new", {"cwd": cwd, **params}))["sessionId"])

    async def resume(self, session_id: str, cwd: str = "/", *, replay: bool = False, **params: Any) -> Any:
        body: dict[str, Any] = {"sessionId": session_id, "cwd": cwd, **params}
        if replay:
            body["replayFrom"] = {"type": "start"}
        return await self.request("session/resume", body)

    async def prompt(self, session_id: str, content: str, key: str | None = None) -> str:
        return str((await self.request("session/prompt", prompt_params(session_id, content, key)))["messageId"])

    async def idle(self, session_id: str, count: int = 1) -> None:
        """Wait until the session has ended ``count`` pieces of work since the beginning of the connection."""
        await self.until(lambda: sum(s.startswith("idle") for s in self.states(session_id)) >= count)


@asynccontextmanager
async def wire_over(pipe: Pipe) -> AsyncIterator[Wire]:
    """A client that reads in the background."""
    wire = Wire(pipe)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wire.run)
        yield wire
        tasks.cancel_scope.cancel()


def entities(updates: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The text of every message in the order of appearance, as a client that folds updates would show it."""
    shown: dict[str, str] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in ("user_message", "agent_message", "agent_thought") and "content" in update:
            shown[update["messageId"]] = "".join(block.get("text", "") for block in update["content"] or ())
        elif kind in ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk"):
            shown[update["messageId"]] = shown.get(update["messageId"], "") + update["content"].get("text", "")
    return shown
