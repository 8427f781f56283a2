"""How the agent under check is started, ended and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, Final, Protocol

import anyio
import anyio.abc

from sayagain.transports import ClosedTransport, Transport

__all__ = ["Agent", "CommandLauncher", "Launcher"]

TAIL: Final = 4000
"""Bytes of the agent's last words on standard error that are kept."""


class Agent(Protocol):
    """A running agent."""

    @property
    def transport(self) -> Transport:
        """Its standard input and output."""
        ...

    async def end(self, grace: float) -> bool:
        """Close its input, as a client does that quits, and wait so many seconds for it to go; then kill it.

        False if it had to be killed.
        """
        ...

    async def kill(self) -> None:
        """End it at once, with all that it started, as a crash of the machine would."""
        ...

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        ...


class Launcher(Protocol):
    """Starts the agent, as often as it is asked to; what the agent stores survives."""

    async def start(self, tasks: anyio.abc.TaskGroup) -> Agent:
        """A running agent, to be ended or killed by the caller; what has to run beside it runs in ``tasks``.

        Raises :class:`OSError` if there is no such command.
        """
        ...


class CommandLauncher:
    """Starts a command over stdio, in a process group of its own."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command = list(command)
        self._env = dict(env)

    async def start(self, tasks: anyio.abc.TaskGroup) -> Agent:
        """Start the command."""
        # A file, not a pipe: it takes all that the agent has to say, read or not.
        words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            process = await anyio.open_process(
                self._command,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                start_new_session=True,
            )
        except BaseException:
            words.close()
            raise
        return _Process(process, words)


class _Process:
    def __init__(self, process: anyio.abc.Process, words: BinaryIO) -> None:
        self._process = process
        self._words = words
        self.transport: Transport = _Pipes(process)

    async def end(self, grace: float) -> bool:
        await self.transport.aclose()
        with anyio.move_on_after(grace):
            await self._process.wait()
        ended = self._process.returncode is not None
        await self.kill()
        return ended

    async def kill(self) -> None:
        # The whole group, even if its leader is gone: a wrapper such as npx may have ended before the agent did.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.aclose()
        self._words.close()

    def last_words(self) -> str:
        descriptor = self._words.fileno()
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, TAIL, max(0, size - TAIL)).decode("utf-8", "replace").strip()


class _Pipes:
    """A child's standard input and output as a transport."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def receive(self) -> bytes:
        try:
            return await self._stdout.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return b""

    async def send(self, data: bytes) -> None:
        try:
            await self._stdin.send(data)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ClosedTransport from error

    async def aclose(self) -> None:
        await self._stdin.aclose()
