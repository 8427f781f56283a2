"""The events of one session on their way to the core, and the last word on what a newcomer is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio

from sayagain.runtime.events import RuntimeEvent, Update
from sayagain.runtime.latest import Latest

__all__ = ["Outbox"]

Params = Mapping[str, Any]


class Outbox:
    """Unbounded: the reader of the app-server serves all sessions, and must not wait for the client of one."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._latest = Latest()
        self._watched = False
        self._closed = False
        self._send, self._receive = anyio.create_memory_object_stream[RuntimeEvent](float("inf"))

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """The ordered stream; ends after :meth:`close`."""
        if self._watched or self._closed:
            return
        self._watched = True
        async with self._receive:
            async for event in self._receive:
                self._keeps(event)
                yield event

    def settle(self) -> None:
        """Before anybody watches: what the snapshot tells is not told a second time."""
        waiting: list[RuntimeEvent] = []
        with suppress(anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                waiting.append(self._receive.receive_nowait())
        self.emit_all(event for event in waiting if not self._keeps(event))

    def _keeps(self, event: RuntimeEvent) -> bool:
        if not isinstance(event, Update) or event.session_id != self._session_id:
            return False
        return self._latest.remember(event.update)

    def emit(self, *events: RuntimeEvent) -> None:
        """Send events; after :meth:`close` they are dropped."""
        self.emit_all(events)

    def emit_all(self, events: Iterable[RuntimeEvent]) -> None:
        """As :meth:`emit`."""
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            for event in events:
                self._send.send_nowait(event)

    def update(self, update: Params) -> None:
        """Send an update of the session itself."""
        self.emit(Update(self._session_id, update))

    def remember(self, update: Params) -> None:
        """Keep it for :meth:`snapshot`, if it is of a kind that belongs there."""
        self._latest.remember(update)

    def knows(self, kind: str) -> bool:
        """Whether an update of this kind is kept."""
        return self._latest.of(kind) is not None

    def snapshot(self) -> Sequence[Params]:
        """Title, usage and commands as last reported."""
        return self._latest.snapshot()

    def close(self) -> None:
        """End the stream."""
        self._closed = True
        self._send.close()
        if not self._watched:
            self._receive.close()
