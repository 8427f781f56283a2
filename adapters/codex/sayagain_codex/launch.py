"""The process of the app-server: which executable, with which arguments, and the first one before anybody needs it.

Codex takes 70 ms until it answers its first request (measured). It can have them while our own modules are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from types import TracebackType
from typing import Final, Self

import anyio

from sayagain.errors import RuntimeFault
from sayagain.processes.spawn import GuardedProcess, Starting, begin
from sayagain_codex.command import command_line, environment
from sayagain_codex.executable import find_executable

__all__ = ["Launched", "Launcher"]

logger = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds for a process that nobody took to end by itself; it takes 40 ms (measured)."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A process that was told nothing yet."""

    process: GuardedProcess
    executable: str
    ahead: bool
    """Whether it was started before it was asked for, and so may have ended meanwhile."""


@dataclass(frozen=True, slots=True)
class _Begun:
    starting: Starting
    executable: str


class Launcher:
    """As an async context manager it starts a process ahead; leaving it ends one that nobody took.

    Without being entered it starts one whenever it is asked.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._lock = anyio.Lock()
        self._ahead: _Begun | None = None

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

    async def take(self, *, ephemeral_login: bool = False) -> Launched:
        """The process that was started ahead, or else a new one, which is the caller's to end.

        With ``ephemeral_login`` it keeps an API key that it is given in memory, which its command line says. No other
        process may be given one: it would write it to disk, over the login that is stored there (measured).

        Raises :class:`~sayagain.errors.RuntimeMissing` and :class:`~sayagain.errors.RuntimeFault`.
        """
        async with self._lock:
            if ephemeral_login:
                await self._discard()
            ahead, self._ahead = self._ahead, None
            begun = ahead or await self._begin(ephemeral_login=ephemeral_login)
            return Launched(await begun.starting.running(), begun.executable, ahead is not None)

    async def version(self, executable: str) -> str:
        """What an executable says to ``--version``; empty when it does not say so soon."""
        with anyio.move_on_after(GRACE), suppress(OSError):
            said = await anyio.run_process(
                [executable, "--version"],
                stdin=DEVNULL,
                env=environment(self._env, ephemeral_login=True),
                check=False,
            )
            return said.stdout.decode(errors="replace")
        return ""

    async def _begin(self, *, ephemeral_login: bool = False) -> _Begun:
        executable = find_executable(self._env)
        starting = await begin(
            command_line(executable, ephemeral_login=ephemeral_login),
            cwd=Path(executable).anchor,
            env=environment(self._env, ephemeral_login=ephemeral_login),
            stderr=lambda line: logger.debug("codex: a line of %d characters on standard error", len(line)),
        )
        return _Begun(starting, executable)

    async def _discard(self) -> None:
        """End of input first: it may be at work on its own files."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        # Nobody else knows of it.
        with anyio.CancelScope(shield=True), suppress(RuntimeFault):
            process = await ahead.starting.running()
            with anyio.move_on_after(GRACE):
                await process.stdin.aclose()
                await process.wait()
            await process.aclose()
