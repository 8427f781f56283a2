"""An agent as a child process: its standard input and output are the transport."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import anyio.abc

from sayagain.client.errors import AgentGone
from sayagain.legible import excerpt, plain
from sayagain.transports import ClosedTransport

__all__ = ["ProcessTransport", "start_agent"]

CLOSING: Final = 10.0
"""Seconds that an agent gets to end by itself after its input was closed: it may have a runtime to end in order."""

DYING: Final = 2.0
"""Seconds after SIGTERM, and for output that is still in the pipe of a process that ended."""

PARTING: Final = 0.5
"""Seconds between the end of an agent's output and its own end, if it does end: its exit code is worth that wait."""

STDERR_TAIL: Final = 4096
"""Bytes of standard error that are kept to explain why an agent ended."""


class ProcessTransport:
    """Implements :class:`~sayagain.transports.Transport`. Made by :func:`start_agent`."""

    def __init__(self, process: anyio.abc.Process, name: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._name = name
        self._tail = b""
        self._exited = anyio.Event()
        self._closed = False
        self._grace = CLOSING

    async def receive(self) -> bytes:
        """See :meth:`Transport.receive <sayagain.transports.Transport.receive>`."""
        try:
            return await self._stdout.receive()
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if self._closed:
                raise ClosedTransport from None
            return b""

    async def send(self, data: bytes) -> None:
        """See :meth:`Transport.send <sayagain.transports.Transport.send>`."""
        try:
            await self._stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ClosedTransport from error

    async def aclose(self) -> None:
        """Close its input: the agent's sign to end."""
        self._closed = True
        await self._stdin.aclose()

    async def epitaph(self) -> str:
        """How the agent ended, with the last line of its standard error; for error messages."""
        with anyio.move_on_after(PARTING):
            await self._exited.wait()
        code = self.process.returncode
        if code is None:
            return f"{self._name} closed its output"
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        last = excerpt(plain(lines[-1]), 300) if lines else ""
        return f"{self._name} {how}" + (f": {last}" if last else "")

    async def drain_stderr(self) -> None:
        """Read standard error to its end: a full pipe would stop the agent."""
        if self.process.stderr is not None:
            async for data in self.process.stderr:
                self._tail = (self._tail + data)[-STDERR_TAIL:]

    async def watch(self) -> None:
        """A process that ended while a child of its holds the pipe open gives no end of file by itself."""
        await self.process.wait()
        self._exited.set()
        await anyio.sleep(DYING)
        await self._stdout.aclose()

    def hurry(self, grace: float) -> None:
        """The agent is known to be no good: let it have no more than these seconds to end by itself."""
        self._grace = min(self._grace, grace)

    async def end(self) -> None:
        """Let it end by itself, then make it."""
        await self.aclose()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain_stdout)
            await self._see_it_end()
            tasks.cancel_scope.cancel()

    async def _see_it_end(self) -> None:
        for patience, make in ((self._grace, self.process.terminate), (DYING, self.process.kill)):
            with anyio.move_on_after(patience):
                await self.process.wait()
                return
            if self.process.returncode is None:
                make()
        await self.process.wait()

    async def _drain_stdout(self) -> None:
        """Who waits to write into a full pipe does not see that its input has ended."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await self._stdout.receive()


@asynccontextmanager
async def start_agent(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    descriptors: Sequence[int] = (),
    show_stderr: bool = False,
) -> AsyncGenerator[ProcessTransport]:
    """Start an agent; it has ended when the context is left. Raises :class:`AgentGone` when it cannot be started.

    ``descriptors`` are inherited by it. It gets a process group of its own, so that a Ctrl-C meant for the client does
    not end it.
    """
    try:
        process = await anyio.open_process(
            list(command),
            env=env,
            cwd=cwd,
            stderr=None if show_stderr else subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(descriptors),
        )
    except OSError as error:
        raise AgentGone(f"{command[0]} cannot be started: {error.strerror}", for_good=True) from error
    transport = ProcessTransport(process, command[0])
    async with process, anyio.create_task_group() as tasks:
        tasks.start_soon(transport.drain_stderr)
        tasks.start_soon(transport.watch)
        try:
            yield transport
        finally:
            with anyio.CancelScope(shield=True):
                await transport.end()
            tasks.cancel_scope.cancel()
