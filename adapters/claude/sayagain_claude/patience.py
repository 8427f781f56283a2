"""How long a Claude Code process may take, before it counts as hung."""

from __future__ import annotations

from dataclasses import dataclass

from sayagain.processes.patience import BasePatience

__all__ = ["Patience"]


@dataclass(frozen=True, slots=True)
class Patience(BasePatience):
    """All in seconds.

    ``answer`` is also how long there may be no word on a submitted prompt before the CLI is asked whether it lives,
    and how long an interrupt may take to end the work before the process is ended.
    """

    @property
    def start(self) -> float:
        """For the CLI to answer ``initialize``: a cold start of several at once took 1.7 s (measured), MCP servers of
        the user's own take longer."""
        return 2 * self.answer
