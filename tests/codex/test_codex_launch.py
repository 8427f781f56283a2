"""The process of the app-server that is started before anybody needs it: on the real Codex."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from pytest_mock import MockerFixture

from sayagain.errors import RuntimeMissing, RuntimeTimeout
from sayagain.processes.spawn import ExitStatus, GuardedProcess, Starting
from sayagain_codex import launch, server
from sayagain_codex.app_server import AppServer
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


async def test_one_that_ended_meanwhile_is_started_again(env: dict[str, str], ran: list[GuardedProcess]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            guard = psutil.Process(guard_of(launcher))
            while not guard.children():
                await anyio.lowlevel.checkpoint()
            for child in guard.children():
                child.kill()
            async with CodexRuntime(env, launcher) as runtime:
                assert await runtime.stored("0190c0de-0000-7000-8000-000000000000") is False
    assert len(ran) == 2


async def test_one_whose_greeting_is_cancelled_ends_by_itself(
    env: dict[str, str], ran: list[GuardedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an editor is closed at once."""
    send, reached = AppServer._send, anyio.Event()

    async def noted(server: AppServer, message: Mapping[str, Any], patience: float) -> None:
        await send(server, message, patience)
        reached.set()

    monkeypatch.setattr(AppServer, "_send", noted)
    with anyio.fail_after(30):
        async with CodexRuntime(env) as runtime, anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.warm_up)
            await reached.wait()
            tasks.cancel_scope.cancel()
    assert [process.status for process in ran] == [ExitStatus(0, None)]


