"""What a measure reports, and what it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench.contestants import Contestant
from bench.transcripts import Stored

__all__ = ["KIB", "MIB", "MS", "Measure", "Metric", "Readings"]

Readings: TypeAlias = Mapping[str, Sequence[float]]
"""What one run gives: values in the metric's unit, by the name of the metric."""

MS = 1e3
"""Seconds to milliseconds."""
KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Metric:
    """``ratio`` is the most that our median may be of the peer's; ``limit`` the most that our median may be, in
    ``unit``, or with ``worst`` every single value. Without either the metric only informs.
    """

    name: str
    title: str
    unit: str
    ratio: float | None = None
    limit: float | None = None
    worst: bool = False


@dataclass(frozen=True)
class Measure:
    """``run`` takes one reading of one contestant; it is called for each of them in turn, ``runs`` times.

    ``keyed`` measures ask for what only an agent that knows keys can do: the peer is left out.
    """

    name: str
    metrics: Sequence[Metric]
    run: Callable[[Contestant, Stored], Readings]
    runs: int
    quick_runs: int
    """0: not part of a quick run."""
    keyed: bool = False
    runtime: str = "claude"
