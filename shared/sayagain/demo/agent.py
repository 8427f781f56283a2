"""The demo's client: our agent as a child process, its lines read one by one."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from sayagain.errors import RuntimeFault

__all__ = ["AgentProcess", "start_agent"]

LONGEST_LINE = 1 << 20


class AgentProcess:
    """A running ``sayagain`` agent. Nothing of its output is read before somebody asks for it."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        self._last_id = 0

    async def send(self, method: str, params: Mapping[str, Any]) -> int:
        """Write a request and read nothing; its id."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        await self._stdin.send(json.dumps(message).encode() + b"\n")
        return self._last_id

    async def read(self) -> dict[str, Any]:
        """The agent's next message."""
        message: dict[str, Any] = json.loads(await self._stdout.receive_until(b"\n", LONGEST_LINE))
        return message

    async def request(self, method: str, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
        """The result of a request, and the updates that came before it."""
        request_id = await self.send(method, params)
        updates: list[dict[str, Any]] = []
        while True:
            message = await self.read()
            if message.get("id") == request_id and "method" not in message:
                if "error" in message:
                    raise RuntimeFault(f"{method} was answered with {message['error']['message']}")
                return message["result"], updates
            if message.get("method") == "session/update":
                updates.append(message["params"]["update"])

    async def kill(self) -> None:
        """SIGKILL: no time for anything."""
        self._process.kill()
        await self._process.wait()

    async def close(self) -> None:
        """Close its input, as an editor does that quits."""
        await self._stdin.aclose()
        await self._process.wait()


@asynccontextmanager
async def start_agent(runtime: str, env: Mapping[str, str]) -> AsyncGenerator[AgentProcess]:
    """Start ``sayagain <runtime>``; it is gone at the end."""
    async with await anyio.open_process([sys.executable, "-m", "sayagain", runtime], env=env, stderr=None) as process:
        try:
            yield AgentProcess(process)
        finally:
            if process.returncode is None:
                process.kill()
