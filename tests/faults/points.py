"""The twelve points of a keyed prompt, each reached exactly: no sleeps, and no hooks in the product.

Every function brings an agent with an active session to its point. What it returns is called when the fault is over
and the agent still lives, to let go of what was held.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from faults.harness import PATIENCE, Agent, Rig, user_settings
from sayagain.processes import lease
from sayagain.testing.transcripts import transcript_path, write_transcript
from support_checker import derive, read_transcript
from support_wire import prompt_params

__all__ = ["BEFORE", "POINTS", "Case", "Point", "prepared"]

BEFORE = "The prompt before", "key-of-the-prompt-before"
PROMPT = "The prompt", "key-of-the-prompt"
OTHER = "Another prompt", "key-of-another-prompt"

TURNS = 700
"""Of a transcript whose replay (some 5 MB) cannot fit into any queue of the agent."""


@dataclass
class Case:
    """A session in which ``text`` is about to be sent under ``key``. ``request_id`` is that of its request."""

    rig: Rig
    session_id: str
    text: str
    key: str
    request_id: int | None = None
    gate: HookGate | None = None

    @property
    def message_id(self) -> str:
        return derive(self.session_id, self.key)

    @property
    def is_stored(self) -> bool:
        path = self.rig.transcript(self.session_id)
        return path is not None and any(row.id == self.message_id for row in read_transcript(path))

    @property
    def params(self) -> dict[str, Any]:
        return prompt_params(self.session_id, self.text, self.key)

    @property
    def replay(self) -> dict[str, Any]:
        return {"sessionId": self.session_id, "cwd": self.rig.cwd, "replayFrom": {"type": "start"}}

    async def send(self, agent: Agent) -> None:
        self.request_id = await agent.wire.begin("session/prompt", self.params)


LetGo = Callable[[], Awaitable[None]]
Reach = Callable[[Case, Agent], Awaitable[LetGo]]


@dataclass(frozen=True)
class Point:
    number: int
    reach: Reach
    restarted: bool = False
    """The session was stored by an earlier process and is resumed by this one."""
    small_pipe: bool = False
    large: bool = False
    """The session has a long history."""
    hook: bool = False
    stored: bool = False
    """The message is in the transcript there."""
    has_runtime: bool = True
    """The adapter has a runtime there."""

    @property
    def name(self) -> str:
        return self.reach.__name__


@asynccontextmanager
async def prepared(rig: Rig, point: Point, **env: str) -> AsyncIterator[tuple[Case, Agent]]:
    """An agent with an active session, ready for the point."""
    for noted in (BEFORE, OTHER, PROMPT):
        rig.note(*noted)
    if point.large:
        session_id = str(uuid.uuid4())
        path = transcript_path(rig.config, rig.cwd, session_id)
        write_transcript(path, turns=TURNS, session_id=session_id, cwd=rig.cwd)
    gate = HookGate(rig) if point.hook else None
    try:
        async with rig.agent(small_pipe=point.small_pipe, **env) as agent:
            if not point.large:
                session_id = await agent.wire.new(rig.cwd)
                await agent.wire.prompt(session_id, *BEFORE)
                await agent.wire.idle(session_id)
            if not point.restarted:
                yield Case(rig, session_id, *PROMPT, gate=gate), agent
                return
            await agent.closed_in_order()
        async with rig.agent(small_pipe=point.small_pipe, **env) as agent:
            yield Case(rig, session_id, *PROMPT), agent
    finally:
        if gate is not None:
            gate.remove()


async def _nothing() -> None:
    pass


async def before_the_line_is_read(case: Case, agent: Agent) -> LetGo:
    """1: the line waits in the pipe."""
    agent.freeze()
    await case.send(agent)
    return _nothing


async def half_a_line_read(case: Case, agent: Agent) -> LetGo:
    """2: one read brought a whole request, and the first half of the prompt's line."""
    listing = agent.wire.request_message("session/list", {})
    prompt = agent.wire.request_message("session/prompt", case.params)
    line = json.dumps(prompt).encode() + b"\n"
    await agent.wire.raw(json.dumps(listing).encode() + b"\n" + line[: len(line) // 2])
    await agent.wire.answer(listing["id"])

    async def rest() -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await agent.wire.raw(line[len(line) // 2 :])
        case.request_id = prompt["id"]

    return rest


async def parsed_before_the_lookup(case: Case, agent: Agent) -> LetGo:
    """3: another process owns the session, so nothing can be looked up yet."""
    owner = await lease.acquire(Path(case.rig.env["CLAUDE_CONFIG_DIR"]), case.session_id, patience=0)
    try:
        await agent.wire.resume(case.session_id, case.rig.cwd)
        await case.send(agent)
        await agent.read_all()
    except BaseException:
        owner.release()
        raise

    async def release() -> None:
        owner.release()

    return release


async def looked_up_before_submitting(case: Case, agent: Agent) -> LetGo:
    """4: the runtime is not started yet; that the ids are known shows in the answer to a stored key."""
    agent.hold("in:initialize")
    await agent.wire.resume(case.session_id, case.rig.cwd)
    await agent.held("in:initialize")
    await case.send(agent)
    await agent.wire.prompt(case.session_id, *BEFORE)
    return _let_go(agent)


async def submitted_not_read(case: Case, agent: Agent) -> LetGo:
    """5: the runtime has not read what it was given."""
    agent.hold("in:user")
    await case.send(agent)
    await agent.held("in:user")
    return _let_go(agent)


async def submitted_not_stored(case: Case, agent: Agent) -> LetGo:
    """5: the runtime has read it and stores nothing yet: it waits for a hook of the user's."""
    assert case.gate is not None
    case.gate.close()
    await case.send(agent)
    await case.gate.reached()
    return case.gate.open


async def stored_not_seen(case: Case, agent: Agent) -> LetGo:
    """6: the row is on the disk, its mirror frame on the way."""
    agent.hold("out:mirror", case.message_id)
    await case.send(agent)
    await agent.held("out:mirror")
    return _let_go(agent)


async def seen_not_written(case: Case, agent: Agent) -> LetGo:
    """7: the pipe to the client is full. That the insertion was seen shows in the next prompt's submission."""
    await agent.pipes.stop_reading()
    await agent.wire.post(*_answered_at_once(agent))
    agent.hold("in:user", derive(case.session_id, OTHER[1]))
    await case.send(agent)
    await agent.begin_prompt(case.session_id, *OTHER)
    await agent.held("in:user")
    return _let_go(agent)


async def half_written(case: Case, agent: Agent) -> LetGo:
    """8: the answer is in a batch that is longer than the pipe."""
    prompt = agent.wire.request_message("session/prompt", case.params)
    await _stored_while_nobody_reads(case, agent, [*_answered_at_once(agent), prompt])
    case.request_id = prompt["id"]
    return _let_go(agent)


async def written_not_read(case: Case, agent: Agent) -> LetGo:
    """9: the answer waits in the pipe to the client."""
    prompt = agent.wire.request_message("session/prompt", case.params)
    await _stored_while_nobody_reads(case, agent, prompt)
    case.request_id = prompt["id"]
    return _let_go(agent)


def _answered_at_once(agent: Agent) -> list[dict[str, Any]]:
    """Requests whose answers fill the small pipe twice."""
    return [agent.wire.request_message(f"unknown/method_{number:03}", {}) for number in range(100)]


async def _stored_while_nobody_reads(case: Case, agent: Agent, message: Any) -> None:
    running = agent.wire.states(case.session_id).count("running")
    agent.hold("out:mirror", case.message_id)
    await agent.wire.post(message)
    await agent.held("out:mirror")
    # All that comes before the answer was read.
    await agent.wire.until(lambda: agent.wire.states(case.session_id).count("running") > running)
    await agent.pipes.stop_reading()
    agent.release("out:mirror")
    with anyio.fail_after(PATIENCE):
        await agent.pipes.readable()


async def during_the_turn(case: Case, agent: Agent) -> LetGo:
    """10: the model has begun to answer."""
    case.text = f"slow {case.text}"
    case.rig.note(case.text, None)
    await case.send(agent)
    with anyio.fail_after(PATIENCE):
        await case.rig.service.held(case.text)
    assert case.request_id is not None
    assert await agent.outcome(case.request_id) == case.message_id

    async def release() -> None:
        case.rig.service.release(case.text)

    return release


async def held_behind_other_work(case: Case, agent: Agent) -> LetGo:
    """11: another prompt's turn is under way."""
    work = f"slow {OTHER[0]}"
    case.rig.note(work, OTHER[1])
    await agent.begin_prompt(case.session_id, work, OTHER[1])
    with anyio.fail_after(PATIENCE):
        await case.rig.service.held(work)
    await case.send(agent)
    await agent.read_all()

    async def release() -> None:
        case.rig.service.release(work)

    return release


async def ids_being_read(case: Case, agent: Agent) -> LetGo:
    """12: a replay that fills the set of ids waits for a client that does not read; the prompt waits for the ids."""
    await agent.wire.resume(case.session_id, case.rig.cwd)
    await agent.pipes.stop_reading()
    prompt = agent.wire.request_message("session/prompt", case.params)
    case.request_id = prompt["id"]
    await agent.wire.post(agent.wire.request_message("session/resume", case.replay), prompt)
    with anyio.fail_after(PATIENCE):
        await agent.pipes.readable()
    return _nothing


def _let_go(agent: Agent) -> LetGo:
    async def let_go() -> None:
        agent.release_all()

    return let_go


class HookGate:
    """A hook of the user's that every prompt passes, and that waits while the gate is closed."""

    def __init__(self, rig: Rig) -> None:
        self._closed = rig.folder / "closed"
        reached, go = (rig.folder / name for name in ("hook-reached", "hook-go"))
        self._descriptors: list[int] = []
        for fifo in (reached, go):
            os.mkfifo(fifo)
            self._descriptors.append(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
        command = f"if [ -e {self._closed} ]; then echo reached > {reached}; read word < {go}; fi"
        user_settings(rig.env, hooks={"UserPromptSubmit": [{"hooks": [{"type": "command", "command": command}]}]})

    def close(self) -> None:
        self._closed.touch()

    async def reached(self) -> None:
        with anyio.fail_after(PATIENCE):
            await anyio.wait_readable(self._descriptors[0])

    async def open(self) -> None:
        self._closed.unlink()
        os.write(self._descriptors[1], b"go\n")

    def remove(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


POINTS: Mapping[str, Point] = {
    point.name: point
    for point in (
        Point(1, before_the_line_is_read),
        Point(2, half_a_line_read),
        Point(3, parsed_before_the_lookup, restarted=True, has_runtime=False),
        Point(4, looked_up_before_submitting, restarted=True),
        Point(5, submitted_not_read),
        Point(5, submitted_not_stored, hook=True),
        Point(6, stored_not_seen, stored=True),
        Point(7, seen_not_written, small_pipe=True, stored=True),
        Point(8, half_written, small_pipe=True, stored=True),
        Point(9, written_not_read, stored=True),
        Point(10, during_the_turn, stored=True),
        Point(11, held_behind_other_work),
        Point(12, ids_being_read, large=True),
    )
}
