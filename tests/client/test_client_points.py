"""Clients that die at each point that the product names in them: what was submitted is stored once in the end."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from client.soak import Run
from faults.armed import full
from sayagain import fault_points
from sayagain.client import Outbox
from sayagain.client.errors import OutboxFull
from sayagain.fault_points import Point

LIVES: Mapping[Point, Sequence[str]] = {
    # The file is made, and again; a session is noted, a prompt is added, a prompt is done.
    Point.OUTBOX_WRITTEN: [f"outbox_written:{nth}:kill" for nth in (1, 2, 2, 3)],
    Point.CLIENT_KEPT: ["client_kept:1:kill"],
    Point.CLIENT_SENT: ["client_sent:1:kill"],
    Point.CLIENT_ANSWERED: ["client_answered:1:kill"],
    Point.CLIENT_DONE: ["client_done:1:kill"],
    Point.CLIENT_TAKEN: ["client_sent:1:kill", "client_taken:1:kill"],
    # Nothing was sent in the session, so that the next client has to make another one.
    Point.CLIENT_MOVING: ["client_kept:1:kill", "client_moving:1:kill"],
    Point.CLIENT_MOVED: ["client_kept:1:kill", "client_moved:1:kill"],
}
"""By point, what befalls one client after the other. A last one lives."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its processes")


def carried_out(strikes: Sequence[str]) -> Run:
    run = Run(1, strikes=strikes)
    run.go()
    return run


def test_every_point_of_the_client_is_tried() -> None:
    assert set(LIVES) == {point for point in Point if point.name.startswith(("CLIENT_", "OUTBOX_"))}


@pytest.mark.parametrize("point", LIVES, ids=lambda point: point.name.lower())
def test_a_death_at_each_point(point: Point) -> None:
    run = carried_out(LIVES[point])
    assert run.struck == LIVES[point]
    assert run.violations == []
    assert run.counts["prompts"] > 0


@pytest.mark.parametrize("nth", range(2, 6))
def test_a_full_disk_at_each_change_of_the_outbox(nth: int) -> None:
    """What cannot be kept is not taken from the user; what cannot be marked as done is sent again."""
    run = carried_out([f"outbox_written:{nth}:full"])
    assert run.struck == [f"outbox_written:{nth}:full"]
    assert run.violations == []


async def test_a_disk_that_is_full_from_the_start(outbox_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_points, "passing", lambda point: full())
    with pytest.raises(OutboxFull):
        async with Outbox(outbox_path):
            pass
    monkeypatch.undo()
    async with Outbox(outbox_path) as outbox:
        assert await outbox.prompts() == []
