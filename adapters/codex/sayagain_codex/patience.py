"""How long Codex may take, before it counts as hung."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sayagain.errors import RuntimeFault

__all__ = ["VARIABLE", "Patience"]

VARIABLE: Final = "SAYAGAIN_PATIENCE"
"""The environment variable that sets ``answer``: more for a machine that is busy or suspended often, less for those
who rather lose a slow process than wait. Reading a long history gets four times as long."""


@dataclass(frozen=True, slots=True)
class Patience:
    """All in seconds."""

    answer: float = 30.0
    """For an answer to a request: they take milliseconds, the start under load a second (measured)."""

    finish: float = 2.0
    """For the app-server to store what it has at the end of its input: 40 ms in the middle of a turn (measured)."""

    stop: float = 5.0
    """For a turn to end after its interrupt, when its session is closed; it takes milliseconds (measured)."""

    @property
    def long(self) -> float:
        """For what reads or brings up to date a whole history: 5 s for 10,000 turns (measured)."""
        return 4 * self.answer

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Patience:
        """The patience that ``env`` asks for; :class:`~sayagain.errors.RuntimeFault` when that is no number."""
        given = env.get(VARIABLE)
        if not given:
            return cls()
        try:
            answer = float(given)
        except ValueError:
            answer = math.nan
        if not 0 < answer < math.inf:
            raise RuntimeFault(f"{VARIABLE} must be a number of seconds above 0")
        return cls(answer=answer)
