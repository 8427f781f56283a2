"""A command of sayagain that is struck at named instants: ``armed.py RECORD STRIKE[,STRIKE...] -- codex ...``.

A strike is ``POINT:N:ACTION``: what happens at the N-th passing of the point. Each passing is written to the file
RECORD, a line with the point's name, and ``POINT:N:ACTION`` after it when that strikes. ``-`` is no strike at all.

===============  =====================================================================
action           what it does
===============  =====================================================================
``kill``         SIGKILL of this process
``kill_runtime`` SIGKILL of the runtime alone; it is gone when the point is left
``kill_both``    both of these, the runtime first
``stop_runtime`` SIGSTOP of the runtime
``pause``        SIGSTOP of this process: whoever started it lets it go on
``full``         the disk is full: an error of the system's, where something is written
===============  =====================================================================
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sayagain.fault_points import Point, install

__all__ = ["ACTIONS", "arm"]

GONE = 10.0
"""Seconds for a process to end after SIGKILL."""


def _runtime() -> list[int]:
    """What runs under the guards, which are our children."""
    import psutil

    found = []
    for guard in psutil.Process().children():
        with suppress(psutil.Error):
            found += [process.pid for process in guard.children(recursive=True)]
    return found


def _signal_runtime(number: int) -> list[int]:
    pids = _runtime()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_runtime() -> None:
    handles = []
    for pid in _runtime():
        with suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
            os.kill(pid, signal.SIGKILL)
    for handle in handles:
        select.select([handle], [], [], GONE)
        os.close(handle)


def kill_both() -> None:
    kill_runtime()
    kill()


def stop_runtime() -> None:
    _signal_runtime(signal.SIGSTOP)


def pause() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


ACTIONS: Mapping[str, Callable[[], None]] = {
    action.__name__: action for action in (kill, kill_runtime, kill_both, stop_runtime, pause, full)
}


def arm(record: str, strikes: Sequence[str]) -> None:
    """Strike in this process from now on."""
    planned = {}
    for strike in strikes:
        point, nth, action = strike.split(":")
        planned[Point[point.upper()], int(nth)] = strike, ACTIONS[action]
    passed: Counter[Point] = Counter()
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hook(point: Point) -> None:
        passed[point] += 1
        strike, action = planned.get((point, passed[point]), ("", None))
        os.write(file, f"{point.name.lower()} {strike}".rstrip().encode() + b"\n")
        if action is not None:
            action()

    install(hook)


def main() -> int:
    record, strikes, _, *command = sys.argv[1:]
    arm(record, [] if strikes == "-" else strikes.split(","))
    from sayagain.cli import main as sayagain

    return sayagain(command)


if __name__ == "__main__":
    # Modules of the tests that lie beside this one are none of the product's business.
    sys.path.pop(0)
    sys.exit(main())
