"""How work ends, where Codex tells it by halves. Pure: a notification in, what it means out.

Work that fails before it is a turn, such as the review of a branch in a folder that is no repository, is told as an
``error`` that is not retried, and as nothing else: no turn begins, and none ends (measured, codex 0.163). Whoever waits
for a turn waits for its end, so it is told here. And Codex keeps such an error: the next turn that ends, whatever it
did, is told as ``failed`` with it, and is stored as ``completed`` (measured).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayagain.protocol.loose import Json, as_mapping, as_text

__all__ = ["Endings"]

Params = Mapping[str, Any]
Notification = tuple[str, Params]


@dataclass(slots=True)
class _Thread:
    running: set[str] = field(default_factory=set[str])
    """The ids of the turn that began and has not ended: a review begins under one and ends under another (measured)."""
    errors: dict[str, Json] = field(default_factory=dict[str, Json])
    """The last error of each turn, or of what never was one, since a turn ended."""


class Endings:
    """Fed with every notification of a session's threads, in order."""

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}

    def clear(self) -> None:
        """The process is gone, and what it kept."""
        self._threads.clear()

    def told(self, method: str, params: Params) -> Sequence[Notification]:
        """The notification as it is meant, and the end that it stands for."""
        if method not in ("turn/started", "turn/completed", "error"):
            return [(method, params)]
        thread = self._threads.setdefault(as_text(params.get("threadId")), _Thread())
        turn = as_mapping(params.get("turn"))
        if method == "turn/started":
            thread.running |= {as_text(turn.get("id")), as_text(turn.get("rootTurnId"))}
        elif method == "turn/completed":
            return [(method, {**params, "turn": _ended(thread, turn)})]
        elif params.get("willRetry") is not True:
            turn_id, error = as_text(params.get("turnId")), as_mapping(params.get("error"))
            thread.errors[turn_id] = error
            if not thread.running:
                failed: Params = {"id": turn_id, "status": "failed", "error": error, "items": []}
                return [(method, params), ("turn/completed", {"threadId": params.get("threadId"), "turn": failed})]
        return [(method, params)]


def _ended(thread: _Thread, turn: Json) -> Json:
    """The turn with its own error, or with none."""
    turn_id = as_text(turn.get("id"))
    errors, thread.errors = thread.errors, {}
    ids, thread.running = thread.running | {turn_id}, set()
    if turn.get("status") != "failed" or not errors:
        return turn
    own = [error for of, error in errors.items() if of in ids]
    return {**turn, "error": own[-1]} if own else {**turn, "status": "completed", "error": None}
