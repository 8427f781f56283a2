"""Faults at the points that the product names itself: how each is reached, on either runtime, and what follows.

An agent is started with a hook (``armed.py``) and brought to the point by requests that always come in the same order.
It strikes itself there, so that nothing lies between the instant and the fault.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import psutil

from faults.faulty import insist, probe, retry_on_new_processes
from faults.harness import PATIENCE, Agent, Rig
from faults.points import BEFORE, Case
from sayagain.fault_points import Point

__all__ = ["ADAPTERS", "AT", "CLIENT", "At", "actions", "die_at_each", "passings", "points_of", "strike_at"]

PROMPT = "The prompt", "key-of-the-prompt"
OTHER = "slow other prompt", "key-of-the-other-prompt"

CLIENT = frozenset(point for point in Point if point.name.startswith(("CLIENT_", "OUTBOX_")))
"""Our client's: ``tests/client`` has them."""

ADAPTERS = ("claude", "codex")


class Gone(Exception):
    """The agent has ended, as it was meant to."""


Reach = Callable[[Case, Agent], Awaitable[None]]


@dataclass(frozen=True)
class At:
    """How a point is reached. ``also`` are further strikes, which bring it about."""

    reach: Reach
    also: str = ""
    ghost: bool = False
    """The prompt was lost by Codex in a way that the model would still see it."""


async def hear(agent: Agent, request: int) -> Any:
    """The answer, or :class:`Gone`; an error is an answer."""
    await agent.wire.until(lambda: agent.wire.answered(request) or agent.wire.closed)
    if not agent.wire.answered(request):
        raise Gone
    return agent.wire._answers[request]


async def replayed(case: Case, agent: Agent) -> None:
    """A resume with replay, the prompt, a retry, and an end in order."""
    await hear(agent, await agent.wire.begin("session/resume", case.replay))
    await _prompt(case, agent)


async def looked_up(case: Case, agent: Agent) -> None:
    """A resume without replay: the ids are read for the prompt."""
    await _resume(case, agent)
    await _prompt(case, agent)


async def held(case: Case, agent: Agent) -> None:
    """The turn of another prompt is under way."""
    await _resume(case, agent)
    await hear(agent, await agent.begin_prompt(case.session_id, *OTHER))
    await case.send(agent)
    # It is answered in the order of the wire.
    await hear(agent, await agent.wire.begin("session/list", {}))
    case.rig.service.release(OTHER[0])
    assert case.request_id is not None
    await hear(agent, case.request_id)


async def taken_back(case: Case, agent: Agent) -> None:
    """The prompt is withdrawn when it is submitted and not written: the adapter stands still at that instant."""
    await _resume(case, agent)
    await case.send(agent)
    assert case.request_id is not None
    with anyio.fail_after(PATIENCE):
        while psutil.Process(agent.process.pid).status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 - nothing tells
            await anyio.sleep(0.01)
    await agent.wire.cancel(case.request_id)
    agent.thaw()
    await hear(agent, case.request_id)


async def _resume(case: Case, agent: Agent) -> None:
    params = {"sessionId": case.session_id, "cwd": case.rig.cwd}
    await hear(agent, await agent.wire.begin("session/resume", params))


async def _prompt(case: Case, agent: Agent) -> None:
    for _ in range(2):
        await case.send(agent)
        assert case.request_id is not None
        await hear(agent, case.request_id)
    # What follows strikes while the session ends.
    await hear(agent, await agent.wire.begin("session/close", {"sessionId": case.session_id}))


AT: Mapping[Point, At] = {
    **{point: At(replayed) for point in Point if point not in CLIENT},
    Point.HELD: At(held),
    Point.IDS_WANTED: At(looked_up),
    Point.IDS_READ: At(looked_up),
    Point.CODEX_IDS_PAGE: At(looked_up),
    Point.WITHDRAWING: At(taken_back, also="submitting:1:pause"),
    Point.WITHDRAWN: At(taken_back, also="submitting:1:pause"),
    Point.RUNTIME_GONE: At(replayed, also="submitted:1:kill_runtime"),
    Point.CODEX_REVERTING: At(replayed, ghost=True),
    Point.CODEX_REVERTED: At(replayed, ghost=True),
}

BEFORE_A_RUNTIME = {Point.LEASE_WRITING, Point.LEASE_TAKEN, Point.REPLAY_BEGUN}
"""Points at which there may be no runtime to strike."""

WRITTEN = {Point.SUBMITTED, Point.CLAUDE_WRITTEN, Point.CODEX_TAKEN}
"""Points at which a runtime that stands still is noticed: it has a prompt, and says nothing."""


def points_of(runtime: str) -> list[Point]:
    """The points that an agent in front of this runtime has."""
    others = tuple(f"{name.upper()}_" for name in ADAPTERS if name != runtime)
    return [point for point in AT if not point.name.startswith(others)]


