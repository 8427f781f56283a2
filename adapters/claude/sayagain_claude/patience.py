"""How long a Claude Code process may take, before it counts as hung."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sayagain.errors import RuntimeFault

__all__ = ["VARIABLE", "Patience"]

VARIABLE: Final = "SAYAGAIN_PATIENCE"
"""The environment variable that sets ``answer``: more for a machine that is busy or suspended often, less for those
who rather lose a slow process than wait. The start gets twice as long."""


@dataclass(frozen=True, slots=True)
class Patience:
    """All in seconds."""

    answer: float = 30.0
    """Without any word on a submitted prompt before the CLI is asked whether it lives, and then for that answer; also
    for an interrupt to end the work before the process is ended."""

    finish: float = 2.0
    """For the CLI to store what it has at the end of its input."""

    @property
    def start(self) -> float:
        """For the CLI to answer ``initialize``: a cold start of several at once took 1.7 s (measured), MCP servers of
        the user's own take longer."""
        return 2 * self.answer

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
