"""A fault at every point that the product names, on the real runtimes. ``make soak`` does all faults, and more of them.

The points are those of the product's own table: one that nobody passes fails here. Those of our client are in
``tests/client``.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from faults.harness import Rig
from faults.points import POINTS
from faults.product_points import ADAPTERS, AT, CLIENT, actions, die_at_each, points_of, strike_at
from sayagain import fault_points
from sayagain.fault_points import Point
from soak.run import RIGS

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watches processes by pidfd"),
]

PRODUCT = [Path(__file__).parents[2] / folder for folder in ("shared", "adapters")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=ADAPTERS)
async def run(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with RIGS[request.param]() as run:
        yield run


async def test_a_session_outlives_a_death_at_each_point(run: Rig) -> None:
    """The processes of one session die one after the other; each prompt is there once in the end."""
    assert await die_at_each(run, [point for point in points_of(run.runtime) if not AT[point].ghost]) == []
    assert await run.nothing_left() == []
    assert run.violations() == []


@pytest.mark.parametrize("point", [point for point in AT if AT[point].ghost], ids=lambda point: point.name.lower())
async def test_a_death_while_a_ghost_is_taken_back(point: Point) -> None:
    async with RIGS["codex"]() as run:
        assert await strike_at(run, point, "kill")
        assert await run.nothing_left() == []
        assert run.violations() == []


@pytest.mark.parametrize(
    ("point", "action"),
    [
        (Point.LEASE_WRITING, "full"),
        (Point.PROVED, "kill_runtime"),
        (Point.SUBMITTED, "stop_runtime"),
    ],
    ids=["lease_writing-full", "proved-kill_runtime", "submitted-stop_runtime"],
)
async def test_the_agent_outlives_a_fault(run: Rig, point: Point, action: str) -> None:
    assert action in actions(point)
    assert await strike_at(run, point, action)
    assert await run.nothing_left() == []
    assert run.violations() == []


async def test_the_same_strike_falls_at_the_same_place() -> None:
    """So a failing seed fails again."""
    passed = []
    for _ in range(2):
        async with RIGS["codex"]() as run:
            assert await strike_at(run, Point.CODEX_TAKEN, "kill")
            passed.append((run.passed(), run.struck()))
    assert passed[0] == passed[1]


def test_the_points_of_the_product_and_of_the_tests_have_their_own_names() -> None:
    assert not {point.name.lower() for point in Point} & set(POINTS)
    assert set(AT) | CLIENT == set(Point)
    assert set().union(*map(points_of, ADAPTERS)) == set(AT)


def test_without_a_hook_a_point_does_nothing() -> None:
    """Nor has it anything to do it with: an empty function is called."""
    assert [fault_points.passing(point) for point in Point] == [None] * len(Point)

    def empty(point: Point) -> None:
        """Nothing."""

    assert [step.opname for step in dis.get_instructions(fault_points.passing)] == [
        step.opname for step in dis.get_instructions(empty)
    ]


def test_the_product_installs_no_hook_and_passes_each_point_somewhere() -> None:
    passes: Counter[str] = Counter()
    for path in (path for folder in PRODUCT for path in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "fault_points.py":
            assert "fault_points.install" not in text, path
            assert "fault_points import install" not in text, path
            passes.update(point.name for point in Point if f"Point.{point.name}" in text)
    assert set(passes) == {point.name for point in Point}
    assert "environ" not in inspect.getsource(fault_points)
