"""What a run does, drawn from its seed alone: the same seed is the same schedule. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from faults.faulty import FAULTS, applies
from faults.points import POINTS

__all__ = ["RANDOM", "Phase", "Prompt", "Schedule", "Step", "Strike", "schedule"]

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


@dataclass(frozen=True)
class Schedule:
    """Either a fault at a named point, or phases with strikes at random instants."""

    seed: int
    point: str
    fault: str = ""
    prompts: Sequence[Prompt] = ()
    phases: Sequence[Phase] = ()
    patience: str = "30"


def schedule(seed: int, only: str | None = None) -> Schedule:
    """``only`` names a point, or :data:`RANDOM`."""
    rng = random.Random(seed)
    named = rng.random() < 0.3
    point = only or (rng.choice(list(POINTS)) if named else RANDOM)
    if point != RANDOM:
        return Schedule(seed, point, rng.choice([fault for fault in FAULTS if applies(POINTS[point], fault)]))
    prompts: list[Prompt] = []
    phases = [_phase(rng, prompts) for _ in range(rng.randint(1, 3))]
    stops = any(strike.fault == "stop_runtime" for phase in phases for strike in phase.strikes)
    return Schedule(seed, RANDOM, prompts=prompts, phases=phases, patience="1" if stops else "30")


def _phase(rng: random.Random, prompts: list[Prompt]) -> Phase:
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
    return Phase(rng.random() < 0.2, rng.random() < 0.6, steps, strikes, rng.random() < 0.8)


def _prompt(rng: random.Random, number: int) -> Prompt:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    key = f"key {number:02} {rng.getrandbits(32):08x}" if rng.random() < 0.9 else None
    return Prompt(kind, f"{kind} prompt {number:02}", key, rng.random() < 0.7)
