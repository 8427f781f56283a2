"""How long a runtime's process may take, before it counts as hung: what is the same for all, and who sets it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from sayagain.errors import RuntimeFault

__all__ = ["PATIENCE_VARIABLE", "BasePatience"]

PATIENCE_VARIABLE: Final = "SAYAGAIN_PATIENCE"
"""The environment variable that sets ``answer``: more for a machine that is busy or suspended often, less for those
who rather lose a slow process than wait."""


@dataclass(frozen=True, slots=True)
class BasePatience:
    """All in seconds. An adapter adds what only its runtime is waited for."""

    answer: float = 30.0
    """For an answer to a request."""

    finish: float = 2.0
    """For the runtime to store what it has at the end of its input."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """The patience that ``env`` asks for; :class:`~sayagain.errors.RuntimeFault` when that is no number."""
        given = env.get(PATIENCE_VARIABLE)
        if not given:
            return cls()
        try:
            answer = float(given)
        except ValueError:
            answer = math.nan
        if not 0 < answer < math.inf:
            raise RuntimeFault(f"{PATIENCE_VARIABLE} must be a number of seconds above 0")
        return cls(answer=answer)
