"""What tests of processes share: pids told over a FIFO, and processes watched by descriptor, so nothing polls."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

PROGRAMS = Path(__file__).with_name("programs")


class Watch:
    """Pids that programs report as ``name pid`` lines, each held by a descriptor that tells its end."""

    def __init__(self, folder: Path) -> None:
        self.fifo = folder / "fifo"
        self.tree = [sys.executable, str(PROGRAMS / "tree.py"), str(self.fifo)]
        self.pids: dict[str, int] = {}
        self._handles: dict[str, int] = {}
        os.mkfifo(self.fifo)
        self._fd = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK)
        self._text = ""

    async def told(self, *names: str) -> None:
        """Wait until each of the names has been reported."""
        with anyio.fail_after(30):
            while not set(names) <= self.pids.keys():
                await anyio.wait_readable(self._fd)
                self._text += os.read(self._fd, 4096).decode()
                *lines, self._text = self._text.split("\n")
                for line in lines:
                    name, _, pid = line.partition(" ")
                    self.add(name, int(pid))

    def add(self, name: str, pid: int) -> None:
        self.pids[name] = pid
        if pid:
            self._handles[name] = os.pidfd_open(pid)

    async def gone(self, *names: str) -> None:
        """Wait until each of them has ended."""
        with anyio.fail_after(30):
            for name in names:
                await anyio.wait_readable(self._handles[name])

    def is_gone(self, name: str) -> bool:
        """Whether it has ended, without waiting."""
        return bool(select.select([self._handles[name]], [], [], 0)[0])

    def send(self, name: str, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handles[name], number)

    def close(self) -> None:
        os.close(self._fd)
        if guard := self._handles.get("guard"):  # its adapter has ended, so it ends too, and more than we know of
            self.send("guard", signal.SIGCONT)
            select.select([guard], [], [], 30)
        for name, handle in self._handles.items():
            if not self.is_gone(name):
                self.send(name, signal.SIGKILL)
            os.close(handle)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(tmp_path)
    yield watch
    watch.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The folder in which a runtime keeps its sessions."""
    return tmp_path / "state"


@pytest.fixture
def adapter(watch: Watch, state: Path, anyio_backend: str) -> Iterator[type[Adapter]]:
    """Starts adapters in processes of their own; their leases are the test's."""
    Adapter.started = []
    Adapter.arguments = [sys.executable, str(PROGRAMS / "adapter.py"), str(watch.fifo), anyio_backend, str(state)]
    yield Adapter
    for process in Adapter.started:
        process.kill()
        process.wait()


class Adapter:
    """A running ``programs/adapter.py``."""

    started: list[subprocess.Popen[bytes]]
    arguments: list[str]

    def __init__(self, mode: str = "plain", *argv: str, stdin: bytes = b"", **options: Any) -> None:
        self.process = subprocess.Popen([*self.arguments, mode, *argv], stdin=subprocess.PIPE, **options)
        self.started.append(self.process)
        assert self.process.stdin is not None
        self.process.stdin.write(stdin)
        self.process.stdin.close()

    def sigkill(self) -> None:
        """As by a crash of the adapter; it is collected too."""
        self.process.kill()
        self.process.wait()
