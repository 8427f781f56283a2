"""The subagents of one session: their threads, and how they are stopped.

Codex lets subagents work on when the turn that started them is interrupted (measured). Clients expect the work to end
with all of its parts (SUB-7), and a closed session leaves nothing behind.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sayagain.errors import RuntimeFault
from sayagain_codex.app_server import AppServer, AppServerError, Use

__all__ = ["Children"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


class Children:
    """The running turns of subagents, by thread."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._seen: set[tuple[str, str]] = set()
        # Whether the work that they belong to was interrupted: those that show up only now are to stop as well.
        self._stopped = False

    def notification(self, method: str, params: Params) -> bool:
        """Take a notification of a child's thread; true when a turn began that has to be interrupted."""
        if method == "turn/started":
            self._turns[params["threadId"]] = params["turn"]["id"]
            self._seen.add((params["threadId"], params["turn"]["id"]))
            return self._stopped
        if method in ("turn/completed", "thread/closed"):
            self._turns.pop(params["threadId"], None)
        return False

    @property
    def stopped(self) -> bool:
        """Whether those that run were interrupted."""
        return self._stopped

    def work_began(self) -> None:
        """A turn of the root began, whoever began it: what was stopped before it is none of its work."""
        self._stopped = False
        self._seen = self.turns()

    def clear(self) -> None:
        """The process is gone."""
        self._turns.clear()
        self._seen.clear()

    def turns(self) -> set[tuple[str, str]]:
        """The turns that run, by thread and turn."""
        return set(self._turns.items())

    @property
    def of_work(self) -> frozenset[tuple[str, str]]:
        """The turns that ran since the root's turn began."""
        return frozenset(self._seen)

    @property
    def running(self) -> bool:
        """Whether a child's turn is known to run."""
        return bool(self._turns)

    async def interrupt(self, server: AppServer) -> None:
        """Interrupt all that run, and all that are found to run from now on."""
        self._stopped = True
        for thread_id, turn_id in list(self._turns.items()):
            try:
                await Use(server).request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
            except AppServerError as error:
                logger.debug("an interrupt of a subagent was refused: %s", error)
            except RuntimeFault:
                return
