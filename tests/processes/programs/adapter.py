"""An adapter: leases a session, starts the tree under its guard, and stays. argv: FIFO, backend, ``leak`` or nothing.

``leak``: a fork without exec keeps the adapter's end of the channel open beyond the adapter's death.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio

from sayagain.processes.lease import acquire
from sayagain.processes.spawn import spawn

FIFO, BACKEND, *MODE = sys.argv[1:]


def report(text: str) -> None:
    fd = os.open(FIFO, os.O_WRONLY)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


async def main() -> None:
    lease = await acquire("demo", "s1", patience=0)
    tree = str(Path(__file__).with_name("tree.py"))
    process = await spawn(
        [sys.executable, tree, FIFO], cwd="/", env=dict(os.environ), hold_fds=(lease.fileno(),), stderr=print
    )
    lease.add_holder(process.pid)
    if MODE and os.fork() == 0:
        os.close(lease.fileno())
        report(f"leak {os.getpid()}")
        while True:
            signal.pause()
    report(f"guard {process.pid}")
    report(f"adapter {os.getpid()}")
    await anyio.sleep_forever()


anyio.run(main, backend=BACKEND)