async def test_one_that_nobody_took_ends_by_itself(env: dict[str, str], ran: list[GuardedProcess]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            ahead = guard_of(launcher)
    # Not killed: a process that is ended in the middle of its start may be at work on its own files.
    assert [(process.pid, process.status) for process in ran] == [(ahead, ExitStatus(0, None))]


async def test_one_that_would_keep_another_login_is_ended(env: dict[str, str], ran: list[GuardedProcess]) -> None:
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            taken = await launcher.take(ephemeral_login=True)
            try:
                assert [process.status for process in ran] == [ExitStatus(0, None), None]
                arguments = Path(f"/proc/{taken.process.runtime_pid}/cmdline").read_bytes()
                assert b'cli_auth_credentials_store="ephemeral"' in arguments
                assert not taken.ahead
            finally:
                await taken.process.aclose()


async def test_a_failure_that_nobody_foresaw_ends_nothing(env: dict[str, str], mocker: MockerFixture) -> None:
    starting: Any = mocker.Mock(running=mocker.AsyncMock(return_value="a process"))
    begin = mocker.patch.object(launch, "begin", side_effect=[RuntimeError("no thread can be started"), starting])
    with anyio.fail_after(30):
        async with Launcher(env) as launcher:
            taken = await launcher.take()
    assert (taken.process, begin.call_count) == ("a process", 2)


async def test_what_fails_ahead_is_told_by_whoever_needs_it(env: Mapping[str, str], tmp_path: Path) -> None:
    executable = tmp_path / "codex"
    with anyio.fail_after(30):
        async with Launcher({**env, "CODEX_PATH": str(executable)}) as launcher:
            with pytest.raises(RuntimeMissing, match=r"CODEX_PATH names .*pip install"):
                await launcher.take()
            executable.write_text("#!/bin/sh\nexec cat\n")
            executable.chmod(0o755)
            taken = await launcher.take()
            await taken.process.aclose()


@pytest.fixture
def starts(folder: Path) -> Callable[[str], tuple[str, Path]]:
    """A Codex that writes a line to a file at each start, and then does what it is told."""

    def make(script: str) -> tuple[str, Path]:
        log, executable = folder / "starts", folder / "codex-in-between"
        version = '[ "$1" = --version ] && { echo codex-cli 0.163.0; exit; }'
        executable.write_text(f"#!/bin/sh\n{version}\necho started >> {log}\n{script}", encoding="utf-8")
        executable.chmod(0o755)
        return str(executable), log

    return make


RACE = "Error: failed to initialize sqlite state runtime under the folder"


async def test_processes_that_make_the_databases_at_once_are_started_again(
    env: dict[str, str], starts: Callable[[str], tuple[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = env["CODEX_PATH"]
    _, log = starts("")
    lost = f'[ $(wc -l < {log}) -gt 2 ] || {{ echo "{RACE}" >&2; exit 1; }}\nexec {real} "$@"\n'
    executable, log = starts(lost)
    monkeypatch.setattr(server, "RACES", (0.0, 0.0))
    with anyio.fail_after(30):
        async with CodexRuntime({**env, "CODEX_PATH": executable}) as runtime:
            await runtime.warm_up()
            assert await runtime.stored("0190c0de-0000-7000-8000-000000000000") is False
    assert len(log.read_text().splitlines()) == 3


async def test_what_does_not_pass_is_told_as_it_is(
    env: dict[str, str], starts: Callable[[str], tuple[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable, log = starts(f'echo "{RACE}" >&2\nexit 1\n')
    monkeypatch.setattr(server, "RACES", (0.0, 0.0))
    with anyio.fail_after(30):
        async with CodexRuntime({**env, "CODEX_PATH": executable}) as runtime:
            with pytest.raises(RuntimeMissing, match="failed to initialize sqlite"):
                await runtime.stored("0190c0de-0000-7000-8000-000000000000")
    assert len(log.read_text().splitlines()) == 3


async def test_a_start_that_hangs_is_waited_for_once(
    env: dict[str, str], starts: Callable[[str], tuple[str, Path]]
) -> None:
    """By the request too that comes in the middle of it."""
    executable, log = starts("while read line; do :; done\n")
    faults: list[str] = []
    with anyio.fail_after(30):
        async with CodexRuntime({**env, "CODEX_PATH": executable, "SAYAGAIN_PATIENCE": "0.5"}) as runtime:

            async def ask() -> None:
                with pytest.raises(RuntimeTimeout) as caught:
                    await runtime.stored("0190c0de-0000-7000-8000-000000000000")
                faults.append(str(caught.value))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask)
            assert len(log.read_text().splitlines()) == 1
            await ask()
    assert len(log.read_text().splitlines()) == 2
    assert len(faults) == 4
    assert all(executable in fault for fault in faults)


@pytest.mark.parametrize("answer", ['"result":[1]', '"result":"hello"', '"error":{"code":-32601,"message":"no"}'])
async def test_what_does_not_answer_as_codex_does_is_named(
    env: dict[str, str], starts: Callable[[str], tuple[str, Path]], answer: str
) -> None:
    executable, _ = starts(f"read line\necho '{{\"id\":1,{answer}}}'\nwhile read line; do :; done\n")
    with anyio.fail_after(30):
        async with CodexRuntime({**env, "CODEX_PATH": executable}) as runtime:
            with pytest.raises(RuntimeMissing, match=r"codex-in-between does not answer .*pip install"):
                await runtime.auth_status()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("WARNING: proceeding, even though something", "pip install"),
        ("WARNING: proceeding\nError: no such folder\nwarning: it was Tuesday", r"3\): Error: no such folder$"),
    ],
)
async def test_an_early_end_is_told_by_its_own_reason(
    env: dict[str, str], starts: Callable[[str], tuple[str, Path]], written: str, told: str
) -> None:
    executable, _ = starts(f"printf '%s\\n' '{written}' >&2\nexit 3\n")
    with anyio.fail_after(30):
        async with CodexRuntime({**env, "CODEX_PATH": executable}) as runtime:
            with pytest.raises(RuntimeMissing, match=rf"ended while it started \(exit code .*{told}"):
                await runtime.auth_status()


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("codex-cli 0.46.0", r"is Codex 0\.46\.0; 0\.163 or newer is needed\. pip install"),
        ("codex-cli 0.163.0", r"\(exit code 1\): Error: stdin is not a terminal$"),
        ("something else", r"\(exit code 1\): Error: stdin is not a terminal\. pip install"),
    ],
)
async def test_one_without_an_app_server_is_named_by_its_version(
    env: dict[str, str], starts: Callable[[str], tuple[str, Path]], version: str, told: str
) -> None:
    refuses = "echo 'Error: stdin is not a terminal' >&2; exit 1"
    executable, _ = starts(f"{refuses}\n")
    Path(executable).write_text(Path(executable).read_text().replace("codex-cli 0.163.0", version))
    with anyio.fail_after(30):
        async with CodexRuntime({**env, "CODEX_PATH": executable}) as runtime:
            with pytest.raises(RuntimeMissing, match=told):
                await runtime.auth_status()
