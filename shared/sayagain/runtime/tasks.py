"""What a session does in the background, in the task group that all sessions share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import anyio.abc

__all__ = ["SessionTasks"]

logger = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")


class SessionTasks:
    """Starts one session's background work. What fails there ends that session, by ``failed``, and nothing else.

    An exception that got out of a task would end the task group: every session of the agent with it.
    """

    def __init__(self, group: anyio.abc.TaskGroup, failed: Callable[[], Awaitable[None]]) -> None:
        self._group = group
        self._failed = failed

    def start_soon(self, work: Callable[[*Arguments], Awaitable[None]], *arguments: *Arguments) -> None:
        """Run ``work`` in the background; it reports what it can name itself."""
        self._group.start_soon(self._run, lambda: work(*arguments))

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:
            logger.exception("work of a session failed unexpectedly; the session is ended")
            await self._failed()