def actions(point: Point) -> list[str]:
    """What can strike there."""
    found = ["kill", "kill_both"]
    if point not in BEFORE_A_RUNTIME:
        found.append("kill_runtime")
    if point in WRITTEN:
        found.append("stop_runtime")
    if point is Point.LEASE_WRITING:
        found.append("full")
    return found


def passings(point: Point) -> int:
    """How often a strike may let the point be passed: one that is brought about by another strike is passed once."""
    return 1 if AT[point].also or AT[point].ghost else 3


async def strike_at(rig: Rig, point: Point, action: str, nth: int = 1) -> bool:
    """A strike at the ``nth`` passing, all retries after it, and a clean end; whether it was passed so often."""
    at = AT[point]
    for noted in (BEFORE, OTHER, PROMPT):
        rig.note(*noted)
    case = await _stored_session(rig, ghost=at.ghost)
    struck = await _life(case, at, f"{point.name.lower()}:{nth}:{action}", nth)
    await retry_on_new_processes(case)
    return struck


async def die_at_each(rig: Rig, points: Sequence[Point]) -> list[Point]:
    """One session, one process after the other, each dead at another point; the points that were not reached.

    In the end every prompt is sent again.
    """
    for noted in (BEFORE, OTHER):
        rig.note(*noted)
    first = await _stored_session(rig, ghost=False)
    cases, missed = [], []
    for point in points:
        case = Case(rig, first.session_id, f"The prompt at {point.name.lower()}", f"key-{point.name.lower()}")
        rig.note(case.text, case.key)
        if not await _life(case, AT[point], f"{point.name.lower()}:1:kill"):
            missed.append(point)
        cases.append(case)
        await rig.nothing_left()
    async with rig.agent() as agent:
        await agent.wire.resume(first.session_id, rig.cwd, replay=True)
        for case in cases:
            assert await insist(agent, case) == case.message_id, case.text
        await agent.closed_in_order()
    await retry_on_new_processes(cases[0])
    return missed


async def _life(case: Case, at: At, strike: str, times: int = 1) -> bool:
    """A process that is brought to the point and struck; whether it was."""
    deadly, rig = strike.endswith((":kill", ":kill_both")), case.rig
    env = {"SAYAGAIN_PATIENCE": "1"} if strike.endswith(":stop_runtime") else {}
    async with rig.agent(armed=",".join(filter(None, (at.also, strike))), **env) as agent:
        with suppress(Gone, anyio.BrokenResourceError, anyio.ClosedResourceError):
            for number in range(1, times):
                before = Case(rig, case.session_id, f"The prompt of round {number}", f"key-of-round-{number}")
                rig.note(before.text, before.key)
                await at.reach(before, agent)
            await at.reach(case, agent)
            if strike in rig.struck():
                await _go_on(case, agent)
        struck = strike in rig.struck()
        agent.pipes.connection.cut = struck and deadly
        agent.pipes.close_write()
        status = await agent.ended()
        assert status == (-signal.SIGKILL if struck and deadly else 0), f"status {status} after {strike}"
    return struck


async def _go_on(case: Case, agent: Agent) -> None:
    """The adapter lives: a retry on the same connection is answered well, and the next prompt works."""
    case.rig.service.release(OTHER[0])
    await _resume(case, agent)
    outcome = await insist(agent, case)
    assert outcome == case.message_id, f"the retry on the same connection was answered with {outcome}"
    await probe(agent, case, "The prompt on the same connection")
    await hear(agent, await agent.wire.begin("session/list", {}))


async def _stored_session(rig: Rig, *, ghost: bool) -> Case:
    """A session of an earlier process, with one prompt."""
    async with rig.agent() as agent:
        session_id = await agent.wire.new(rig.cwd)
        case = Case(rig, session_id, *PROMPT)
        await agent.wire.prompt(session_id, *BEFORE)
        await agent.wire.idle(session_id)
        if ghost:
            await agent.wire.prompt(session_id, *PROMPT)
            await agent.wire.idle(session_id, 2)
        await agent.closed_in_order()
    if ghost:
        make_ghost(rig, case)
    return case


def make_ghost(rig: Rig, case: Case) -> None:
    """What a death between Codex's two writes leaves: what the model sees, and no item that has our id."""
    (path,) = Path(rig.env["CODEX_HOME"]).glob(f"sessions/**/rollout-*-{case.session_id}.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    end = next(
        number
        for number, line in enumerate(lines)
        if json.loads(line)["payload"].get("item", {}).get("client_id") == case.message_id
    )
    path.write_text("".join(lines[:end]), encoding="utf-8")
    for database in Path(rig.env["CODEX_HOME"]).glob("thread_history_1.sqlite*"):
        database.unlink()
    # As if it had never been seen: its answer, and that the model was asked, are of a message that was stored.
    rig.connections.clear()
    rig.service.requests.clear()
