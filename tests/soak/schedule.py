"""What a run does, drawn from its seed alone: the same seed is the same schedule. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from faults.faulty import FAULTS, applies
from faults.points import POINTS
from faults.product_points import actions, passings, points_of
from sayagain.fault_points import Point

__all__ = ["RANDOM", "Phase", "Prompt", "Schedule", "Step", "Strike", "points", "schedule"]

RANDOM: Final = "at a random instant"

KINDS: Final = {"quick": 5, "slow": 3, "echo": 2, "tool": 1}
"""Prompts by how the model answers, and how often they are drawn."""

STEPS: Final = {"prompt": 8, "retry": 4, "settle": 4, "withdraw": 2, "release": 2, "pause": 2, "replay": 2, "cancel": 1}

ENDS: Final = {
    "kill_adapter": 6,
    "kill_both": 2,
    "close_both": 2,
    "close_input": 1,
    "close_output": 1,
    "terminate": 1,
    "interrupt": 1,
}
"""How a process's life ends."""


@dataclass(frozen=True)
class Prompt:
    kind: str
    text: str
    key: str | None
    insisted: bool
    """Whether the client sends it again in the end, until it is inserted."""


@dataclass(frozen=True)
class Step:
    """``prompt`` is an index into the schedule's; ``pause`` is in seconds."""

    name: str
    prompt: int = 0
    pause: float = 0.0


@dataclass(frozen=True)
class Strike:
    """``after`` so many seconds, or sooner when the steps are done."""

    fault: str
    after: float


@dataclass(frozen=True)
class Phase:
    """The life of one agent process: the last strike ends it. Their time counts from the moment that the session is
    active, or from the start of the process (``early``), so that a busy machine does not move them all into the start.
    """

    early: bool
    replay: bool
    steps: Sequence[Step]
    strikes: Sequence[Strike]
    answers_asks: bool
    armed: str | None = None
    """A strike at a point of the product's, as ``armed.py`` takes it."""

    @property
    def stops(self) -> bool:
        """Whether the runtime is made to stand still."""
        return any(strike.fault == "stop_runtime" for strike in self.strikes) or "stop_runtime" in (self.armed or "")


@dataclass(frozen=True)
class Schedule:
    """Either a fault at a named point, or phases with strikes at random instants.

    ``nth`` counts the passings of a point that the product names.
    """

    seed: int
    point: str
    fault: str = ""
    nth: int = 1
    prompts: Sequence[Prompt] = ()
    phases: Sequence[Phase] = ()
    patience: str = "30"


def points(runtime: str) -> list[str]:
    """The named points: those that tests reach by what stands in front of Claude Code, and the product's own."""
    from_outside = list(POINTS) if runtime == "claude" else []
    return [*from_outside, *(point.name.lower() for point in points_of(runtime))]


def schedule(seed: int, only: str | None = None, runtime: str = "claude") -> Schedule:
    """``only`` names a point, or :data:`RANDOM`."""
    rng = random.Random(seed)
    named = rng.random() < 0.5
    point = only or (rng.choice(points(runtime)) if named else RANDOM)
    if point in POINTS:
        return Schedule(seed, point, rng.choice([fault for fault in FAULTS if applies(POINTS[point], fault)]))
    if point != RANDOM:
        named_point = Point[point.upper()]
        nth = min(rng.choice([1, 1, 1, 2, 3]), passings(named_point))
        return Schedule(seed, point, rng.choice(actions(named_point)), nth)
    prompts: list[Prompt] = []
    phases = [_phase(rng, prompts, runtime) for _ in range(rng.randint(1, 3))]
    stops = any(phase.stops for phase in phases)
    return Schedule(seed, RANDOM, prompts=prompts, phases=phases, patience="1" if stops else "30")


def _phase(rng: random.Random, prompts: list[Prompt], runtime: str) -> Phase:
    steps: list[Step] = []
    for name in rng.choices(list(STEPS), list(STEPS.values()), k=rng.randint(2, 8)):
        if name == "prompt" or not prompts:
            steps.append(Step("prompt", len(prompts)))
            prompts.append(_prompt(rng, len(prompts)))
        else:
            # Mostly what was sent last.
            steps.append(Step(name, max(0, len(prompts) - 1 - int(rng.expovariate(1))), round(rng.uniform(0, 0.3), 3)))
    end = rng.choices(list(ENDS), list(ENDS.values()))[0]
    strikes = [Strike(end, round(rng.uniform(0, 2), 3))]
    if rng.random() < 0.4:
        fault = "stop_runtime" if rng.random() < 0.2 else "kill_runtime"
        strikes.insert(0, Strike(fault, round(strikes[0].after * rng.random(), 3)))
    early, replay, answers_asks = rng.random() < 0.2, rng.random() < 0.6, rng.random() < 0.8
    return Phase(early, replay, steps, strikes, answers_asks, _armed(rng, runtime) if rng.random() < 0.4 else None)


def _armed(rng: random.Random, runtime: str) -> str:
    point = rng.choice(points_of(runtime))
    return f"{point.name.lower()}:{rng.randint(1, 5)}:{rng.choice(actions(point))}"


def _prompt(rng: random.Random, number: int) -> Prompt:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    key = f"key {number:02} {rng.getrandbits(32):08x}" if rng.random() < 0.9 else None
    return Prompt(kind, f"{kind} prompt {number:02}", key, rng.random() < 0.7)
