"""The runtime dies while the disk does not tell what it stored: on the real Claude Code."""

from __future__ import annotations

import sys

import anyio
import pytest

from faults.faulty import insist, probe
from faults.harness import PATIENCE, rig
from faults.points import POINTS, prepared

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes pipes and watches processes by pidfd"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_retry_looks_again_when_nobody_could_tell_what_was_stored() -> None:
    point = POINTS["stored_not_seen"]
    async with rig() as run, prepared(run, point) as (case, agent):
        # Of an answered turn the runtime itself knows that it was; of this one it does not.
        case.text = f"slow {case.text}"
        run.note(case.text, None)
        await point.reach(case, agent)
        with anyio.fail_after(PATIENCE):
            await run.service.held(case.text)
        path = run.transcript(case.session_id)
        assert path is not None
        aside = path.rename(run.folder / "aside")
        path.mkdir()
        agent.kill_runtime()
        assert case.request_id is not None
        assert await agent.outcome(case.request_id) == -32603
        path.rmdir()
        aside.rename(path)
        agent.release_all()
        run.service.release(case.text)
        assert await insist(agent, case) == case.message_id
        await probe(agent, case, "The next prompt")
        await agent.closed_in_order()
        assert run.violations() == []
