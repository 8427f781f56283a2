"""A runtime's process under a recorder's hand: its messages in order, both ways, and ways to wait for one.

This drives a runtime as plainly as it goes, on purpose without the adapter: a recording made through the adapter would
only show what the adapter already knows.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
from anyio.abc import ByteReceiveStream, Process

from sayagain.processes.executable import bundled

__all__ = ["Message", "RecordedProcess", "RecordingPlace", "executable_in"]

Message: TypeAlias = Mapping[str, Any]

_PATIENCE: Final = 60.0
"""Seconds until a recording that waits for a message is given up; none of a good one comes near it."""

_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks at what is true outside: a tool tells nobody that it runs."""


def executable_in(package: str, folder: str, name: str) -> Path:
    """The runtime that an installed package carries; raises :class:`FileNotFoundError`."""
    found = bundled(package, folder, name)
    if found is None:
        raise FileNotFoundError(f"no bundled {name} executable: is the package of {package} installed?")
    return Path(found)


@dataclass(frozen=True)
class RecordingPlace:
    """The folders of one recording, all under one fresh folder."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "home" / "project"


class RecordedProcess:
    """What was said both ways (``log``, each with ``in`` or ``out``), and ways to say more and wait for an answer."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.log: list[tuple[str, Message]] = []
        self.prompts: dict[str, str] = {}
        self.numbers = count(1)
        self._news = anyio.Event()
        self._ended = False

    def answer(self, message: Message) -> Message | None:
        """What to send at once for a message of the runtime's; overridden for those that ask."""
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        """Write one line."""
        assert self.process.stdin is not None
        self.log.append(("in", message))
        await self.process.stdin.send(json.dumps(message).encode() + b"\n")

    async def until(self, wanted: Callable[[Message], bool], since: int = 0) -> Message:
        """The first message of the runtime at or after ``since`` in the log that is ``wanted``."""
        with anyio.fail_after(_PATIENCE):
            position = since
            while True:
                while position < len(self.log):
                    direction, message = self.log[position]
                    position += 1
                    if direction == "out" and wanted(message):
                        return message
                if self._ended:
                    raise EOFError("the runtime ended before the message came")
                await self._news.wait()

    async def sees(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true outside; asked for at each message and, between them, ever so often."""
        with anyio.fail_after(_PATIENCE):
            while not condition():
                with anyio.move_on_after(_LOOK_AGAIN):
                    await self._news.wait()

    async def file(self, path: Path) -> None:
        """Wait until a tool has made the file."""
        await self.sees(path.exists)

    async def finish(self) -> None:
        """Close standard input and wait for the end."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with anyio.fail_after(_PATIENCE):
            await self.process.wait()

    async def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Read and answer while the block lasts, then end it."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read)
            try:
                yield
                if self.process.returncode is None:
                    await self.finish()
            except Exception as error:  # noqa: BLE001 - raised again below, without a group around it
                failure = error
            finally:
                if self.process.returncode is None:
                    self.process.kill()
        if failure is not None:
            raise failure

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in _lines(self.process.stdout):
            message = cast("dict[str, Any]", json.loads(line))
            self.log.append(("out", message))
            answer = self.answer(message)
            if answer is not None:
                await self.send(answer)
            self._wake()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    pending = b""
    async for data in stream:
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
