"""Waiting for a session's next word: something was said, or became known, and whoever waits looks again."""

from __future__ import annotations

import anyio

__all__ = ["Word"]


class Word:
    """Wakes everybody who waits at that moment."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def wake(self) -> None:
        """There is news."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait for the next :meth:`wake`."""
        await self._event.wait()
