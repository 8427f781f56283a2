"""Nothing outlives the adapter, the runtime or the guard (design section 5, "orphan")."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

import anyio
import psutil
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from sayagain.errors import RuntimeFault, SessionInUse
from sayagain.processes import proc
from sayagain.processes import spawn as module
from sayagain.processes.lease import acquire
from sayagain.processes.spawn import ExitStatus, spawn

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watches processes by pidfd")

TREE = ("runtime", "child", "daemon")
ENV = dict(os.environ)


async def test_a_killed_adapter_takes_everything_with_it(adapter, watch):
    running = adapter()
    await watch.told("adapter", "guard", *TREE)
    running.sigkill()
    await watch.gone("guard")
    assert all(watch.is_gone(name) for name in TREE)


async def test_a_killed_runtime_takes_what_its_tools_left_behind_with_it(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    watch.send("runtime", signal.SIGKILL)
    with anyio.fail_after(30):
        assert await process.wait() == ExitStatus(code=None, signal=9)
    assert all(watch.is_gone(name) for name in TREE)
    await process.aclose()


async def test_a_killed_guard_takes_the_runtime_with_it(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    os.kill(process.pid, signal.SIGKILL)
    await watch.gone("runtime")
    with anyio.fail_after(30):
        assert await process.wait() == ExitStatus(code=None, signal=9)
    await process.aclose()


async def test_kill_ends_everything_before_it_returns(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    with anyio.fail_after(30):
        assert await process.kill() == ExitStatus(code=None, signal=9)
    assert all(watch.is_gone(name) for name in TREE)
    await process.aclose()


async def test_closing_ends_everything_even_when_cancelled(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await process.aclose()
    assert process.status == ExitStatus(code=None, signal=9)
    assert all(watch.is_gone(name) for name in TREE)
    await process.aclose()


async def test_a_cancelled_kill_is_under_way(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await process.kill()
    await watch.gone(*TREE)
    await process.aclose()


@pytest.mark.parametrize(
    ("order", "status"),
    [
        (b"exit 0", ExitStatus(code=0, signal=None)),
        (b"exit 143", ExitStatus(code=143, signal=None)),
        (b"signal 6", ExitStatus(code=None, signal=6)),
    ],
)
async def test_the_end_of_the_runtime_is_told_exactly(watch, order, status):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await process.stdin.send(order + b"\n")
    with anyio.fail_after(30):
        assert await process.wait() == status
    assert process.status == status
    await process.aclose()


async def test_end_of_file_passes_both_ways(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    await process.stdin.send(b"say hello\n")
    with anyio.fail_after(30):
        assert await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 64) == b"hello"
        for name in ("child", "daemon"):  # they hold copies of standard output
            watch.send(name, signal.SIGKILL)
        await process.stdin.send(b"close-stdout\n")
        await watch.told("closed")
        with pytest.raises(anyio.EndOfStream):
            await process.stdout.receive()
        assert not watch.is_gone("runtime")
        await process.stdin.aclose()
        assert await process.wait() == ExitStatus(code=0, signal=None)
    await process.aclose()


async def test_a_closed_standard_input_is_a_broken_pipe():
    script = "exec 0<&-; echo closed; exec tail -f /dev/null"
    process = await spawn(["sh", "-c", script], cwd="/", env=ENV)
    with anyio.fail_after(30):
        await process.stdout.receive()
        with suppress(anyio.BrokenResourceError):
            while True:
                await process.stdin.send(b"x" * 4096)
    await process.aclose()


async def test_the_first_request_to_end_is_passed_on_and_the_second_kills(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    process.terminate()
    await watch.told("sigterm")
    assert not watch.is_gone("runtime")
    process.terminate()
    with anyio.fail_after(30):
        assert await process.wait() == ExitStatus(code=None, signal=9)
    assert all(watch.is_gone(name) for name in TREE)
    process.terminate()
    await process.aclose()


async def test_the_runtime_has_its_own_session_and_is_below_the_guard(watch):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    runtime = process.runtime_pid
    assert runtime == watch.pids["runtime"]
    assert len({os.getsid(0), os.getsid(process.pid), os.getsid(runtime)}) == 3
    assert {child.pid for child in psutil.Process(process.pid).children()} == {runtime, watch.pids["daemon"]}
    assert set(proc.descendants(process.pid)) == {watch.pids[name] for name in TREE}
    await process.aclose()


async def test_a_cancelled_start_leaves_nothing_running(watch):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await spawn(watch.tree, cwd="/", env=ENV)
    assert scope.cancelled_caught
    assert proc.descendants(os.getpid()) == []


@pytest.fixture
def no_subreaper(tmp_path, monkeypatch):
    """Guards work as on systems other than Linux."""
    script = tmp_path / "guard_elsewhere.py"
    folder = str(module._GUARD.parent)
    script.write_text(
        f"import sys\nsys.path.insert(0, {folder!r})\nimport guard\nguard.LINUX = False\n"
        "sys.exit(guard.main(sys.argv[1:]))\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(module, "_GUARD", script)


@pytest.mark.usefixtures("no_subreaper")
@pytest.mark.parametrize("by_itself", [True, False])
async def test_elsewhere_the_process_group_ends(watch, by_itself):
    process = await spawn(watch.tree, cwd="/", env=ENV)
    await watch.told(*TREE)
    with anyio.fail_after(30):
        if by_itself:
            await process.stdin.send(b"exit 3\n")
            assert await process.wait() == ExitStatus(code=3, signal=None)
        else:
            assert await process.kill() == ExitStatus(code=None, signal=9)
    await watch.gone("child")  # the daemon left the group
    await process.aclose()


@pytest.mark.usefixtures("no_subreaper")
async def test_elsewhere_a_runtime_that_outlives_its_guard_keeps_the_lease(watch, tmp_path):
    lease = await acquire(tmp_path, "s1", patience=0)
    process = await spawn(watch.tree, cwd="/", env=ENV, hold_fds=[lease.fileno()])
    await watch.told(*TREE)
    watch.add("guard", process.pid)
    watch.send("guard", signal.SIGKILL)
    await watch.gone("guard")
    assert not watch.is_gone("runtime")
    lease.release()
    with pytest.raises(SessionInUse):
        await acquire(tmp_path, "s1", patience=0)
    for name in ("runtime", "child", "daemon"):
        watch.send(name, signal.SIGKILL)
    await watch.gone("runtime", "child", "daemon")
    (await acquire(tmp_path, "s1", patience=0)).release()
    await process.aclose()


async def test_a_guard_that_cannot_work_is_told(tmp_path, monkeypatch):
    script = tmp_path / "guard.py"
    script.write_text("raise SystemExit('no luck')\n", encoding="utf-8")
    monkeypatch.setattr(module, "_GUARD", script)
    with anyio.fail_after(30):
        with pytest.raises(RuntimeFault, match=r"guards it failed\. no luck"):
            await spawn(["true"], cwd="/", env=ENV)
