"""Our own agent keeps every rule; a check that cannot be made says why."""

from __future__ import annotations

from collections.abc import Iterable

from sayagain.check.model import Feature, Status
from sayagain.check.runner import run_checks
from sayagain.check.suite import CHECKS
from support_check import Fault, Message, PlayedLauncher, Stage, update_of


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


class OnItsWay(Fault):
    """What a new session tells of itself, once, as a client asks for the session's empty history."""

    def __init__(self) -> None:
        super().__init__()
        self.late = True

    def agent(self, m: Message) -> Iterable[Message | str]:
        update = m.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "replay_complete" and self.late:
            self.late = False
            return [update_of(m["params"]["sessionId"], "available_commands_update", availableCommands=[]), m]
        return [m]


async def test_what_was_written_before_the_request_was_read_is_no_part_of_the_replay() -> None:
    stage, fault = Stage(), OnItsWay()
    checks = [check for check in CHECKS if check.id == "marker-empty"]
    report = await run_checks(PlayedLauncher(stage, fault), stage, checks)
    assert [(r.status, r.reason) for r in report.results] == [(Status.PASS, "")]
    assert not fault.late


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
