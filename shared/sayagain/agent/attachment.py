"""One connection on one session: what it may see now, and in which order.

Sessions belong to the process; connections attach to them by ``session/new``, ``session/resume`` or ``session/fork``
(design section 4). An attachment is active from its success response on; until then its gates hold what is not
history, so that a prompt on it is ``-32002`` (RES-14) and a client that has no handler for the session yet misses
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sayagain.agent.asks import OpenAsk
from sayagain.agent.journal import Journal
from sayagain.agent.replay import Gate, GateState
from sayagain.connection import Connection

__all__ = ["Attachment"]


class Attachment:
    """``send_ask`` writes an agent request; it is called when the request's turn among the updates comes."""

    def __init__(
        self, connection: Connection, session_id: str, send_ask: Callable[[Attachment, OpenAsk], None]
    ) -> None:
        self.connection = connection
        self.session_id = session_id
        self.active = False
        self.queued = 0
        """Replaying resumes of this client that wait for their turn: live updates wait from the request on (RPL-4)."""
        self.prompts_before: int | None = None
        """How many prompts the runtime had been given when the last replay was read to its end; ``None`` before."""
        self._send_ask = send_ask
        # In order of announcement, so parents come before their children.
        self._gates: dict[str, Gate[OpenAsk]] = {session_id: Gate()}
        self._gates[session_id].hold()

    @property
    def usable(self) -> bool:
        """Whether a request can be sent to this client now or after a gate opens."""
        return self.active and not self.connection.is_closed

    def gate(self, session_id: str) -> Gate[OpenAsk]:
        """The gate of the session or of a child; a child's first use makes its gate, open."""
        gate = self._gates.get(session_id)
        if gate is None:
            gate = self._gates[session_id] = Gate()
        return gate

    def live(self, session_id: str, update: Mapping[str, Any]) -> None:
        """A live update: sent now or when its gate opens."""
        if self.gate(session_id).live(update):
            self.connection.update(session_id, update)

    def child(self, parent_id: str, child_id: str, update: Mapping[str, Any]) -> None:
        """A live announcement. While it waits in the parent's gate, the child's own traffic waits too (SUB-1)."""
        if self.gate(parent_id).state is not GateState.OPEN:
            self.gate(child_id).hold()
        self.live(parent_id, update)

    def ask(self, ask: OpenAsk) -> None:
        """An agent request: sent now or when its gate opens."""
        ask.attachment = self
        if self.gate(ask.event.session_id).ask(ask):
            self._send_ask(self, ask)

    def hold_children(self, children: Iterable[str]) -> None:
        """Fresh traffic of these children waits for the response (SUB-11)."""
        for child_id in children:
            self.gate(child_id).hold()

    def hold(self, children: Iterable[str]) -> None:
        """A replay was asked for: all waits from here on, that of the session's ``children`` too."""
        self.hold_children([*self._gates, *children])

    @property
    def replaying(self) -> bool:
        """Whether a replay is being sent."""
        return any(gate.state is GateState.REPLAYING for gate in self._gates.values())

    def inserted(self, prompts: int) -> None:
        """The runtime stored the message that it was given as the one of this number.

        When the replay had been read before it was given, all that the replay shows has come by now.
        """
        if self.prompts_before is not None and self.prompts_before < prompts:
            self.prompts_before = None
            for gate in self._gates.values():
                gate.passed()

    def open(self, session_id: str, state: Collection[Mapping[str, Any]] = ()) -> set[str]:
        """Open one gate: what waited goes out, besides what the ``state`` that follows tells again. The children that
        it announced or mentioned."""
        waiting = [item for item in self.gate(session_id).release() if item not in state]
        self._deliver(session_id, waiting)
        return {
            item["sessionId"]
            for item in waiting
            if not isinstance(item, OpenAsk) and item["sessionUpdate"] == "subagent_update"
        }

    def open_all(self) -> None:
        """Open every gate, parents first."""
        for session_id in list(self._gates):
            self.open(session_id)

    def abort(self, journal: Callable[[str], Journal]) -> list[tuple[str, list[Mapping[str, Any] | OpenAsk]]]:
        """A replay failed: every gate opens without a marker. What waited, to be delivered after the error answer.

        Of what the replay sent in the state of its beginning, the present state follows from the journals.
        """
        waiting: list[tuple[str, list[Mapping[str, Any] | OpenAsk]]] = []
        for session_id, gate in self._gates.items():
            if gate.state is not GateState.OPEN:
                told = gate.told
                waiting.append((session_id, [*gate.abort(), *journal(session_id).updates(told)]))
        return waiting

    def deliver(self, waiting: Iterable[tuple[str, list[Mapping[str, Any] | OpenAsk]]]) -> None:
        """Send what :meth:`abort` returned."""
        for session_id, items in waiting:
            self._deliver(session_id, items)

    def _deliver(self, session_id: str, items: list[Mapping[str, Any] | OpenAsk]) -> None:
        for item in items:
            if isinstance(item, OpenAsk):
                self._send_ask(self, item)
            else:
                self.connection.update(session_id, item)
