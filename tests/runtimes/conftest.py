"""The same tests in front of each real runtime; ``runtime`` says what differs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import support_claude
import support_codex
from sayagain.testing import messages_script, responses_script
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.responses_api import serve_responses
from sayagain.testing.stand_in import StandIn
from support_process import AgentProcess, start_agent


@dataclass(frozen=True)
class RealRuntime:
    """``text`` and ``command`` make parts of a reply, ``script`` a script of (words of the prompt, replies)."""

    name: str
    folder: Callable[[Path], AbstractAsyncContextManager[Path] | Any]
    environment: Callable[[Path, Any], dict[str, str]]
    serve: Callable[[Any], AbstractAsyncContextManager[StandIn[Any]]]
    script: Callable[[Sequence[tuple[str, Sequence[Sequence[Any]]]]], Any]
    text: Callable[[str], Any]
    command: Callable[[str], Any]
    stored_ids: Callable[[Mapping[str, str], str], list[str]]
    keeps_commands: bool
    """Whether the runtime stores the user's local commands; where not, their keys last as long as the session."""

    def agent(self, env: Mapping[str, str], *arguments: str) -> AbstractAsyncContextManager[AgentProcess]:
        return start_agent(self.name, env, *arguments)

    async def allow_all(self, agent: AgentProcess, session_id: str) -> None:
        """Have commands run."""
        if self.name == "codex":
            change = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "full-access"}
            await agent.wire.request("session/set_config_option", change)
        else:
            allow = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            agent.wire.handle("session/request_permission", lambda _: allow)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    yield folder


CLAUDE = RealRuntime(
    name="claude",
    folder=_temporary,
    environment=support_claude.claude_environment,
    serve=serve_messages,
    script=lambda steps: messages_script.Script([messages_script.Step(*step) for step in steps]),
    text=messages_script.Text,
    command=lambda command: messages_script.ToolUse("Bash", {"command": command}),
    stored_ids=support_claude.stored_ids,
    keeps_commands=True,
)
CODEX = RealRuntime(
    name="codex",
    folder=lambda _: support_codex.codex_folder(),
    environment=support_codex.codex_environment,
    serve=serve_responses,
    script=lambda steps: responses_script.Script([responses_script.Step(*step) for step in steps]),
    text=responses_script.Text,
    command=lambda command: responses_script.exec_command(command, yield_time_ms=20000),
    stored_ids=support_codex.stored_ids,
    keeps_commands=False,
)


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio."""
    return "asyncio"


@pytest.fixture(params=[CLAUDE, CODEX], ids=lambda runtime: runtime.name)
def runtime(request: pytest.FixtureRequest) -> RealRuntime:
    found: RealRuntime = request.param
    return found


@pytest.fixture
def folder(runtime: RealRuntime, tmp_path: Path) -> Iterator[Path]:
    with runtime.folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def steps() -> Sequence[tuple[str, Sequence[Sequence[Any]]]]:
    """What the model says to which prompt; tests override it."""
    return ()


@pytest.fixture
async def service(
    runtime: RealRuntime, steps: Sequence[tuple[str, Sequence[Sequence[Any]]]]
) -> AsyncIterator[StandIn[Any]]:
    async with runtime.serve(runtime.script(steps)) as service:
        yield service


@pytest.fixture
def env(runtime: RealRuntime, folder: Path, service: StandIn[Any]) -> dict[str, str]:
    return runtime.environment(folder, service)


@pytest.fixture
def cwd(folder: Path, env: dict[str, str]) -> str:
    return str(folder / "project")


@pytest.fixture
async def agent(runtime: RealRuntime, env: dict[str, str]) -> AsyncIterator[AgentProcess]:
    """Initialized, as a client without special capabilities does it."""
    async with runtime.agent(env) as agent:
        await agent.wire.initialize()
        yield agent
