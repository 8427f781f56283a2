"""Facts about processes, from /proc and from ps."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sayagain.processes import proc

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares /proc with ps")


@pytest.fixture
def cat() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"A": "1", "PATH": os.environ["PATH"]}) as process:
        yield process
        process.kill()


def test_a_process_is_its_pid_and_its_start(cat):
    start = proc.start_time(cat.pid)
    assert start is not None
    assert proc.alive(cat.pid, start)
    assert proc.alive(cat.pid, None)
    assert not proc.alive(cat.pid, start + 1)


def test_a_zombie_has_ended(cat):
    start = proc.start_time(cat.pid)
    cat.kill()
    os.waitid(os.P_PID, cat.pid, os.WEXITED | os.WNOWAIT)
    assert proc.start_time(cat.pid) is None
    assert not proc.alive(cat.pid, start)


def test_a_signal_hits_the_recorded_process_only(cat):
    start = proc.start_time(cat.pid)
    assert start is not None
    assert not proc.send_signal(cat.pid, start + 1, signal.SIGKILL)
    assert cat.communicate(b"")[0] is None
    assert cat.returncode == 0
    assert not proc.send_signal(cat.pid, start, signal.SIGKILL)


def test_a_signal_arrives(cat):
    start = proc.start_time(cat.pid)
    assert start is not None
    assert proc.send_signal(cat.pid, start, signal.SIGTERM)
    assert cat.wait() == -signal.SIGTERM


def test_what_is_below(cat):
    assert cat.pid in proc.descendants(os.getpid())
    assert proc.descendants(cat.pid) == []
    cat.kill()
    cat.wait()


def test_a_command_name_may_hold_anything(tmp_path):
    tool = tmp_path / "a) S 1 (b"
    shutil.copy(shutil.which("cat") or "", tool)
    with subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"running\n")
        process.stdin.flush()
        process.stdout.readline()
        assert process.pid in proc.descendants(os.getpid())
        process.kill()


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
def test_ps_answers_where_there_is_no_proc(cat, monkeypatch):
    monkeypatch.setattr(proc, "_has_proc", lambda: False)
    start = proc.start_time(cat.pid)
    assert start is not None
    assert abs(start - time.time()) < 3600
    assert proc.alive(cat.pid, start)
    assert cat.pid in proc.descendants(os.getpid())
    assert proc.start_time(2**22) is None
    monkeypatch.setenv("PATH", "/nonexistent")
    assert proc.start_time(cat.pid) is None
