"""How often, and when, a lost agent is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["Retries"]


@dataclass(frozen=True, slots=True)
class Retries:
    """``attempts`` failures in a row are the end. An answer to a real request starts the count anew, and so does a
    connection that lasted for ``steady`` seconds: an agent that starts well and dies of each prompt is given up too.

    The pause doubles from ``first`` to ``longest`` seconds; a random part of up to one half is taken off, so that many
    clients do not come back at once.
    """

    attempts: int = 8
    first: float = 0.1
    longest: float = 10.0
    steady: float = 60.0
    chance: random.Random = field(default_factory=random.Random)

    def pause(self, failures: int) -> float:
        """Seconds to wait after the given number of failures in a row, from 1."""
        whole = min(self.longest, self.first * float(1 << min(failures - 1, 30)))
        return whole * (1 - self.chance.random() / 2)
