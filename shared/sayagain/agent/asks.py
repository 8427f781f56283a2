"""Requests of the runtime that a client has to answer: permissions, later questions.

An ask outlives the connection it was sent on: it is placed again with the next client that attaches, after the marker
of its replay (RPL-6). One client answers; the first answer counts, later ones are ignored (CAN-6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sayagain.runtime.events import Ask

if TYPE_CHECKING:
    from sayagain.agent.attachment import Attachment
    from sayagain.connection import Call

__all__ = ["AskBook", "OpenAsk"]


class OpenAsk:
    """An ask without an answer. Placed when ``attachment`` is set; on the wire when ``call`` is."""

    def __init__(self, event: Ask) -> None:
        self.event = event
        self.attachment: Attachment | None = None
        self.call: Call | None = None


class AskBook:
    """The open asks of one session."""

    def __init__(self) -> None:
        self._open: dict[str, OpenAsk] = {}

    def __iter__(self) -> Iterator[OpenAsk]:
        return iter(list(self._open.values()))

    def __contains__(self, ask: OpenAsk) -> bool:
        return self._open.get(ask.event.ask_id) is ask

    def add(self, event: Ask) -> OpenAsk:
        """The runtime asks."""
        ask = self._open[event.ask_id] = OpenAsk(event)
        return ask

    def settle(self, ask: OpenAsk) -> bool:
        """An answer came; true for the first."""
        if ask not in self:
            return False
        del self._open[ask.event.ask_id]
        return True

    def withdraw(self, ask_id: str) -> OpenAsk | None:
        """The runtime no longer asks. Takes it off the wire, or out of the gate where it waits."""
        ask = self._open.pop(ask_id, None)
        if ask is None:
            return None
        if ask.call is not None:
            ask.call.cancel()
        elif ask.attachment is not None:
            ask.attachment.gate(ask.event.session_id).withdraw(ask)
        return ask

    def unplaced(self) -> list[OpenAsk]:
        """Asks that no client has: none was there, or its connection ended."""
        return [a for a in self._open.values() if a.attachment is None or not a.attachment.usable]
