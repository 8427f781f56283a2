"""What the kernel says of a process: CPU time, memory, what it read, what it started. Linux only."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = [
    "bytes_read",
    "cpu_seconds",
    "descendants",
    "end_leftovers",
    "helpers_memory",
    "load_average",
    "peak_memory",
    "reset_peak_memory",
    "resident_memory",
]

_CPUCLOCK_SCHED = 2

LEFTOVER_PATIENCE = 5.0
"""Seconds for what an ended agent had started to follow it by itself."""


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, all its threads, without its children.

    The clock that ``clock_getcpuclockid`` names: the sum that ``/proc/<pid>/stat`` gives in ticks of 10 ms, in
    nanoseconds.
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def resident_memory(pid: int) -> int:
    """Bytes resident now."""
    return _status_bytes(pid, "VmRSS")


def peak_memory(pid: int) -> int:
    """Most bytes resident since the start, or since :func:`reset_peak_memory`."""
    return _status_bytes(pid, "VmHWM")


def reset_peak_memory(pid: int) -> None:
    """Let the peak begin at what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def bytes_read(pid: int) -> int:
    """Bytes that the process's reads have returned so far: files, pipes and sockets."""
    return _fields(Path(f"/proc/{pid}/io"))["rchar"]


def descendants(pid: int) -> list[psutil.Process]:
    """Everything that the process started and that still hangs below it."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def helpers_memory(pid: int, *, besides: str) -> int:
    """Bytes resident in what the process started, but for processes of the executable ``besides``."""
    total = 0
    for process in descendants(pid):
        with suppress(psutil.Error):  # it ends just now
            if process.exe() != besides:
                total += process.memory_info().rss
    return total


def end_leftovers(processes: list[psutil.Process]) -> None:
    """Wait until these are gone, so that they do not run beside the next measurement; kill what stays."""
    _, alive = psutil.wait_procs(processes, timeout=LEFTOVER_PATIENCE)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=LEFTOVER_PATIENCE)


def load_average() -> tuple[float, float, float]:
    """Over 1, 5 and 15 minutes."""
    return os.getloadavg()


def _status_bytes(pid: int, name: str) -> int:
    return _fields(Path(f"/proc/{pid}/status"))[name] * 1024


def _fields(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0])
    return found
