"""The process of the app-server: which executable, with which arguments, and the first one before anybody needs it.

Codex takes 70 ms until it answers its first request (measured). It can have them while our own modules are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio

from sayagain.errors import RuntimeFault
from sayagain.processes.spawn import GuardedProcess, Starting, begin
from sayagain_codex.command import command_line, environment
from sayagain_codex.executable import find_executable

__all__ = ["Launched", "Launcher"]

logger = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds for a process that nobody took to end by itself; it takes 40 ms (measured)."""


class Launched(NamedTuple):
    """A process that was told nothing yet."""

    starting: Starting
    executable: str
    ephemeral_login: bool


class Launcher:
    """As an async context manager it starts a process ahead; leaving it ends one that nobody took.

    Without being entered it starts one whenever it is asked.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._lock = anyio.Lock()
        self._ahead: Launched | None = None
        self.ephemeral_login = False
        """Whether the next process keeps its login in memory."""

    async def __aenter__(self) -> Self:
        try:
            self._ahead = await self._begin()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again for whoever needs one
            logger.info("Codex was not started ahead: %s", type(error).__name__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            async with self._lock:
                await self._discard()

    async def take(self) -> tuple[GuardedProcess, str]:
        """The process that was started ahead, or else a new one, which is the caller's to end; and its executable.

        Raises :class:`~sayagain.errors.RuntimeMissing` and :class:`~sayagain.errors.RuntimeFault`.
        """
        async with self._lock:
            if self._ahead is not None and self._ahead.ephemeral_login is not self.ephemeral_login:
                await self._discard()
            ahead, self._ahead = self._ahead, None
            taken = ahead or await self._begin()
            return await taken.starting.running(), taken.executable

    async def _begin(self) -> Launched:
        executable = find_executable(self._env)
        starting = await begin(
            command_line(executable, ephemeral_login=self.ephemeral_login),
            cwd=Path(executable).anchor,
            env=environment(self._env, ephemeral_login=self.ephemeral_login),
            stderr=lambda line: logger.debug("codex: a line of %d characters on standard error", len(line)),
        )
        return Launched(starting, executable, self.ephemeral_login)

    async def _discard(self) -> None:
        """End of input first: it may be at work on its own files."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        with suppress(RuntimeFault):
            process = await ahead.starting.running()
            with anyio.move_on_after(GRACE):
                await process.stdin.aclose()
                await process.wait()
            await process.aclose()
