"""Faults at every point of a keyed prompt, on the real Claude Code. ``make soak`` does all of them, and random ones."""

from __future__ import annotations

import socket
import sys

import anyio
import anyio.lowlevel
import pytest

from faults.faulty import FAULTS, strike
from faults.harness import rig
from faults.points import POINTS, prepared

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes pipes and watches processes by pidfd"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        ("half_a_line_read", "close_both"),
        ("parsed_before_the_lookup", "kill_adapter"),
        ("looked_up_before_submitting", "kill_runtime"),
        ("submitted_not_read", "stop_runtime"),
        ("submitted_not_stored", "kill_both"),
        ("stored_not_seen", "kill_adapter"),
        ("stored_not_seen", "kill_runtime"),
        ("seen_not_written", "close_output"),
        ("half_written", "kill_adapter"),
        ("written_not_read", "kill_both"),
        ("during_the_turn", "kill_runtime"),
        ("held_behind_other_work", "close_input"),
        ("ids_being_read", "kill_adapter"),
    ],
)
async def test_a_prompt_lands_once_whatever_happens(point: str, fault: str) -> None:
    async with rig() as run:
        await strike(run, POINTS[point], fault)
        assert await run.nothing_left() == []
        assert run.violations() == []


async def test_half_an_answer_reaches_the_client() -> None:
    """That the point is what it says."""
    point = POINTS["half_written"]
    async with rig() as run, prepared(run, point) as (case, agent):
        await point.reach(case, agent)
        await FAULTS["kill_adapter"](agent)
        agent.pipes.read_on()
        await agent.wire.until_closed()
        assert agent.pipes.connection.torn.startswith('[{"jsonrpc"')
        assert not agent.wire.answered(case.request_id)


async def test_a_wrapper_that_dies_as_its_rig_ends_is_no_error() -> None:
    async with rig() as run:
        with socket.socket(socket.AF_UNIX) as wrapper:
            wrapper.connect(str(run.control))
            await anyio.wait_all_tasks_blocked()
        await anyio.lowlevel.checkpoint()
