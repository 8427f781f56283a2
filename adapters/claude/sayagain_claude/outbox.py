"""The events of one session on their way to the core, and the last word on what a newcomer is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

import anyio

from sayagain.runtime.events import Foreground, RuntimeEvent, Update
from sayagain.runtime.latest import INFO, Latest
from sayagain_claude.beside import Beside

__all__ = ["EVENTS", "Outbox"]

EVENTS: Final = 4096
"""Events that wait for a client that reads slowly before the CLI's output is left unread."""


class Outbox:
    """:meth:`begin` comes before all else."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._beside: Beside
        self._send, self._receive = anyio.create_memory_object_stream[RuntimeEvent](EVENTS)
        self.latest = Latest()
        """What clients were told last."""

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """The ordered stream of events; ends after :meth:`close`."""
        async with self._receive:
            async for event in self._receive:
                yield self._noted(event)
                # What came with it follows without a pause: one read from the CLI becomes one write to the client.
                while (more := self._ready()) is not None:
                    yield self._noted(more)

    def _ready(self) -> RuntimeEvent | None:
        try:
            return self._receive.receive_nowait()
        except (anyio.WouldBlock, anyio.EndOfStream):
            return None

    def _noted(self, event: RuntimeEvent) -> RuntimeEvent:
        if not isinstance(event, Update) or not self.latest.remember(event.update):
            self._beside.taken(event)
        return event

    def begin(self, beside: Beside) -> None:
        """From now on states bear what runs ``beside`` them; a resume tells that too, from the beginning (UPD-8)."""
        self._beside = beside
        self._send.send_nowait(beside.stamped(Foreground(self._session_id, "idle")))

    async def emit(self, events: Iterable[RuntimeEvent]) -> None:
        """Send events, when there is room for them; after :meth:`close` they are dropped."""
        for event in events:
            told = self._beside.stamped(event) if isinstance(event, Foreground) else event
            try:
                try:
                    self._send.send_nowait(told)
                except anyio.WouldBlock:
                    await self._send.send(told)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return

    async def update(self, update: Mapping[str, Any]) -> None:
        """Send an update of the session itself."""
        await self.emit([Update(self._session_id, update)])

    async def entitle(self, title: str) -> None:
        """Tell the session's title."""
        await self.update({"sessionUpdate": INFO, "title": title})

    @property
    def entitled(self) -> bool:
        """Whether clients know a title."""
        return self.latest.of(INFO) is not None

    def describe(self, title: str) -> None:
        """The title that the store has for the session, until the CLI says something newer."""
        if not self.entitled:
            self.latest.remember({"sessionUpdate": INFO, "title": title})

    def close(self) -> None:
        """End the stream."""
        self._send.close()
