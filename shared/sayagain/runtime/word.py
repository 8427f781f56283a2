"""Waiting for a session's next word: something was said, or became known, and whoever waits looks again."""

from __future__ import annotations

import anyio

__all__ = ["Word"]


class Word:
    """Wakes everybody who waits at that moment; costs nothing while nobody does."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def wake(self) -> None:
        """There is news."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next :meth:`wake`."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
