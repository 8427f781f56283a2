"""An adapter: leases a session, starts a runtime under its guard, and stays.

argv: FIFO, backend, the folder of sessions, a mode, and the runtime's argv (the tree, if there is none). The mode
``leak``: a fork without exec keeps the adapter's end of the channel open beyond the adapter's death. Our standard input
becomes the runtime's.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio

from sayagain.processes.lease import acquire
from sayagain.processes.spawn import spawn

FIFO, BACKEND, STATE, MODE, *ARGV = sys.argv[1:]


def report(text: str) -> None:
    fd = os.open(FIFO, os.O_WRONLY)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


async def main() -> None:
    lease = await acquire(Path(STATE), "s1", patience=0)
    argv = ARGV or [sys.executable, str(Path(__file__).with_name("tree.py")), FIFO]
    process = await spawn(argv, cwd=Path.cwd(), env=dict(os.environ), hold_fds=(lease.fileno(),), stderr=print)
    lease.add_holder(process.pid)
    if MODE == "leak" and os.fork() == 0:
        os.close(lease.fileno())
        report(f"leak {os.getpid()}")
        while True:
            signal.pause()
    report(f"guard {process.pid}")
    report(f"adapter {os.getpid()}")
    if ARGV:
        report(f"runtime {process.runtime_pid}")  # the tree says so itself
    if lines := sys.stdin.buffer.read():
        await process.stdin.send(lines)
    async for _ in process.stdout:
        pass
    await anyio.sleep_forever()


anyio.run(main, backend=BACKEND)
