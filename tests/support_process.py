"""Our agent as a child process, over real pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from support_schema import WireChecker, WireFault
from support_wire import Wire, wire_over

__all__ = ["AgentProcess", "own_code", "start_agent"]


def own_code() -> dict[str, str]:
    """What a process needs in its environment to run the code that is under test."""
    return {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


class AgentProcess:
    """``sayagain claude`` or ``sayagain codex``."""

    def __init__(self, process: anyio.abc.Process, wire: Wire, passed: Sequence[tuple[str, bytes]]) -> None:
        self.process = process
        self.wire = wire
        self.passed = passed
        """Every line so far, each with ``agent`` or ``client``, who wrote it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()
        await self.process.wait()

    async def close(self) -> int:
        """Close its standard input, as an editor does; the exit status."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with anyio.fail_after(20):
            return await self.process.wait()


class _Pipes:
    """Keeps what passes, so that it can be held against the published schema, where that is at hand."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._rest = {"agent": b"", "client": b""}
        self.lines: list[tuple[str, bytes]] = []

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        data = await self._process.stdout.receive()
        self._keep("agent", data)
        return data

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._keep("client", data)
        await self._process.stdin.send(data)

    def _keep(self, side: str, data: bytes) -> None:
        *lines, self._rest[side] = (self._rest[side] + data).split(b"\n")
        self.lines += [(side, line) for line in lines]

    def check(self) -> None:
        if "SAYAGAIN_ORACLES" not in os.environ:
            return
        checker = WireChecker()
        for side, line in self.lines:
            if side == "agent":
                checker.agent_sent(line)
                continue
            try:
                checker.client_sent(line)
            except WireFault:
                return  # a test that breaks the rules itself


@asynccontextmanager
async def start_agent(runtime: str, env: Mapping[str, str], *arguments: str) -> AsyncIterator[AgentProcess]:
    """Start ``sayagain RUNTIME``; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "sayagain", runtime, *arguments]
    async with await anyio.open_process(command, env=env, stderr=None) as process:
        pipes = _Pipes(process)
        try:
            async with wire_over(pipes) as wire:
                yield AgentProcess(process, wire, pipes.lines)
            pipes.check()
        finally:
            if process.returncode is None:
                process.kill()
