"""The events of one session on their way to the core, and the last word on what a newcomer is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio

from sayagain.runtime import RuntimeEvent, Update
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
                if isinstance(event, Update) and event.session_id == self._session_id:
                    self._latest.remember(event.update)
                yield event

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
