"""Our own agent keeps every rule; a check that cannot be made says why."""

from __future__ import annotations

from sayagain.check.model import Feature, Status
from sayagain.check.runner import run_checks
from sayagain.check.suite import CHECKS
from support_check import PlayedLauncher, Stage


async def test_our_agent_passes_every_check() -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage), stage)
    assert [(r.check.id, r.status, r.reason) for r in report.results if r.status is not Status.PASS] == []
    assert len(report.results) == len(CHECKS)
    assert report.agent["name"] == "sayagain-fake"
    assert not report.failed


async def test_what_a_profile_cannot_do_is_skipped_with_the_reason() -> None:
    stage = Stage(features=())
    report = await run_checks(PlayedLauncher(stage), stage)
    for result in report.results:
        if result.check.needs:
            assert result.status is Status.SKIPPED
            assert "the profile played has no way to" in result.reason
        else:
            assert result.status is Status.PASS, result.reason
    assert {feature for check in CHECKS for feature in check.needs} == set(Feature)


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
