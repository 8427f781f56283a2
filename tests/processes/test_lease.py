"""One process at a time owns a session (design section 5)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from itertools import chain, count
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.errors import RuntimeFault, SessionInUse
from sayagain.processes import lease as module
from sayagain.processes import proc
from sayagain.processes.lease import Lease, acquire, lease_path
from sayagain.processes.state import state_dir

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watches processes by pidfd")


def cat(**options: Any) -> subprocess.Popen[bytes]:
    """A process that lives until its standard input ends."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, **options)


def is_free(path: Path) -> bool:
    """Whether the lock of the file could be taken now."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


async def test_a_second_lease_in_the_same_process_conflicts(state):
    first = await acquire(state, "s1", patience=0)
    with pytest.raises(SessionInUse, match="Another agent of this process"):
        await acquire(state, "s1", patience=0)
    other = await acquire(state, "s2", patience=0)
    first.release()
    first.release()
    again = await acquire(state, "s1", patience=0)
    again.release()
    other.release()
    assert list(state.rglob("*.lock")) == []


async def test_a_live_adapter_keeps_its_session(adapter, watch, state):
    adapter()
    await watch.told("adapter", "guard", "runtime")
    with pytest.raises(SessionInUse, match=rf"\({watch.pids['adapter']}\)"):
        await acquire(state, "s1", patience=0)
    assert not watch.is_gone("runtime")


async def test_a_waiting_acquirer_gets_a_released_session(state, monkeypatch):
    tried = anyio.Event()
    try_lock = module._try_lock

    def noted(path: Path) -> int | None:
        descriptor = try_lock(path)
        if descriptor is None:
            tried.set()
        return descriptor

    first = await acquire(state, "s1", patience=0)
    monkeypatch.setattr(module, "_try_lock", noted)
    got: list[Lease] = []

    async def second() -> None:
        got.append(await acquire(state, "s1", patience=3600))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            await tried.wait()
            first.release()
    got[0].release()


async def test_the_lease_outlives_the_adapter_until_everything_is_gone(adapter, watch, state):
    running = adapter()
    await watch.told("adapter", "guard", "runtime", "child", "daemon")
    watch.send("guard", signal.SIGSTOP)
    running.sigkill()
    path = lease_path(state, "s1")
    assert not is_free(path)
    watch.send("guard", signal.SIGCONT)
    await watch.gone("guard")
    assert all(watch.is_gone(name) for name in ("runtime", "child", "daemon"))
    assert is_free(path)
    taken = await acquire(state, "s1", patience=0)
    taken.release()


async def test_an_orphan_is_asked_to_end(adapter, watch, state, monkeypatch):
    monkeypatch.setattr(module, "ORPHAN_PATIENCE", 3600.0)  # no force
    running = adapter("leak")
    await watch.told("adapter", "guard", "runtime", "child", "daemon", "leak")
    running.sigkill()
    assert not watch.is_gone("guard")  # what was forked holds the adapter's end of the channel
    with anyio.fail_after(30):
        taken = await acquire(state, "s1", patience=0)
    assert all(watch.is_gone(name) for name in ("guard", "runtime", "child", "daemon"))
    taken.release()


async def test_an_orphan_that_does_not_answer_is_ended_by_force(adapter, watch, state, monkeypatch):
    monkeypatch.setattr(module, "ORPHAN_PATIENCE", 30.0)
    now = anyio.current_time()
    clock = chain([now, now], count(now + 15, 0.25))  # half of the patience is over at the second look
    monkeypatch.setattr(module.anyio, "current_time", lambda: next(clock))
    running = adapter()
    await watch.told("adapter", "guard", "runtime", "child", "daemon")
    watch.send("guard", signal.SIGSTOP)
    running.sigkill()
    taken = await acquire(state, "s1", patience=0)
    await watch.gone("guard", "runtime", "child", "daemon")
    taken.release()


@pytest.mark.parametrize("start", [1, None])
async def test_a_process_that_took_over_a_pid_is_left_alone(state, monkeypatch, start):
    monkeypatch.setattr(module, "ORPHAN_PATIENCE", 0.0)
    path = lease_path(state, "s1")
    path.parent.mkdir(parents=True)
    with cat(stdout=subprocess.PIPE) as innocent, path.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        record = {
            "space": proc.pid_space(),
            "pid": os.getpid(),
            "start": 1,
            "guards": [{"pid": innocent.pid, "start": start}],
        }
        path.write_text(json.dumps(record), encoding="utf-8")
        with pytest.raises(SessionInUse, match="left behind"):
            await acquire(state, "s1", patience=0)
        answer, _ = innocent.communicate(b"alive")
        assert answer == b"alive"
        assert innocent.returncode == 0


async def test_a_lock_on_a_removed_file_is_no_lease(state, monkeypatch):
    path = lease_path(state, "s1")
    flock = fcntl.flock
    calls = 0

    def released_meanwhile(descriptor: int, operation: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:  # the owner releases between our open and our lock
            path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(module.fcntl, "flock", released_meanwhile)
    taken = await acquire(state, "s1", patience=0)
    assert calls == 2
    assert path.stat().st_ino == os.fstat(taken.fileno()).st_ino
    taken.release()


async def test_a_release_before_the_guard_has_ended_leaves_the_lock_with_the_guard(state):
    mine = await acquire(state, "s1", patience=0)
    with cat(pass_fds=[mine.fileno()]) as guard:
        mine.add_holder(guard.pid)
        mine.release()
        with pytest.raises(SessionInUse):
            await acquire(state, "s1", patience=0)
        guard.communicate()
    taken = await acquire(state, "s1", patience=0)
    taken.release()


async def test_a_session_whose_file_says_nothing_yet_is_in_use(state):
    path = lease_path(state, "s1")
    path.parent.mkdir(parents=True)
    for content in ("", "{", "[]", '{"pid": "x"}'):
        with path.open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            path.write_text(content, encoding="utf-8")
            with pytest.raises(SessionInUse):
                await acquire(state, "s1", patience=0)


async def test_the_file_names_the_adapter_and_the_live_guards(state):
    taken = await acquire(state, "s1", patience=0)
    me = {"space": proc.pid_space(), "pid": os.getpid(), "start": proc.start_time(os.getpid())}
    assert json.loads(taken.path.read_bytes()) == {**me, "guards": []}
    with cat() as first:
        taken.add_holder(first.pid)
        assert [guard["pid"] for guard in json.loads(taken.path.read_bytes())["guards"]] == [first.pid]
        first.communicate()
    with cat() as second:
        taken.add_holder(second.pid)
        start = proc.start_time(second.pid)
        assert json.loads(taken.path.read_bytes()) == {**me, "guards": [{"pid": second.pid, "start": start}]}
        second.communicate()
    taken.release()


async def test_no_lease_without_a_usable_folder(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(RuntimeFault, match="cannot be owned") as caught:
        await acquire(blocked, "s1", patience=60)
    assert not isinstance(caught.value, SessionInUse)
    assert str(blocked) in str(caught.value)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "pwrite", full)
        with pytest.raises(RuntimeFault, match="No space left"):
            await acquire(tmp_path, "s1", patience=0)
    taken = await acquire(tmp_path, "s1", patience=0)
    taken.release()


async def test_folders_are_made_for_their_owner_alone(tmp_path):
    taken = await acquire(tmp_path / "home" / "runtime", "s1", patience=0)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()} == {0o700}
    taken.release()


async def test_what_adapters_in_other_sandboxes_call_their_pids_says_nothing(state, monkeypatch):
    path = lease_path(state, "s1")
    path.parent.mkdir(parents=True)
    with cat() as innocent, path.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        guard = {"pid": innocent.pid, "start": proc.start_time(innocent.pid)}
        record = {"space": "pid:[1]", "pid": os.getpid(), "start": 1, "guards": [guard]}
        path.write_text(json.dumps(record), encoding="utf-8")
        with pytest.raises(SessionInUse) as caught:
            await acquire(state, "s1", patience=0)
        assert "left behind" not in str(caught.value)
        innocent.communicate()
        assert innocent.returncode == 0


@pytest.mark.parametrize(
    "session_id", ["../../etc/passwd", "a/b", "", ".hidden", "x" * 129, "é", "a\0b", "\ud800", "a\n"]
)
def test_an_id_that_is_no_file_name_is_hashed(session_id):
    folder = Path("/s/sayagain/leases")
    path = lease_path(Path("/s"), session_id)
    assert path.parent == folder
    assert len(path.stem) == 64
    assert path != lease_path(Path("/s"), session_id + "'")


def test_an_ordinary_id_is_the_files_name():
    path = lease_path(Path("/s"), "0b5c-A.1")
    assert path == Path("/s/sayagain/leases/0b5c-A.1.lock")


def test_the_state_directory(monkeypatch):
    assert state_dir({"SAYAGAIN_STATE_DIR": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/s")
    assert state_dir({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/x/sayagain")
    assert state_dir({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == Path("/h/.local/state/sayagain")
    assert state_dir({"HOME": "/h"}) == Path("/h/.local/state/sayagain")
    with pytest.raises(RuntimeFault, match="absolute"):
        state_dir({"SAYAGAIN_STATE_DIR": "relative"})
    monkeypatch.setenv("SAYAGAIN_STATE_DIR", "/from/environment")
    assert state_dir() == Path("/from/environment")
