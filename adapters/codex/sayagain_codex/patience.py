"""How long Codex may take, before it counts as hung."""

from __future__ import annotations

from dataclasses import dataclass

from sayagain.processes.patience import BasePatience

__all__ = ["Patience"]


@dataclass(frozen=True, slots=True)
class Patience(BasePatience):
    """All in seconds.

    Answers take milliseconds, the start under load a second, and the app-server stores what it has in 40 ms, even in
    the middle of a turn (measured).
    """

    stop: float = 5.0
    """For a turn to end after its interrupt, when its session is closed; it takes milliseconds (measured)."""

    @property
    def long(self) -> float:
        """For what reads or brings up to date a whole history: 5 s for 10,000 turns (measured)."""
        return 4 * self.answer
