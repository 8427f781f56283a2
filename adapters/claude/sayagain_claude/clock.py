"""Time limits that count only while the CLI is listened to.

A client that reads slowly fills the way to it, and then the CLI's output is left unread: the CLI waits for us, and its
answers stand behind that output. Such time says nothing about the CLI, and a limit on its answers leaves it out.
"""

from __future__ import annotations

from collections.abc import Awaitable
from math import inf
from typing import TypeVar

import anyio

from sayagain.errors import RuntimeTimeout

__all__ = ["Clock"]

Result = TypeVar("Result")


class Clock:
    """Runs from the beginning; stopped by :meth:`stop` and started by :meth:`go`, which do nothing twice."""

    def __init__(self) -> None:
        self._limits: list[anyio.CancelScope] = []
        self._left: dict[anyio.CancelScope, float] = {}
        self._stopped = False

    async def within(self, seconds: float, work: Awaitable[Result]) -> Result:
        """What ``work`` returns, or :class:`~sayagain.errors.RuntimeTimeout` when the clock ran for ``seconds``."""
        scope = anyio.CancelScope()
        if self._stopped:
            self._left[scope] = seconds
        else:
            scope.deadline = anyio.current_time() + seconds
        self._limits.append(scope)
        try:
            with scope:
                return await work
        finally:
            self._limits.remove(scope)
            self._left.pop(scope, None)
        raise RuntimeTimeout

    def stop(self) -> None:
        """From here on no limit comes nearer."""
        if self._stopped:
            return
        self._stopped = True
        for scope in self._limits:
            self._left[scope] = scope.deadline - anyio.current_time()
            scope.deadline = inf

    def go(self) -> None:
        """Count on."""
        self._stopped = False
        for scope, left in self._left.items():
            scope.deadline = anyio.current_time() + left
        self._left.clear()
