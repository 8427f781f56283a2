"""Runs the checks, one after the other, and says what came of each."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from sayagain.check.bench import Bench, NoAgent, signed_in
from sayagain.check.launch import Launcher
from sayagain.check.model import Check, Failed, NotJudged, Result, Status, Tier
from sayagain.check.profiles import Profile
from sayagain.check.suite import CHECKS
from sayagain.check.trace import Trace
from sayagain.check.wire import AgentError, Gone, Silent

__all__ = ["Report", "run_checks"]

MOST_SILENCES: Final = 5
"""Checks in a row that may end because nothing came; then the agent is given up."""

GIVEN_UP: Final = "the run was given up"


@dataclass
class Report:
    """What came of all checks."""

    profile: str
    trace: Trace
    agent: dict[str, Any] = field(default_factory=dict[str, Any])
    """The agent's ``info``: its name, title and version."""
    results: list[Result] = field(default_factory=list[Result])
    trouble: str = ""
    """Why the run was given up, if it was."""
    seconds: float = 0.0

    def count(self, status: Status, tier: Tier | None = None) -> int:
        """How many checks, of a tier if one is given, came out like that."""
        return sum(r.status is status and tier in (None, r.check.tier) for r in self.results)

    @property
    def failed(self) -> bool:
        """Whether a rule that an agent must keep is broken, or nothing could be judged."""
        return bool(self.trouble) or self.count(Status.FAIL, Tier.MUST) > 0 or not self.count(Status.PASS)


async def run_checks(
    launcher: Launcher,
    profile: Profile,
    checks: Sequence[Check] = CHECKS,
    *,
    tell: Callable[[Result], None] = lambda result: None,
) -> Report:
    """Run the checks on the agent that the launcher starts; ``tell`` hears of each result at once."""
    trace = Trace()
    report = Report(profile.name, trace)
    start = time.monotonic()
    async with anyio.create_task_group() as tasks:
        bench = Bench(launcher, profile, trace, tasks, f"x{secrets.token_hex(3)}")
        try:
            await _all(bench, checks, report, tell)
        finally:
            with anyio.CancelScope(shield=True):
                await bench.kill()
        tasks.cancel_scope.cancel()
    report.seconds = time.monotonic() - start
    return report


async def _all(bench: Bench, checks: Sequence[Check], report: Report, tell: Callable[[Result], None]) -> None:
    silences = 0
    for check in sorted(checks, key=lambda check: check.over_all):
        if report.trouble:
            result = Result(check, Status.SKIPPED, GIVEN_UP)
        else:
            try:
                result = await _one(bench, check)
            except NoAgent as error:
                report.trouble = str(error)
                result = Result(check, Status.SKIPPED, GIVEN_UP)
            silences = silences + 1 if bench.unsound else 0
            if silences >= MOST_SILENCES:
                report.trouble = f"given up: {silences} checks in a row got no answer in time"
            with suppress(NoAgent):
                await bench.tidy()
        report.agent = bench.info or report.agent
        report.results.append(result)
        tell(result)


async def _one(bench: Bench, check: Check) -> Result:
    first = len(bench.trace.events)
    start = time.monotonic()
    result = Result(check, Status.PASS)
    try:
        for feature in sorted(check.needs, key=lambda feature: feature.name):
            bench.need(feature)
        await check.look(bench)
    except Failed as error:
        result.status, result.reason, result.lines = Status.FAIL, error.reason, error.events
    except NotJudged as error:
        result.status, result.reason, result.lines = Status.SKIPPED, error.reason, error.events
        bench.unsound = isinstance(error.__cause__, Silent | Gone | TimeoutError)
    except AgentError as error:
        signed_in(error)
        shown = [event for event in (error.call.sent, error.call.answer) if event is not None]
        result.status, result.reason, result.lines = Status.FAIL, str(error), shown
    except (Silent, Gone) as error:
        result.status, result.reason = Status.FAIL, str(error)
        result.lines = [error.event] if error.event is not None else []
        bench.unsound = True
    result.trace = bench.trace.events[first:]
    result.seconds = time.monotonic() - start
    return result
