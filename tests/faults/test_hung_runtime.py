"""A client that leaves does not wait for a runtime that hangs: on the real Claude Code, with patience as it is."""

from __future__ import annotations

import sys

import anyio
import pytest

from faults.faulty import retry_on_new_processes
from faults.harness import rig
from faults.points import POINTS, prepared

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes pipes and watches processes by pidfd"),
]

SOON = 20
"""Seconds: less than the patience with a runtime that hangs (30, 60 for its start), more than a busy machine needs."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("name", ["looked_up_before_submitting", "submitted_not_read"])
async def test_the_adapter_ends_soon_beside_a_runtime_that_hangs(name: str) -> None:
    point = POINTS[name]
    async with rig() as run, prepared(run, point) as (case, agent):
        let_go = await point.reach(case, agent)
        agent.stop_runtime()
        with anyio.fail_after(SOON):
            assert await agent.close_input() == 0
        await let_go()
        assert await run.nothing_left() == []
        await retry_on_new_processes(case)
        assert run.violations() == []
