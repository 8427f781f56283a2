"""The process of the app-server that is started before anybody needs it: on the real Codex."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from pytest_mock import MockerFixture

from sayagain.errors import RuntimeMissing
from sayagain.processes.spawn import ExitStatus, GuardedProcess, Starting
from sayagain_codex import launch
from sayagain_codex.launch import Launcher
from sayagain_codex.runtime import CodexRuntime

pytestmark = pytest.mark.real


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[GuardedProcess]:
    """Every process whose start was waited for."""
    processes: list[GuardedProcess] = []
    running = Starting.running

    async def noted(starting: Starting) -> GuardedProcess:
        processes.append(await running(starting))
        return processes[-1]

    monkeypatch.setattr(Starting, "running", noted)
    return processes


def guard_of(launcher: Launcher) -> int:
    assert launcher._ahead is not None
    return launcher._ahead.starting._process.pid


async def test_the_first_process_is_the_one_that_was_started_ahead(
    env: dict[str, str], ran: list[GuardedProcess]
) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            ahead = guard_of(launcher)
            async with CodexRuntime(env, launcher) as runtime:
                await runtime.warm_up()
                await runtime._servers.stop()
                await runtime.warm_up()
    assert [process.pid == ahead for process in ran] == [True, False]


async def test_one_that_nobody_took_ends_by_itself(env: dict[str, str], ran: list[GuardedProcess]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            ahead = guard_of(launcher)
    # Not killed: a process that is ended in the middle of its start may be at work on its own files.
    assert [(process.pid, process.status) for process in ran] == [(ahead, ExitStatus(0, None))]


async def test_one_that_would_keep_another_login_is_ended(env: dict[str, str], ran: list[GuardedProcess]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            launcher.ephemeral_login = True
            taken, _ = await launcher.take()
            try:
                assert [process.status for process in ran] == [ExitStatus(0, None), None]
                arguments = Path(f"/proc/{taken.runtime_pid}/cmdline").read_bytes()
                assert b'cli_auth_credentials_store="ephemeral"' in arguments
            finally:
                await taken.aclose()


async def test_a_failure_that_nobody_foresaw_ends_nothing(env: dict[str, str], mocker: MockerFixture) -> None:
    starting: Any = mocker.Mock(running=mocker.AsyncMock(return_value="a process"))
    begin = mocker.patch.object(launch, "begin", side_effect=[RuntimeError("no thread can be started"), starting])
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            process, _ = await launcher.take()
    assert (process, begin.call_count) == ("a process", 2)


async def test_what_fails_ahead_is_told_by_whoever_needs_it(env: Mapping[str, str], tmp_path: Path) -> None:
    executable = tmp_path / "codex"
    with anyio.fail_after(30):
        async with Launcher({**env, "CODEX_PATH": str(executable)}) as launcher:
            with pytest.raises(RuntimeMissing, match="CODEX_PATH names"):
                await launcher.take()
            executable.write_text("#!/bin/sh\nexec cat\n")
            executable.chmod(0o755)
            process, _ = await launcher.take()
            await process.aclose()
