"""One agent process in front of the real Codex for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sayagain.testing.responses_api import ResponsesService, serve_responses
from sayagain.testing.responses_script import Script
from support_codex import AgentProcess, agent_process, codex_environment, codex_folder


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio."""
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    with codex_folder() as folder:
        yield folder


@pytest.fixture
def script() -> Script:
    """What the model says; tests override its steps."""
    return Script()


@pytest.fixture
async def service(script: Script) -> AsyncIterator[ResponsesService]:
    async with serve_responses(script, keep_items=True) as service:
        yield service


@pytest.fixture
def env(folder: Path, service: ResponsesService) -> dict[str, str]:
    return codex_environment(folder, service)


@pytest.fixture
def cwd(folder: Path, env: dict[str, str]) -> str:
    return str(folder / "project")


@pytest.fixture
async def agent(env: dict[str, str]) -> AsyncIterator[AgentProcess]:
    """Initialized, as a client without special capabilities does it."""
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        yield agent
