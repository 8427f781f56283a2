"""Runs the checks, one after the other, and says what came of each."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio

from sayagain.check.bench import Bench, NoAgent, NotStarted, signed_in
from sayagain.check.launch import Launcher
from sayagain.check.model import Check, Failed, NotJudged, Result, Status, Tier
from sayagain.check.profiles import Profile
from sayagain.check.suite import CHECKS
from sayagain.check.trace import Event, Trace
from sayagain.check.wire import AgentError, Gone, Silent

__all__ = ["Report", "Watch", "run_checks"]

MOST_SILENCES: Final = 5
"""Checks of the whole run that may wait for something in vain; then the agent is given up."""

MOST_FAILED_STARTS: Final = 3
"""Processes in a row that may end without an answer to ``initialize``."""

Watch: TypeAlias = "Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]"
"""Runs beside the checks; calls what it is given, with the reason, to end the run."""


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
    lines: Sequence[Event] = ()
    """What shows the trouble."""
    seconds: float = 0.0

    def count(self, status: Status, tier: Tier | None = None) -> int:
        """How many checks, of a tier if one is given, came out like that."""
        return sum(r.status is status and tier in (None, r.check.tier) for r in self.results)

    @property
    def not_run(self) -> int:
        """How many checks the run did not come to."""
        return sum(result.not_run for result in self.results)

    @property
    def failed(self) -> bool:
        """Whether a rule that an agent must keep is broken, or nothing could be judged."""
        return bool(self.trouble) or self.count(Status.FAIL, Tier.MUST) > 0 or not self.count(Status.PASS)


async def run_checks(
    launcher: Launcher,
    profile: Profile,
    checks: Sequence[Check] = CHECKS,
    *,
    limit: float = math.inf,
    tell: Callable[[Result], None] = lambda result: None,
    watch: Watch | None = None,
) -> Report:
    """Run the checks on the agent that the launcher starts, for ``limit`` seconds at most.

    ``tell`` hears of each result at once. What the run does not come to is in the report too, as not run.
    """
    trace = Trace()
    report = Report(profile.name, trace)
    start = time.monotonic()
    async with anyio.create_task_group() as tasks:
        bench = Bench(launcher, profile, trace, tasks, f"x{secrets.token_hex(3)}")
        run = _Run(bench, report, limit)
        if watch is not None:
            tasks.start_soon(watch, run.stop)
        try:
            for check in sorted(checks, key=lambda check: check.over_all):
                result = await run.next(check)
                report.agent = bench.info
                report.results.append(result)
                tell(result)
        finally:
            with anyio.CancelScope(shield=True):
                await bench.kill()
        tasks.cancel_scope.cancel()
    report.seconds = time.monotonic() - start
    return report


class _Run:
    def __init__(self, bench: Bench, report: Report, limit: float) -> None:
        self._bench = bench
        self._report = report
        self._limit = limit
        self._deadline = anyio.current_time() + limit
        self._scope = anyio.CancelScope()
        self._silences = 0

    def stop(self, reason: str) -> None:
        """End the run: the check that is under way, and all after it."""
        self._report.trouble = self._report.trouble or reason
        self._scope.cancel()

    async def next(self, check: Check) -> Result:
        """What comes of the check, or of the run's end before it."""
        if self._report.trouble:
            return await self._after_the_end(check)
        first = len(self._bench.trace.events)
        result = None
        with anyio.CancelScope(deadline=self._deadline) as self._scope:
            result = await self._tried(check)
            await self._tidied()
        if self._scope.cancelled_caught and not self._report.trouble:
            self._report.trouble = f"the run did not end within its limit of {self._limit:g} s"
        if result is None:
            trace = self._bench.trace.events[first:]
            result = Result(check, Status.SKIPPED, f"not run to its end: {self._report.trouble}", not_run=True)
            result.trace = trace
        return result

    async def _tried(self, check: Check) -> Result:
        bench = self._bench
        try:
            result = await _one(bench, check)
        except NoAgent as error:
            result = Result(check, Status.SKIPPED, str(error), error.events)
            bench.unsound = True
            bench.silent = str(error) if isinstance(error.__cause__, Silent) else ""
            if not isinstance(error, NotStarted):
                result.not_run = True
                self._give_up(str(error), error.events)
        # One that has never answered is not asked again for as long as that takes; one that ends is started again.
        if bench.failed_starts >= (1 if bench.silent and not bench.met else MOST_FAILED_STARTS):
            self._give_up(result.reason, result.lines)
        return result

    async def _tidied(self) -> None:
        bench = self._bench
        await bench.tidy()
        what, bench.silent = bench.silent, ""
        self._silences += bool(what)
        if self._silences >= MOST_SILENCES:
            self._give_up(f"{self._silences} checks waited in vain, the last one for this: {what}")

    def _give_up(self, reason: str, lines: Sequence[Event] = ()) -> None:
        if not self._report.trouble:
            self._report.trouble = reason
            self._report.lines = lines

    async def _after_the_end(self, check: Check) -> Result:
        """Against the rules for all that is written, what was seen counts. For them, it is not enough."""
        trouble = self._report.trouble
        if not check.over_all or not any(event.side == "agent" for event in self._bench.trace.events):
            return Result(check, Status.SKIPPED, f"not run: {trouble}", not_run=True)
        result = await _one(self._bench, check)
        if result.status is not Status.FAIL:
            result.status, result.not_run = Status.SKIPPED, True
            result.reason = f"nothing against it was seen, but the run was given up: {trouble}"
        return result


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
        cause = error.__cause__
        bench.unsound = isinstance(cause, Silent | Gone | TimeoutError)
        bench.silent = str(error) if isinstance(cause, Silent | TimeoutError) else ""
        if isinstance(cause, Silent | Gone):
            result.reason, result.lines = bench.describe(error), bench.shown(cause) or error.events
    except AgentError as error:
        signed_in(error)
        shown = [event for event in (error.call.sent, error.call.answer) if event is not None]
        result.status, result.reason, result.lines = Status.FAIL, str(error), shown
    except (Silent, Gone) as error:
        result.status, result.reason, result.lines = Status.FAIL, bench.describe(error), bench.shown(error)
        bench.unsound = True
        bench.silent = str(error) if isinstance(error, Silent) else ""
    result.trace = bench.trace.events[first:]
    result.seconds = time.monotonic() - start
    return result
