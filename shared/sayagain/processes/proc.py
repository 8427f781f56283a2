"""Facts about processes of this machine: is it still the same one, what is below it.

A process is named by its pid *and* its start time, since pids are used again. Linux reads ``/proc``; elsewhere ``ps``
answers, at the cost of a process of its own.
"""

from __future__ import annotations

import calendar
import os
import signal
import subprocess
import time
from pathlib import Path

__all__ = ["alive", "descendants", "pid_space", "send_signal", "start_time"]

_PROC = Path("/proc")
_STATE, _PARENT, _START = 0, 1, 19
"""Fields of ``/proc/<pid>/stat`` after the command's name: the third, fourth and 22nd of proc(5)."""


def start_time(pid: int) -> int | None:
    """When ``pid`` started, or ``None`` when there is no such process.

    Clock ticks since boot on Linux, seconds since the epoch elsewhere: comparable on one machine only. A zombie has
    ended: ``None``.
    """
    if not _has_proc():
        return _start_time_from_ps(pid)
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] in {"Z", "X"} else int(fields[_START])


def alive(pid: int, start: int | None) -> bool:
    """Whether the process that was recorded as ``pid`` and ``start`` still runs.

    With ``start`` unknown (``None``) any process of that pid counts.
    """
    now = start_time(pid)
    return now is not None and start in {None, now}


def send_signal(pid: int, start: int, number: int) -> bool:
    """Send a signal to the process that was recorded as ``pid`` and ``start``: false when it is gone.

    A process that took over the pid is never hit: the check is made with a descriptor of the process in hand where
    the system has such.
    """
    try:
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        return False
    try:
        if not alive(pid, start):
            return False
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def pid_space() -> str:
    """Names the PID namespace of this process: a sandbox has its own pids. Empty where there are none."""
    try:
        return str((_PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """Everything below ``pid``, zombies included, parents before their children.

    Those that were re-parented elsewhere are not found.
    """
    below = _by_parent()
    found: list[int] = []
    parents = [pid]
    while parents:
        more = below.pop(parents.pop(), [])
        found += more
        parents += more
    return found


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the command's name may hold anything, parentheses and spaces too


def _by_parent() -> dict[int, list[int]]:
    parents: dict[int, list[int]] = {}
    if _has_proc():
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        pairs = [(pid, int(fields[_PARENT])) for pid in pids if (fields := _stat(pid)) is not None]
    else:
        pairs = _pairs_from_ps()
    for pid, parent in pairs:
        parents.setdefault(parent, []).append(pid)
    return parents


def _ps(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["ps", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        )
    except OSError:
        return ""
    return done.stdout


def _start_time_from_ps(pid: int) -> int | None:
    state, _, started = _ps("-o", "stat=,lstart=", "-p", str(pid)).strip().partition(" ")
    if not started or state.startswith("Z"):
        return None
    return calendar.timegm(time.strptime(started.strip(), "%a %b %d %H:%M:%S %Y"))


def _pairs_from_ps() -> list[tuple[int, int]]:
    rows = (line.split() for line in _ps("-axo", "pid=,ppid=").splitlines())
    return [(int(pid), int(parent)) for pid, parent in rows]
