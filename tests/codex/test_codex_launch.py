"""The process of the app-server that is started before anybody needs it: on the real Codex."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from pytest_mock import MockerFixture

from sayagain.errors import RuntimeMissing
from sayagain.processes.spawn import ExitStatus
from sayagain_codex import launch
from sayagain_codex.launch import Launcher
from sayagain_codex.runtime import CodexRuntime

pytestmark = pytest.mark.real


async def test_the_first_process_is_the_one_that_was_started_ahead(env: dict[str, str]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            ahead = launcher._ahead
            assert ahead is not None
            async with CodexRuntime(env, launcher) as runtime:
                await runtime.warm_up()
                assert runtime._servers._server is not None
                assert runtime._servers._server.runtime_pid == ahead.process.runtime_pid
                await runtime._servers.stop()
                await runtime.warm_up()
                assert runtime._servers._server.runtime_pid != ahead.process.runtime_pid


async def test_one_that_nobody_took_ends_by_itself(env: dict[str, str]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            ahead = launcher._ahead
            assert ahead is not None
        # Not killed: a process that is ended in the middle of its start may be at work on its own files.
        assert ahead.process.status == ExitStatus(0, None)


async def test_one_that_would_keep_another_login_is_ended(env: dict[str, str]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            ahead = launcher._ahead
            assert ahead is not None
            launcher.ephemeral_login = True
            taken = await launcher.take()
            try:
                assert ahead.process.status is not None
                arguments = Path(f"/proc/{taken.process.runtime_pid}/cmdline").read_bytes()
                assert b'cli_auth_credentials_store="ephemeral"' in arguments
            finally:
                await taken.process.aclose()


async def test_a_failure_that_nobody_foresaw_ends_nothing(env: dict[str, str], mocker: MockerFixture) -> None:
    spawn = mocker.patch.object(launch, "spawn", side_effect=[RuntimeError("no thread can be started"), Gone()])
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            assert isinstance((await launcher.take()).process, Gone)
    assert spawn.call_count == 2


class Gone:
    """A process that its taker has ended."""


async def test_what_fails_ahead_is_told_by_whoever_needs_it(env: Mapping[str, str], tmp_path: Path) -> None:
    executable = tmp_path / "codex"
    with anyio.fail_after(30):
        async with Launcher({**env, "CODEX_PATH": str(executable)}) as launcher:
            with pytest.raises(RuntimeMissing, match="CODEX_PATH names"):
                await launcher.take()
            executable.write_text("#!/bin/sh\nexec cat\n")
            executable.chmod(0o755)
            taken = await launcher.take()
            await taken.process.aclose()
