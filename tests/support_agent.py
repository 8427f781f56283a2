"""The agent core over the fake runtime, and raw clients that are connected to it in memory.

Where the published schema is at hand (``SAYAGAIN_ORACLES``), every line that the agent sends is checked against it.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from sayagain.agent import Agent
from sayagain.agent.sessions import Sessions
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession, FakeStore
from sayagain.transports import ClosedTransport
from sayagain.transports.memory import BUFFER, MemoryTransport, memory_transports
from support_schema import WireChecker
from support_wire import Wire, WireError, prompt_params

__all__ = ["Client", "Stop", "World", "code_of", "serving", "settle", "submitted", "updates_before"]

settle = anyio.wait_all_tasks_blocked
"""Everything has happened that can happen without anything new from the test."""


class Stop:
    """A place where the code under test waits until the test lets it go on: ``await stop()`` there."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.reached = anyio.Event()
        self._go = anyio.Event()

    async def __call__(self, position: object = None) -> None:
        if self._at is None or position == self._at:
            self.reached.set()
            await self._go.wait()

    def go(self) -> None:
        self._go.set()


class Client(Wire):
    """A connection to the agent in this process."""

    def __init__(self, transport: MemoryTransport) -> None:
        super().__init__(transport)
        self.transport = transport
        self.paused: anyio.Event | None = None
        """While set and not done, nothing is read."""
        self.over = anyio.Event()
        self._checker = WireChecker() if "SAYAGAIN_ORACLES" in os.environ else None
        self._methods: dict[Any, str] = {}

    async def post(self, *messages: Mapping[str, Any]) -> None:
        for message in messages:
            if "method" in message and "id" in message:
                self._methods[message["id"]] = message["method"]
        await super().post(*messages)

    async def batch(self, *messages: Mapping[str, Any]) -> None:
        for message in messages:
            if "method" in message and "id" in message:
                self._methods[message["id"]] = message["method"]
        await self.raw(_line(list(messages)))

    def prompt_message(self, session_id: str, content: str, key: str | None = None) -> dict[str, Any]:
        return self.request_message("session/prompt", prompt_params(session_id, content, key))

    def cancel_message(self, request_id: object) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": request_id}}

    async def close(self) -> None:
        """End the connection; returns when the agent has seen that."""
        await self.transport.aclose()
        await self.over.wait()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            # Whoever waits for a line fails now, not after its patience.
            self.closed = True
            self._wake()

    async def _receive(self) -> bytes:
        if self.paused is not None:
            await self.paused.wait()
        try:
            return await super()._receive()
        except ClosedTransport:
            return b""

    async def _take(self, message: Any) -> None:
        for item in message if isinstance(message, list) else [message]:
            self._check(item)
        await super()._take(message)

    def _check(self, item: dict[str, Any]) -> None:
        if self._checker is None:
            return
        if "method" not in item:
            method = self._methods.get(item["id"])
            if method is None:
                return
            self._checker._open["agent"][item["id"]] = method
        self._checker.agent_sent(item)


class World:
    """One agent process: ``store`` is what survives it."""

    def __init__(self, agent: Agent, runtime: FakeRuntime, tasks: anyio.abc.TaskGroup) -> None:
        self.agent = agent
        self.runtime = runtime
        self.store = runtime.store
        self._tasks = tasks

    @property
    def sessions(self) -> Sessions:
        return self.agent._loaded()._sessions

    async def connect(self, *, initialize: bool = True, buffer: int = BUFFER, **capabilities: Any) -> Client:
        ours, theirs = memory_transports(buffer=buffer)
        client = Client(ours)
        self._tasks.start_soon(self._serve, theirs, client)
        self._tasks.start_soon(client.run)
        if initialize:
            await client.initialize(**capabilities)
        return client

    async def _serve(self, transport: MemoryTransport, client: Client) -> None:
        try:
            await self.agent.serve(transport)
        finally:
            client.over.set()
            await transport.aclose()

    def fake(self, session_id: str) -> FakeSession:
        return self.runtime.sessions[session_id]

    async def manual(self, client: Client) -> tuple[str, FakeSession]:
        """A new session in which nothing happens by itself."""
        session_id = await client.new()
        fake = self.fake(session_id)
        fake.manual = True
        return session_id, fake

    async def work(self, client: Client, content: str = "work", key: str | None = None) -> tuple[str, FakeSession]:
        """A new manual session with one stored prompt whose work goes on."""
        session_id, fake = await self.manual(client)
        request = await client.begin("session/prompt", prompt_params(session_id, content, key))
        await submitted(fake)
        fake.run()
        fake.store(fake.submitted[-1])
        await client.answer(request)
        return session_id, fake

    async def stored(self, client: Client, *prompts: str, key: str | None = None) -> str:
        """A session with these prompts and an answer to each; left active."""
        session_id = await client.new()
        for count, prompt in enumerate(prompts, 1):
            await client.prompt(session_id, prompt, key=key if count == 1 else None)
            await client.idle(session_id, count)
        return session_id


@asynccontextmanager
async def serving(store: FakeStore | None = None, runtime: FakeRuntime | None = None) -> AsyncIterator[World]:
    """An agent process. Leaving it ends every connection, then the agent."""
    runtime = runtime or FakeRuntime(store)
    with anyio.fail_after(30):
        async with runtime, Agent(runtime) as agent, anyio.create_task_group() as tasks:
            yield World(agent, runtime, tasks)
            tasks.cancel_scope.cancel()


async def submitted(fake: FakeSession, count: int = 1) -> None:
    await fake.until(lambda: len(fake.submitted) >= count)


async def code_of(client: Wire, method: str, params: Mapping[str, Any]) -> int:
    """The error code of a request, 0 for success."""
    try:
        await client.request(method, params)
    except WireError as error:
        return error.code
    return 0


def updates_before(client: Wire, session_id: str, kind: str = "replay_complete", start: int = 0) -> list[str]:
    """The kinds of the session's updates from the line ``start`` up to the first of ``kind``."""
    end = client.update_index(session_id, kind, start)
    return [
        line["params"]["update"]["sessionUpdate"]
        for line in client.lines[start:end]
        if line.get("method") == "session/update" and line["params"]["sessionId"] == session_id
    ]


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"
