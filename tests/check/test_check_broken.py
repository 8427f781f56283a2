"""Proof that every check can fail: an agent with one fault trips its check and no other."""

from __future__ import annotations

import pytest

from sayagain.check.model import Status
from sayagain.check.runner import run_checks
from sayagain.check.suite import CHECKS
from support_broken import BROKEN
from support_check import PlayedLauncher, Stage


@pytest.fixture
def anyio_backend() -> str:
    """The faults are the same on either."""
    return "asyncio"


def test_every_check_has_its_broken_agent() -> None:
    assert {check.id for check in CHECKS} == set(BROKEN)


@pytest.mark.parametrize("check_id", BROKEN)
async def test_a_fault_trips_exactly_its_check(check_id: str) -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage, BROKEN[check_id]()), stage)
    failed = [result for result in report.results if result.status is Status.FAIL]
    assert [(result.check.id, result.reason) for result in failed if result.check.id != check_id] == []
    assert [result.check.id for result in failed] == [check_id]
    # Whoever reads the report sees where.
    assert failed[0].lines
    assert set(failed[0].lines) <= set(report.trace.events)
    assert report.trouble == ""
