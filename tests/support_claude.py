"""Our agent in front of the real Claude Code, over real pipes, with the stand-in model service."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from sayagain.testing.messages_api import MessagesService
from support_wire import Wire, wire_over

__all__ = ["AgentProcess", "agent_process", "claude_environment", "rows", "stored_ids", "transcript"]


class AgentProcess:
    """``sayagain claude`` as a child process."""

    def __init__(self, process: anyio.abc.Process, wire: Wire) -> None:
        self.process = process
        self.wire = wire

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
    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process

    async def receive(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.receive()

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(data)


def claude_environment(folder: Path, service: MessagesService | None, **extra: str) -> dict[str, str]:
    """An environment in which nothing leaves the machine and nothing of the user's is read."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",
    }
    if service is not None:
        env |= {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "dummy"}
    for name in ("home", "config", "project"):
        (folder / name).mkdir(exist_ok=True)
    return env | extra


@asynccontextmanager
async def agent_process(env: Mapping[str, str], *arguments: str) -> AsyncIterator[AgentProcess]:
    """Start ``sayagain claude``; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "sayagain", "claude", *arguments]
    async with await anyio.open_process(command, env=env, stderr=None) as process:
        try:
            async with wire_over(_Pipes(process)) as wire:
                yield AgentProcess(process, wire)
        finally:
            if process.returncode is None:
                process.kill()


def transcript(env: Mapping[str, str], session_id: str) -> Path:
    """The session's raw file."""
    (path,) = Path(env["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{session_id}.jsonl")
    return path


def rows(env: Mapping[str, str], session_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in transcript(env, session_id).read_text(encoding="utf-8").splitlines()]


def stored_ids(env: Mapping[str, str], session_id: str) -> list[str]:
    """The ids of stored user messages, read by the tests' own eyes, repeats included."""
    return [
        row["uuid"]
        for row in rows(env, session_id)
        if row["type"] == "user"
        and not any(isinstance(b, dict) and b.get("type") == "tool_result" for b in row["message"]["content"])
    ]
