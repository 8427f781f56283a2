"""One running Claude Code process: frames in and out over its pipes, its control requests, its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from math import inf
from typing import Any, Final

import anyio

from sayagain.errors import RuntimeDied
from sayagain.processes.spawn import ExitStatus, GuardedProcess
from sayagain.protocol.codec import dumps, loads
from sayagain.protocol.lines import LineSplitter, TooLong
from sayagain_claude.clock import Clock
from sayagain_claude.control import PendingControl, control_request

__all__ = ["COMPLAINTS", "MAX_FRAME", "MIRROR", "ClaudeProcess"]

logger = logging.getLogger(__name__)

MAX_FRAME: Final = 256 << 20
"""Longest frame in bytes. A mirror frame repeats stored rows, and a row may hold several images of 5 MB each."""

COMPLAINTS: Final = (
    "No conversation found",
    "already in use",
    "Invalid settings",
    "unknown option",
    "out of memory",
)
"""What the CLI says on standard error before an early end, as far as it holds nothing of the user's. The rest of such a
line may: paths, arguments, what a server or a hook printed."""

MIRROR: Final = b'{"type":"transcript_mirror"'
"""How mirror frames begin. They repeat every row in full, so only those that can matter are parsed."""


class ClaudeProcess:
    """Frames are read by one task, through :meth:`frames`; requests may be sent by any."""

    def __init__(self, process: GuardedProcess) -> None:
        self._process = process
        self._control = PendingControl()
        self._clock = Clock()
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
                        self._clock.stop()
                        yield line
                        self._clock.go()
                        continue
                    if line.startswith(MIRROR) and (self.awaited is None or self.awaited not in line):
                        continue
                    frame = _parse(line)
                    if frame is None:
                        continue
                    if frame.get("type") == "control_response":
                        self._control.answer(frame)
                    else:
                        # What is done with it may have to wait for a client.
                        self._clock.stop()
                        yield frame
                        self._clock.go()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        finally:
            self._clock.go()
            self._ended.set()
            self._control.end()

    async def send(self, frame: Mapping[str, Any], *, patience: float = inf) -> None:
        """Write a frame; raises :class:`~sayagain.errors.RuntimeDied` when the process is gone, and
        :class:`~sayagain.errors.RuntimeTimeout` when it does not read for ``patience`` seconds.
        """
        await self._clock.within(patience, self._write(frame))

    async def _write(self, frame: Mapping[str, Any]) -> None:
        line = dumps(frame) + b"\n"
        async with self._write_lock:
            try:
                await self._process.stdin.send(line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise RuntimeDied from None

    async def request(self, request: Mapping[str, Any], *, patience: float) -> Mapping[str, Any]:
        """Send a control request and wait for its answer; raises like :meth:`PendingControl.result`.

        The patience, in seconds, covers the writing too: a stopped process does not read. Time in which its output is
        left unread does not count.
        """
        with self._control.opened() as request_id:
            if self._ended.is_set():
                self._control.end()
            return await self._clock.within(patience, self._exchange(request_id, request))

    async def _exchange(self, request_id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._write(control_request(request_id, request))
        return await self._control.result(request_id)

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
        """A colon and the CLI's own reason for an early end, if that is one of :data:`COMPLAINTS`."""
        tail = self._process.stderr_tail
        return next((f": {known}" for known in COMPLAINTS if known in tail), "")


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
