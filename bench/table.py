"""From readings to a table for people and a document for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.metrics import Measure, Metric

__all__ = ["Result", "as_json", "header", "line"]


@dataclass
class Result:
    """All values of one metric, by contestant, in the order in which they were taken."""

    measure: Measure
    metric: Metric
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, contestant: str, values: Sequence[float]) -> None:
        self.values.setdefault(contestant, []).extend(values)

    @property
    def ratio(self) -> float | None:
        """The median of ours over the peer's."""
        ours, peers = self.values.get("ours"), self.values.get("peer")
        if not ours or not peers or not median(peers):
            return None
        return median(ours) / median(peers)

    @property
    def target(self) -> str:
        if self.metric.ratio is not None:
            return f"<= {self.metric.ratio:.2g} x"
        if self.metric.limit is not None:
            return f"<= {self.metric.limit:g} {self.metric.unit}"
        return ""

    @property
    def verdict(self) -> str:
        """Judged on medians, unless the metric says ``worst``."""
        ours = self.values.get("ours")
        if not ours or not self.target:
            return ""
        if self.metric.limit is not None:
            value = max(ours) if self.metric.worst else median(ours)
            return "met" if value <= self.metric.limit else "MISSED"
        if self.ratio is None:
            return "no peer"
        return "met" if self.ratio <= (self.metric.ratio or 0) else "MISSED"


_COLUMNS = "{:<58} {:>5} {:>28} {:>28} {:>7} {:>10} {}"


def header() -> str:
    return _COLUMNS.format(
        "", "unit", "ours: median [min..max]", "peer: median [min..max]", "ratio", "target", ""
    ).rstrip()


def line(result: Result) -> str:
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    ours, peer = (_spread(result.values.get(name)) for name in ("ours", "peer"))
    return _COLUMNS.format(
        result.metric.title, result.metric.unit, ours, peer, ratio, result.target, result.verdict
    ).rstrip()


def as_json(results: Sequence[Result], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, single values included."""
    return {
        **about,
        "results": [
            {
                "measure": result.measure.name,
                "metric": result.metric.name,
                "title": result.metric.title.strip(),
                "unit": result.metric.unit,
                "values": result.values,
                "medians": {name: median(values) for name, values in result.values.items()},
                "ratio": result.ratio,
                "target": result.target,
                "verdict": result.verdict,
            }
            for result in results
        ],
    }


def _spread(values: Sequence[float] | None) -> str:
    if not values:
        return "-"
    return f"{_number(median(values))} [{_number(min(values))}..{_number(max(values))}]"


def _number(value: float) -> str:
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
