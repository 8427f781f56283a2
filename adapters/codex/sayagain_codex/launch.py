"""The process of the app-server: which executable, with which arguments, and the first one before anybody needs it.

Codex takes 70 ms until it answers its first request (measured). It can have them while our own modules are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio

from sayagain.processes.spawn import GuardedProcess, spawn
from sayagain_codex.command import command_line, environment
from sayagain_codex.executable import find_executable

__all__ = ["Launched", "Launcher"]

logger = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds for a process that nobody took to end by itself; it takes 40 ms (measured)."""


class Launched(NamedTuple):
    """A process that runs, and has been told nothing yet."""

    process: GuardedProcess
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
        async with self._lock:
            try:
                self._ahead = await self._launch()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again for whoever needs one
                logger.info("Codex was not started ahead: %s", type(error).__name__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            async with self._lock:
                await self._discard()

    async def take(self) -> Launched:
        """The process that was started ahead, or else a new one; it is the caller's to end.

        Raises :class:`~sayagain.errors.RuntimeMissing` and :class:`~sayagain.errors.RuntimeFault`.
        """
        async with self._lock:
            if self._ahead is not None and self._ahead.ephemeral_login is not self.ephemeral_login:
                await self._discard()
            ahead, self._ahead = self._ahead, None
            return ahead or await self._launch()

    async def _launch(self) -> Launched:
        executable = find_executable(self._env)
        process = await spawn(
            command_line(executable, ephemeral_login=self.ephemeral_login),
            cwd=Path(executable).anchor,
            env=environment(self._env, ephemeral_login=self.ephemeral_login),
            stderr=lambda line: logger.debug("codex: a line of %d characters on standard error", len(line)),
        )
        return Launched(process, executable, self.ephemeral_login)

    async def _discard(self) -> None:
        """End of input first: it may be at work on its own files."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with anyio.move_on_after(GRACE):
                await ahead.process.stdin.aclose()
                await ahead.process.wait()
            await ahead.process.aclose()
