"""One running Claude Code process: frames in and out over its pipes, its control requests, its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import anyio

from sayagain.errors import RuntimeDied, RuntimeTimeout
from sayagain.processes.spawn import ExitStatus, GuardedProcess
from sayagain.protocol.codec import dumps, loads
from sayagain.protocol.lines import LineSplitter, TooLong
from sayagain_claude.control import PendingControl, control_request

__all__ = ["MAX_FRAME", "MIRROR", "ClaudeProcess"]

logger = logging.getLogger(__name__)

MAX_FRAME: Final = 256 << 20
"""Longest frame in bytes. A mirror frame repeats stored rows, and a row may hold several images of 5 MB each."""

MIRROR: Final = b'{"type":"transcript_mirror"'
"""How mirror frames begin. They repeat every row in full, so only those that can matter are parsed."""


class ClaudeProcess:
    """Frames are read by one task, through :meth:`frames`; requests may be sent by any."""

    def __init__(self, process: GuardedProcess) -> None:
        self._process = process
        self._control = PendingControl()
        self._write_lock = anyio.Lock()
        self._ended = anyio.Event()
        self.awaited: bytes | None = None
        """The id to look for in mirror frames; others are skipped unparsed."""

    @property
    def guard_pid(self) -> int:
        """The process that keeps this one from outliving us."""
        return self._process.pid

    async def frames(self) -> AsyncIterator[Mapping[str, Any] | TooLong]:
        """Every frame but the answers to our control requests, until the process closes its output."""
        splitter = LineSplitter(MAX_FRAME)
        try:
            async for chunk in self._process.stdout:
                for line in splitter.feed(chunk):
                    if isinstance(line, TooLong):
                        yield line
                        continue
                    if line.startswith(MIRROR) and (self.awaited is None or self.awaited not in line):
                        continue
                    frame = _parse(line)
                    if frame is None:
                        continue
                    if frame.get("type") == "control_response":
                        self._control.answer(frame)
                    else:
                        yield frame
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        finally:
            self._ended.set()
            self._control.end()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Write a frame; raises :class:`~sayagain.errors.RuntimeDied` when the process no longer reads."""
        line = dumps(frame) + b"\n"
        async with self._write_lock:
            try:
                await self._process.stdin.send(line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise RuntimeDied from None

    async def request(self, request: Mapping[str, Any], *, patience: float) -> Mapping[str, Any]:
        """Send a control request and wait for its answer; raises like :meth:`PendingControl.result`.

        The patience covers the writing too: a stopped process does not read.
        """
        request_id = self._control.open()
        if self._ended.is_set():
            self._control.end()
        try:
            with anyio.fail_after(patience):
                await self.send(control_request(request_id, request))
        except TimeoutError:
            raise RuntimeTimeout from None
        return await self._control.result(request_id, patience=patience)

    async def finish(self, *, patience: float) -> ExitStatus:
        """End of input, so that it stores what it has; after ``patience`` seconds it is killed."""
        with anyio.move_on_after(patience):
            await self._process.stdin.aclose()
            await self._ended.wait()
        return await self.kill()

    async def kill(self) -> ExitStatus:
        """End it and everything that it started; returns when all is gone."""
        status = await self._process.kill()
        await self._process.aclose()
        return status

    @property
    def complaint(self) -> str:
        """The last line that it wrote on standard error: the CLI's own reason for an early end."""
        lines = self._process.stderr_tail.strip().splitlines()
        return lines[-1] if lines else ""


def _parse(line: bytes) -> Mapping[str, Any] | None:
    """A frame; ``None`` for what is none (some builds print plain text on standard output)."""
    if not line.startswith(b"{"):
        return None
    try:
        frame = loads(line)
    except ValueError as error:
        logger.warning("a frame of Claude Code is not readable: %s", error)
        return None
    return frame if isinstance(frame, dict) else None  # pyright: ignore[reportUnknownVariableType]
