"""Agents in this process for a client to lose: each connection gets an agent of its own over one store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from sayagain.agent import Agent
from sayagain.client import Event, Session, Update
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession, FakeStore
from sayagain.transports import ClosedTransport, Transport
from sayagain.transports.memory import MemoryTransport, memory_transports

__all__ = ["Place", "Scripted", "kinds", "until"]


class Place:
    """``open`` is what a client connects by."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.runtimes: list[FakeRuntime] = []
        self.prepare: Callable[[FakeRuntime], None] = lambda runtime: None
        self._scopes: list[anyio.CancelScope] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Transport]:
        runtime = FakeRuntime(self.store)
        self.prepare(runtime)
        self.runtimes.append(runtime)
        ours, theirs = memory_transports()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve, runtime, theirs)
            yield ours
            await ours.aclose()

    async def _serve(self, runtime: FakeRuntime, transport: MemoryTransport) -> None:
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        with scope:
            async with runtime, Agent(runtime) as agent:
                await agent.serve(transport)
        await transport.aclose()

    def kill(self) -> None:
        """The latest agent ends in the middle of what it does."""
        self._scopes[-1].cancel()

    @property
    def runtime(self) -> FakeRuntime:
        """Of the latest agent."""
        return self.runtimes[-1]

    def fake(self, session: Session) -> FakeSession:
        """The runtime's side of a session, at the latest agent."""
        return self.runtime.sessions[session.session_id]


class Scripted:
    """An agent that a test plays by hand: ``answer(message)`` gives the lines to send for each line that came."""

    def __init__(self, answer: Callable[[dict[str, Any]], list[Mapping[str, Any] | bytes | None]]) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []
        self.connections = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Transport]:
        self.connections += 1
        ours, theirs = memory_transports()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, theirs)
            yield ours
            await ours.aclose()
            tasks.cancel_scope.cancel()

    async def _run(self, transport: MemoryTransport) -> None:
        with suppress(ClosedTransport):
            await self._play(transport)

    async def _play(self, transport: MemoryTransport) -> None:
        buffer = b""
        while data := await transport.receive():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.asked.append(message)
                for answer in self._answer(message):
                    if answer is None:
                        await transport.aclose()
                        return
                    raw = answer if isinstance(answer, bytes) else json.dumps({"jsonrpc": "2.0", **answer}).encode()
                    await transport.send(raw + b"\n")


async def until(session: Session, kind: str, **fields: Any) -> list[Event]:
    """The events up to an update of this kind."""
    events: list[Event] = []
    async for event in session:
        events.append(event)
        if isinstance(event, Update):
            update = event.update
            if update["sessionUpdate"] == kind and all(update.get(name) == value for name, value in fields.items()):
                return events
    raise AssertionError("the stream ended")


def kinds(events: list[Event]) -> list[str]:
    return [event.update["sessionUpdate"] if isinstance(event, Update) else type(event).__name__ for event in events]
