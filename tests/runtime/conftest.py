"""One agent process in front of the real Claude Code for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import Script
from support_claude import AgentProcess, agent_process, claude_environment


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio."""
    return "asyncio"


@pytest.fixture
def script() -> Script:
    """What the model says; tests override its steps."""
    return Script()


@pytest.fixture
async def service(script: Script) -> AsyncIterator[MessagesService]:
    async with serve_messages(script) as service:
        yield service


@pytest.fixture
def env(tmp_path: Path, service: MessagesService) -> dict[str, str]:
    return claude_environment(tmp_path, service)


@pytest.fixture
def cwd(tmp_path: Path) -> str:
    return str(tmp_path / "project")


@pytest.fixture
async def agent(env: dict[str, str]) -> AsyncIterator[AgentProcess]:
    """Initialized, as a client without special capabilities does it."""
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        yield agent
