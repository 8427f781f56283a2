"""One run: its schedule is carried out on a real runtime, and the checker judges what was seen."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from faults.faulty import FAULTS, Case, insist, probe, strike
from faults.harness import Agent, Rig, rig
from faults.points import POINTS
from faults.product_points import strike_at
from sayagain.fault_points import Point
from soak.codex import codex_rig
from soak.schedule import RANDOM, Phase, Prompt, Schedule, Step, Strike
from support_checker import Violation, retries_answered
from support_wire import WireError

__all__ = ["Result", "carry_out"]

LONGEST = 150.0
"""Seconds for a whole run, which takes five: what takes longer hangs."""

GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError)


@dataclass
class Result:
    schedule: Schedule
    runtime: str = "claude"
    violations: list[Violation] = field(default_factory=list[Violation])
    strikes: Counter[str] = field(default_factory=Counter[str])
    retries: int = 0


RIGS: Mapping[str, Callable[[], AbstractAsyncContextManager[Rig]]] = {"claude": rig, "codex": codex_rig}
"""By runtime."""


async def carry_out(schedule: Schedule, runtime: str = "claude") -> Result:
    result = Result(schedule, runtime)
    async with RIGS[runtime]() as place:
        try:
            with anyio.fail_after(LONGEST):
                if schedule.point == RANDOM:
                    await _Run(place, schedule, result).go()
                elif schedule.point in POINTS:
                    result.strikes[f"{schedule.point}, {schedule.fault}"] += 1
                    await strike(place, POINTS[schedule.point], schedule.fault)
                elif not await strike_at(place, Point[schedule.point.upper()], schedule.fault, schedule.nth):
                    result.strikes[f"{schedule.point}, not reached so often"] += 1
        except* Exception as errors:  # noqa: BLE001 - whatever it is, it is this run's
            result.violations += [Violation("run", _describe(error)) for error in _leaves(errors)]
        if left := await place.nothing_left():
            result.violations.append(Violation("orphans", str([" ".join(process.cmdline()) for process in left])))
        for struck in place.struck():
            point, _, action = struck.split(":")
            result.strikes[f"{point}, {action}"] += 1
        result.violations += place.violations()
        result.retries = retries_answered(place.evidence())
    return result


class _Run:
    def __init__(self, place: Rig, schedule: Schedule, result: Result) -> None:
        self.place = place
        self.schedule = schedule
        self.result = result
        self.session_id: str | None = None
        self.requests: dict[int, tuple[Agent, int]] = {}
        """By prompt, its latest request."""
        self.inserted: set[int] = set()
        for prompt in schedule.prompts:
            place.note(prompt.text, prompt.key)

    async def go(self) -> None:
        for phase in self.schedule.phases:
            env = {"SAYAGAIN_PATIENCE": self.schedule.patience}
            async with self.place.agent(initialize=False, armed=phase.armed, **env) as agent:
                await self._live(agent, phase)
        await self._finish()

    # The life of one process.

    async def _live(self, agent: Agent, phase: Phase) -> None:
        if phase.answers_asks:
            agent.wire.handle("session/request_permission", _allow)
        attached, done = anyio.Event(), anyio.Event()

        async def steps() -> None:
            with suppress(*GONE, _Ended):
                try:
                    await self._attach(agent, replay=phase.replay)
                except WireError:
                    # Its runtime was struck meanwhile: the client comes again.
                    if not (self.place.struck() or any("runtime" in name for name in self.result.strikes)):
                        raise
                    raise _Ended from None
                attached.set()
                for step in phase.steps:
                    await self._step(agent, step)
            attached.set()
            done.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(steps)
            waited = 0.0
            if not phase.early:
                await attached.wait()
            for strike_ in phase.strikes:
                with anyio.move_on_after(strike_.after - waited):
                    await done.wait()
                    # Nothing is left to do: the rest of the time is for the work that is under way.
                    await anyio.sleep((strike_.after - waited) / 4)
                waited = strike_.after
                await self._strike(agent, strike_)
            tasks.cancel_scope.cancel()

    async def _strike(self, agent: Agent, blow: Strike) -> None:
        self.result.strikes[f"{RANDOM}, {blow.fault}"] += 1
        if blow.fault in ("terminate", "interrupt"):
            agent.pipes.connection.cut = True
            agent.signal(signal.SIGTERM if blow.fault == "terminate" else signal.SIGINT)
        else:
            await FAULTS[blow.fault](agent)
        if blow.fault in ("close_output", "close_input", "close_both"):
            agent.pipes.close_write()
        if blow.fault not in ("kill_runtime", "stop_runtime"):
            status = await agent.ended()
            if status not in (0, -signal.SIGKILL) and agent.wire.lines:
                self.result.violations.append(Violation("exit", f"status {status} after {blow.fault}"))

    async def _attach(self, agent: Agent, *, replay: bool) -> None:
        await _answer(agent, await agent.wire.begin("initialize", _INITIALIZE))
        if self.session_id is not None:
            params = {"sessionId": self.session_id, "cwd": self.place.cwd}
            if replay:
                params["replayFrom"] = {"type": "start"}
            try:
                await _answer(agent, await agent.wire.begin("session/resume", params))
            except WireError as error:
                if error.code != -32002:
                    raise
                # Nothing of it was ever stored; the client starts over.
                self.session_id = None
                self.inserted.clear()
        if self.session_id is None:
            answer = await _answer(agent, await agent.wire.begin("session/new", {"cwd": self.place.cwd}))
            self.session_id = answer["sessionId"]

    async def _step(self, agent: Agent, step: Step) -> None:
        assert self.session_id is not None
        prompt = self.schedule.prompts[step.prompt]
        match step.name:
            case "prompt":
                await self._send(agent, step.prompt)
            case "retry" if prompt.key is not None:
                await self._send(agent, step.prompt)
            case "withdraw":
                owner, request = self.requests.get(step.prompt, (None, 0))
                if owner is agent:
                    await agent.wire.cancel(request)
            case "cancel":
                await agent.wire.notify("session/cancel", {"sessionId": self.session_id})
            case "release":
                self.place.service.release(prompt.text)
            case "replay":
                await agent.wire.begin("session/resume", self._case(prompt).replay)
            case "settle":
                with anyio.move_on_after(1):
                    for owner, request in list(self.requests.values()):
                        if owner is agent:
                            await _answered(agent, request)
            case "pause":
                await anyio.sleep(step.pause)
            case _:
                pass

    async def _send(self, agent: Agent, number: int) -> None:
        assert self.session_id is not None
        prompt = self.schedule.prompts[number]
        self.requests[number] = agent, await agent.begin_prompt(self.session_id, prompt.text, prompt.key)

    # The end.

    async def _finish(self) -> None:
        """What is insisted on is sent until it is inserted; then the next prompt works, and two replays agree."""
        self.place.gate.touch()
        for prompt in self.schedule.prompts:
            self.place.service.release(prompt.text)
        async with self.place.agent(initialize=False) as agent:
            agent.wire.handle("session/request_permission", _allow)
            await self._attach(agent, replay=True)
            for prompt in self.schedule.prompts:
                if prompt.insisted and prompt.key is not None:
                    outcome = await insist(agent, self._case(prompt))
                    if not isinstance(outcome, str):
                        self.result.violations.append(Violation("I12", f"{prompt.text} was answered with {outcome}"))
            await probe(agent, self._case(self.schedule.prompts[0]), "The prompt in the end")
            first = await self._replay(agent)
            await agent.closed_in_order()
        async with self.place.agent() as agent:
            second = await self._replay(agent)
            await agent.closed_in_order()
        self.place.same_bytes.append([first, second])

    async def _replay(self, agent: Agent) -> tuple[str, Any]:
        request = await agent.wire.begin("session/resume", self._case(self.schedule.prompts[0]).replay)
        await agent.wire.answer(request)
        return agent.name, request

    def _case(self, prompt: Prompt) -> Case:
        assert self.session_id is not None
        return Case(self.place, self.session_id, prompt.text, prompt.key or "")


class _Ended(Exception):
    """The connection is gone: the rest of a phase is left out."""


_INITIALIZE = {"protocolVersion": 2, "info": {"name": "soak", "version": "1"}, "capabilities": {}}


async def _answer(agent: Agent, request: int) -> Any:
    await _answered(agent, request)
    return await agent.wire.answer(request)


async def _answered(agent: Agent, request: int) -> None:
    """Wait for an answer; that the agent may end first is no error here."""
    await agent.wire.until(lambda: agent.wire.answered(request) or agent.wire.closed)
    if not agent.wire.answered(request):
        raise _Ended


def _allow(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


def _leaves(errors: BaseExceptionGroup[Any]) -> list[BaseException]:
    return [
        leaf
        for error in errors.exceptions
        for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]


def _describe(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and "/tests/" in trace.tb_next.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}" if trace is not None else "?"
    return f"{type(error).__name__} in {where}: {error}"
