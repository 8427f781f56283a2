"""Reads a session's config options from its running CLI, and sets them there.

What the options are and mean is in :mod:`~sayagain_claude.options`; here is who asks the CLI, and when.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain.runtime.events import RuntimeEvent, Update
from sayagain.runtime.tasks import SessionTasks
from sayagain_claude.control import ControlRefused
from sayagain_claude.options import MODE, Options
from sayagain_claude.process import ClaudeProcess

__all__ = ["OptionControl"]

logger = logging.getLogger(__name__)


class OptionControl:
    """``emit`` reports events of the session; ``patience`` is how long the CLI may take for an answer, in seconds."""

    def __init__(
        self,
        session_id: str,
        options: Options,
        *,
        emit: Callable[[Iterable[RuntimeEvent]], Awaitable[None]],
        tasks: SessionTasks,
        patience: float,
    ) -> None:
        self._session_id = session_id
        self._options = options
        self._emit = emit
        self._tasks = tasks
        self._patience = patience
        # Setting is done one after the other, so that each caller gets the list with its own value in it.
        self._setting = anyio.Lock()
        self._reading = anyio.Lock()

    @property
    def modes(self) -> Sequence[str]:
        """The modes that can be chosen now."""
        return self._options.modes

    @property
    def models(self) -> Sequence[Mapping[str, Any]]:
        """The models that the CLI offers, as it describes them."""
        return self._options.models

    def wire(self) -> Sequence[Mapping[str, Any]]:
        """The options with their current values."""
        return self._options.wire()

    def arguments(self) -> Sequence[str]:
        """What the next process is started with."""
        return self._options.arguments()

    def started(self, process: ClaudeProcess, answer: Mapping[str, Any]) -> None:
        """A process answered ``initialize``. Its settings are read beside the first prompt, which waits for nothing."""
        self._options.started(answer)
        self._tasks.start_soon(self._refresh, process)

    async def frame(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
        """A ``system`` or ``result`` frame: the runtime may have changed an option by itself."""
        stale = self._options.frame(frame)
        await self._report()
        if stale:
            # Not here: the answer comes on the stream that our caller reads.
            self._tasks.start_soon(self._refresh, process)

    def check(self, config_id: str, value: str | bool) -> None:
        """Raise :class:`InvalidParams` for what can be seen to be wrong before a process is started for it."""
        self._options.check(config_id, value)

    async def set(self, process: ClaudeProcess, config_id: str, value: str | bool) -> None:
        """Set an option; :class:`InvalidParams` when it is not on offer, or the CLI does not take it (CFG-2)."""
        async with self._setting:
            if not self._options.known:
                await self._read(process)
            self._options.check(config_id, value)
            try:
                answer = await process.request(self._options.request(config_id, value), patience=self._patience)
            except ControlRefused as error:
                raise InvalidParams("value", error.words) from error
            self._options.accepted(config_id, value, answer)
            if config_id != MODE:
                await self._read(process)
            await self._report()
            if self._options.value(config_id) != value:
                # An effort that the environment or a policy fixes is taken without a word, and without effect.
                raise InvalidParams("value", "is overruled by the environment or the settings of Claude Code")

    async def _refresh(self, process: ClaudeProcess) -> None:
        try:
            await self._read(process)
        except RuntimeFault as error:
            logger.debug("the settings were not read: %s", error)
        await self._report()

    async def _read(self, process: ClaudeProcess) -> None:
        async with self._reading:
            self._options.settings(await process.request({"subtype": "get_settings"}, patience=self._patience))

    async def _report(self) -> None:
        update = self._options.update()
        if update is not None:
            await self._emit([Update(self._session_id, update)])
