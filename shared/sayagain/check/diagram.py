"""A failing trace as a sequence diagram: plain SVG, no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from sayagain.check.lines import label
from sayagain.check.trace import Event
from sayagain.check.wire import BARRIER
from sayagain.legible import clean, excerpt

__all__ = ["diagram", "rows_of"]

WIDTH: Final = 900
CLIENT: Final = 60
AGENT: Final = WIDTH - 60
ROW: Final = 30
TOP: Final = 46
LONGEST: Final = 104
"""Characters of a label that fit between the two lines."""

AROUND: Final = 2
"""Lines before and after each shown one that stay; the others are folded into one row."""

MOST_ROWS: Final = 40


@dataclass(frozen=True)
class Row:
    """One row of a diagram: an event, or ``folded`` ones that are not shown."""

    event: Event | None
    shown: bool = False
    folded: int = 0


def rows_of(trace: Sequence[Event], lines: Sequence[Event]) -> list[Row]:
    """The rows that tell what happened: the lines that show the failure, requests, answers, notes, and what is near."""
    trace = _without_barriers(trace)
    # A check of all traces has its lines elsewhere.
    trace = trace if set(lines) <= set(trace) and trace else list(lines)
    marked = {event.index for event in lines}
    places = [place for place, event in enumerate(trace) if event.index in marked]
    first, last = (min(places), max(places)) if places else (0, len(trace) - 1)
    near = {near for place in places for near in range(place - AROUND, place + AROUND + 1)}
    rows: list[Row] = []
    folded = 0
    for place, event in enumerate(trace):
        keep = place in near or (first <= place <= last and (not event.kind or event.side == "note"))
        if not keep or len(rows) >= MOST_ROWS:
            folded += 1
            continue
        if folded:
            rows.append(Row(None, folded=folded))
            folded = 0
        rows.append(Row(event, shown=event.index in marked))
    if folded:
        rows.append(Row(None, folded=folded))
    return rows


def _without_barriers(trace: Sequence[Event]) -> Sequence[Event]:
    """The check's own questions whether all is here yet, and their answers, tell nobody anything."""
    asked = {event.call for event in trace if event.side == "client" and event.method == BARRIER}
    return [
        event
        for event in trace
        if event.method != BARRIER and not (event.side == "agent" and event.method is None and event.call in asked)
    ]


def diagram(trace: Sequence[Event], lines: Sequence[Event], title: str) -> str:
    """The diagram; red is what shows the failure."""
    rows = rows_of(trace, lines)
    height = TOP + ROW * len(rows) + 14
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}" class="sequence">',
        _party(CLIENT, "client", height),
        _party(AGENT, "agent", height),
    ]
    for number, row in enumerate(rows):
        y = TOP + ROW * number + 22
        parts.append(_row(row, y))
    parts.append("</svg>")
    return "".join(parts)


def _party(x: int, name: str, height: int) -> str:
    return (
        f'<line x1="{x}" y1="34" x2="{x}" y2="{height - 6}" class="life"/>'
        f'<rect x="{x - 46}" y="6" width="92" height="26" rx="6" class="party"/>'
        f'<text x="{x}" y="24" class="name">{name}</text>'
    )


def _row(row: Row, y: int) -> str:
    if row.event is None:
        lines = "line" if row.folded == 1 else "lines"
        return f'<text x="{WIDTH // 2}" y="{y}" class="folded">⋮ {row.folded} more {lines}</text>'
    event, said = row.event, label(row.event)
    if event.side == "note":
        return (
            f'<rect x="{CLIENT + 90}" y="{y - 15}" width="{AGENT - CLIENT - 180}" height="21" rx="4" class="note"/>'
            f'<text x="{WIDTH // 2}" y="{y}" class="aside">{escape(excerpt(said, LONGEST))}</text>'
        )
    mark = " shown" if row.shown else ""
    start, end = (CLIENT, AGENT - 7) if event.side == "client" else (AGENT, CLIENT + 7)
    point = 7 if event.side == "client" else -7
    head = f"{end + point},{y + 4} {end},{y} {end},{y + 8}"
    return (
        f'<g class="{event.side}{mark}"><title>{escape(clean(event.text[:2000]))}</title>'
        f'<line x1="{start}" y1="{y + 4}" x2="{end}" y2="{y + 4}"/><polygon points="{head}"/>'
        f'<text x="{CLIENT + 14}" y="{y}">{escape(excerpt(said, LONGEST))}</text>'
        f'<text x="{AGENT + 10}" y="{y + 8}" class="number">#{event.index}</text></g>'
    )
