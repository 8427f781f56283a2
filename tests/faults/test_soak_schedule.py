"""A seed stands for one schedule."""

from __future__ import annotations

import pytest

from faults.product_points import points_of
from soak.run import RIGS
from soak.schedule import RANDOM, points, schedule


def test_the_same_seed_is_the_same_schedule() -> None:
    assert [schedule(seed) for seed in range(50)] == [schedule(seed) for seed in range(50)]


def test_other_seeds_are_other_schedules() -> None:
    assert len({repr(schedule(seed)) for seed in range(200)}) > 150


def test_a_schedule_can_be_held_to_one_point() -> None:
    assert {schedule(seed, "half_written").point for seed in range(20)} == {"half_written"}
    assert {schedule(seed, RANDOM).point for seed in range(20)} == {RANDOM}


@pytest.mark.parametrize("runtime", RIGS)
def test_a_thousand_seeds_draw_every_point(runtime: str) -> None:
    drawn = [schedule(seed, None, runtime) for seed in range(1000)]
    assert {each.point for each in drawn} == {*points(runtime), RANDOM}
    armed = {phase.armed.split(":")[0] for each in drawn for phase in each.phases if phase.armed is not None}
    assert armed == {point.name.lower() for point in points_of(runtime)}
