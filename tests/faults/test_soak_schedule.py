"""A seed stands for one schedule."""

from __future__ import annotations

from soak.schedule import RANDOM, schedule


def test_the_same_seed_is_the_same_schedule() -> None:
    assert [schedule(seed) for seed in range(50)] == [schedule(seed) for seed in range(50)]


def test_other_seeds_are_other_schedules() -> None:
    assert len({repr(schedule(seed)) for seed in range(200)}) > 150


def test_a_schedule_can_be_held_to_one_point() -> None:
    assert {schedule(seed, "half_written").point for seed in range(20)} == {"half_written"}
    assert {schedule(seed, RANDOM).point for seed in range(20)} == {RANDOM}
