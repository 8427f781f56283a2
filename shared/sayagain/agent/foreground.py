"""The foreground state of one session: running, waiting for the user, or idle. A pure state machine.

One ``idle`` for each piece of work, none invented (UPD-4): a runtime may report the same state many times, and a state
update that changes nothing is not sent. A change of the background list alone repeats the state with the new list
(UPD-8), and a repeated ``idle`` carries no stop reason, so that nobody counts it as a second end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.runtime.events import Foreground, ForegroundState

__all__ = ["REPORTED", "ForegroundMachine"]

REPORTED: Final[Mapping[tuple[ForegroundState, ForegroundState], bool]] = {
    ("idle", "idle"): False,
    ("idle", "running"): True,
    ("idle", "requires_action"): True,
    ("running", "idle"): True,
    ("running", "running"): False,
    ("running", "requires_action"): True,
    ("requires_action", "idle"): True,
    ("requires_action", "running"): True,
    ("requires_action", "requires_action"): False,
}
"""Whether a change from the first state to the second is news for the client."""


class ForegroundMachine:
    """Starts idle (NEW-4)."""

    def __init__(self) -> None:
        self._state: ForegroundState = "idle"
        self._stop_reason: str | None = None
        self._background: Sequence[Mapping[str, Any]] | None = None

    @property
    def active(self) -> bool:
        """Whether foreground work is under way."""
        return self._state != "idle"

    @property
    def subagents(self) -> bool:
        """Whether subagents work on in the background: they are stopped with the session's work (SUB-7)."""
        return any(item["type"] == "subagent" for item in self._background or ())

    def report(self, event: Foreground) -> Mapping[str, Any] | None:
        """Take an event of the runtime; the ``state_update`` to send, or ``None`` when nothing changed."""
        changed = REPORTED[self._state, event.state]
        background = event.background if event.background is not None else self._background
        listed = (background or None) != (self._background or None)
        self._background = background
        if not changed and not listed:
            # To learn that nothing runs in the background is no news either.
            return None
        self._state = event.state
        if changed:
            self._stop_reason = event.stop_reason if event.state == "idle" else None
        update = self._update()
        if changed and event.state == "idle":
            if event.stop_reason is not None:
                update["stopReason"] = event.stop_reason
            if event.stop_reason == "error" and event.error is not None:
                update["error"] = dict(event.error)
            if event.usage is not None:
                update["usage"] = dict(event.usage)
        return update

    def snapshot(self) -> Mapping[str, Any]:
        """The current ``state_update`` for a resume (RES-9): no usage, which would be counted twice (RES-10)."""
        update = self._update()
        if self._state == "idle" and self._stop_reason not in (None, "error"):
            update["stopReason"] = self._stop_reason
        return update

    def _update(self) -> dict[str, Any]:
        update: dict[str, Any] = {"sessionUpdate": "state_update", "state": self._state}
        if self._background is not None:
            update["background"] = [dict(item) for item in self._background]
        return update
