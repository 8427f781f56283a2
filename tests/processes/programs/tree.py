"""A runtime with a child, and a daemon that left by setsid and a double fork. Reports pids to the FIFO in argv[1].

Then it obeys lines on standard input: ``exit N``, ``signal N``, ``say TEXT``, ``close-stdout``; it ends at end of file.
"""

from __future__ import annotations

import os
import select
import signal
import sys

FIFO = sys.argv[1]


def report(text: str) -> None:
    fd = os.open(FIFO, os.O_WRONLY)
    os.write(fd, f"{text}\n".encode())  # shorter than PIPE_BUF: never torn
    os.close(fd)


def stay(name: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(f"{name} {os.getpid()}")
    while True:
        signal.pause()


if os.fork() == 0:
    stay("child")
middle = os.fork()
if middle == 0:
    os.setsid()
    if os.fork() == 0:
        stay("daemon")
    os._exit(0)
os.waitpid(middle, 0)


def on_sigterm(_number: int, _frame: object) -> None:
    report("sigterm 0")


def obey(line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "exit":
        os._exit(int(rest))
    if word == "signal":
        os.kill(os.getpid(), int(rest))
    if word == "say":
        print(rest, flush=True)
    if word == "close-stdout":
        os.close(1)
        report("closed 0")


# A signal that comes right before a read would be handled after it only.
wake, told = os.pipe()
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
signal.signal(signal.SIGTERM, on_sigterm)
report(f"runtime {os.getpid()}")
unfinished = b""
while True:
    ready, _, _ = select.select([0, wake], [], [])
    if wake in ready:
        os.read(wake, 64)
    if 0 in ready:
        if not (data := os.read(0, 4096)):
            os._exit(0)
        *lines, unfinished = (unfinished + data).split(b"\n")
        for line in lines:
            obey(line.decode().strip())
