"""What a runtime gets, and what a failed start says."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteReceiveStream

from sayagain.errors import RuntimeFault, RuntimeMissing
from sayagain.processes import spawn as module
from sayagain.processes.spawn import STDERR_TAIL, ExitStatus, begin, spawn

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX only")


async def read_all(stream: ByteReceiveStream) -> bytes:
    with anyio.fail_after(30):
        return b"".join([part async for part in stream])


async def output(*argv: str, cwd: str | Path = "/", env: dict[str, str] | None = None, hold_fds: tuple[int, ...] = ()):
    process = await spawn(argv, cwd=cwd, env={"PATH": os.environ["PATH"]} if env is None else env, hold_fds=hold_fds)
    try:
        return (await read_all(process.stdout)).decode()
    finally:
        await process.aclose()


@pytest.mark.parametrize(
    "extra", [{}, {"LC_CTYPE": "C"}, {"LC_ALL": "C", "X": "1"}, {"LC_CTYPE": "", "PYTHONHOME": "/x"}]
)
async def test_the_environment_is_exactly_the_given_one(extra):
    env = {"PATH": os.environ["PATH"], **extra}
    lines = (await output("env", env=env)).splitlines()
    assert dict(line.split("=", 1) for line in lines) == env


async def test_the_runtime_gets_its_streams_and_no_other_descriptor(tmp_path):
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        listing = await output("sh", "-c", "for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
                               "if [ -e /dev/fd/$fd ]; then echo $fd; fi; done", hold_fds=(held,))  # fmt: skip
    finally:
        os.close(held)
    assert listing.split() == ["0", "1", "2"]


async def test_a_broken_pipe_ends_the_runtime_as_elsewhere():
    assert await output("sh", "-c", "(yes; echo status $? >&3) 3>&1 | head -n 0; true") in {"", "status 141\n"}
    assert "status 141" in await output("sh", "-c", "{ { yes; echo status $? >&3; } | true; } 3>&1")


async def test_relative_names_are_found_from_the_working_directory(tmp_path):
    script = tmp_path / "bin" / "tool"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\npwd -P\n", encoding="utf-8")
    script.chmod(0o755)
    assert await output("bin/tool", cwd=tmp_path) == f"{tmp_path.resolve()}\n"
    assert await output("tool", cwd=tmp_path, env={"PATH": str(script.parent)}) == f"{tmp_path.resolve()}\n"


async def test_a_failed_start_says_what_is_missing(tmp_path):
    def script(name: str, text: str, mode: int) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return str(path)

    cases = {
        ("true", "/nonexistent"): "working directory /nonexistent does not exist",
        ("true", script("file", "", 0o644)): "is no directory",
        ("no-such-command", "/"): "no-such-command is not on PATH",
        ("/no/such/file", "/"): "/no/such/file does not exist",
        (str(tmp_path), "/"): "is no file",
        (script("plain", "#!/bin/sh\n", 0o644), "/"): "not executable",
        (script("lost", "#!/no/such/interpreter\n", 0o755), "/"): "interpreter or loader does not exist",
        (script("noise", "\x7fnonsense", 0o755), "/"): "Exec format error",
    }
    for (name, cwd), text in cases.items():
        with anyio.fail_after(30):
            with pytest.raises(RuntimeMissing, match=text):
                await spawn([name], cwd=cwd, env={"PATH": os.environ["PATH"]})


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors")
async def test_a_start_without_a_thread_to_spare_leaves_nothing(monkeypatch):
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module._Stderr, "start", start)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(RuntimeFault, match="cannot be started: Resource temporarily unavailable"):
        await spawn(["true"], cwd="/", env={"PATH": os.environ["PATH"]})
    assert set(Path("/proc/self/fd").iterdir()) == before


async def test_a_start_that_is_given_up_does_not_wait_for_a_guard_that_hangs(monkeypatch):
    monkeypatch.setattr(module, "KILL_PATIENCE", 0)
    starting: Any = await begin(["sleep", "60"], cwd="/", env={"PATH": os.environ["PATH"]})
    os.kill(starting._process.pid, signal.SIGSTOP)
    # The waiting is shielded, so only the guard itself could end a test that fails.
    rescue = threading.Timer(10, os.kill, (starting._process.pid, signal.SIGCONT))
    rescue.start()
    try:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await starting.running()
    finally:
        rescue.cancel()
    assert starting._process.returncode == -signal.SIGKILL


async def test_standard_error_is_handed_out_by_line_and_its_tail_kept():
    lines: list[str] = []
    script = "printf 'one\\ntwo' >&2; printf '\\377 x\\n\\nlast' >&2; exit 3"
    process = await spawn(["sh", "-c", script], cwd="/", env={"PATH": os.environ["PATH"]}, stderr=lines.append)
    with anyio.fail_after(30):
        assert await process.wait() == ExitStatus(code=3, signal=None)
    assert lines == ["one", "two\ufffd x", "", "last"]
    assert process.stderr_tail == "one\ntwo\ufffd x\n\nlast"
    await process.aclose()


async def test_waiting_for_the_end_waits_for_standard_error(monkeypatch):
    waited_for = threading.Event()
    run_sync = anyio.to_thread.run_sync

    async def noted(*arguments: Any) -> None:
        waited_for.set()
        await run_sync(*arguments)

    def slow(line: str) -> None:
        waited_for.wait(30)
        lines.append(line)

    lines: list[str] = []
    process = await spawn(["sh", "-c", "echo one >&2"], cwd="/", env={"PATH": os.environ["PATH"]}, stderr=slow)
    monkeypatch.setattr(anyio.to_thread, "run_sync", noted)
    await process.wait()
    assert lines == ["one"]
    await process.aclose()


async def test_standard_error_without_end_neither_stops_the_runtime_nor_fills_memory():
    sizes: list[int] = []
    process = await spawn(
        ["sh", "-c", "yes | head -c 1000000 | tr -d '\\n' >&2"],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        stderr=lambda line: sizes.append(len(line)),
    )
    with anyio.fail_after(30):
        await process.wait()
    assert sum(sizes) == 500_000
    assert len(sizes) > 5
    assert len(process.stderr_tail) == STDERR_TAIL
    await process.aclose()


async def test_a_failing_handler_is_dropped_and_the_rest_still_read(caplog):
    def fail(_line: str) -> None:
        raise ValueError

    script = "echo one >&2; echo two >&2"
    process = await spawn(["sh", "-c", script], cwd="/", env={"PATH": os.environ["PATH"]}, stderr=fail)
    with anyio.fail_after(30):
        await process.wait()
    assert process.stderr_tail == "one\ntwo\n"
    assert len(caplog.records) == 1
    await process.aclose()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (ExitStatus(code=3, signal=None), "exit code 3"),
        (ExitStatus(code=None, signal=9), "signal SIGKILL"),
        (ExitStatus(code=None, signal=200), "signal 200"),
    ],
)
def test_a_status_reads_well(status, text):
    assert str(status) == text
