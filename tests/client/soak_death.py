"""Deaths by seed: a process counts its steps and kills itself at one of them, in the middle of what it does.

A step is a read or a write of the wire, a change of a store, and each point that the product names.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sayagain.fault_points import Point, install
from sayagain.transports import Transport

__all__ = ["Fate", "MortalTransport", "before_and_after"]


class Fate:
    """``last`` is the step that is not survived; ``None`` lives on. ``deaths`` is a file that tells where they fell."""

    def __init__(self, last: int | None, chance: random.Random, deaths: Path) -> None:
        self._last = last
        self._steps = 0
        self._deaths = deaths
        self.chance = chance

    def step(self, where: str = "a read, a write, or a change of a store") -> None:
        self._steps += 1
        if self._steps == self._last:
            with self._deaths.open("ab", buffering=0) as file:
                file.write(where.encode() + b"\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def at_points(self) -> None:
        """Each point that the product names is a step, for the rest of this process."""

        def passing(point: Point) -> None:
            self.step(point.name.lower())

        install(passing)

    @property
    def next_is_last(self) -> bool:
        return self._last is not None and self._steps + 1 == self._last


class MortalTransport:
    """Each read and each write is a step before and after; a write may end in the middle of a line."""

    def __init__(self, transport: Transport, fate: Fate) -> None:
        self._transport = transport
        self._fate = fate

    async def receive(self) -> bytes:
        data = await self._transport.receive()
        self._fate.step()
        return data

    async def send(self, data: bytes) -> None:
        self._fate.step()
        if self._fate.next_is_last:
            data = data[: self._fate.chance.randrange(len(data))]
        await self._transport.send(data)
        self._fate.step()

    async def aclose(self) -> None:
        await self._transport.aclose()


def before_and_after(fate: Fate, owner: Any, *names: str) -> None:
    """Each call of these methods is a step before and after. For the rest of this process, which is not long."""
    for name in names:
        setattr(owner, name, _mortal(getattr(owner, name), fate))


def _mortal(method: Callable[..., Any], fate: Fate) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        fate.step()
        result = method(*arguments, **named)
        fate.step()
        return result

    return call
