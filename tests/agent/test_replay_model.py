"""Whoever joins by a replay, at any point of any work, ends with what those have who watched all of it (RPL-5, I6, I7).

Hypothesis makes up the work, the moments at which clients join, and how far the history is read in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sayagain.runtime.history import HistoryUpdate
from sayagain.testing.fake_runtime import FakeSession
from support_agent import Client, World, serving, settle
from support_rules import rule
from support_wire import prompt_params, text

Op: TypeAlias = tuple[str, int]

HISTORY = {"user_message", "agent_message", "tool_call_update", "subagent_update"}

OPS = st.tuples(
    st.sampled_from(
        ["chunk", "chunk", "chunk", "store", "tool", "tool_ends", "prompt", "notice", "join", "step", "step", "settle"]
    ),
    st.integers(0, 3),
)


class Work:
    """One session's work and the disk, which lags behind: a message is stored some time after it was streamed."""

    def __init__(self, world: World, client: Client, session_id: str, fake: FakeSession) -> None:
        self.world, self.client, self.session_id, self.fake = world, client, session_id, fake
        self.target = session_id
        self.open: dict[str, str] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self.count = 0
        self.joined: list[tuple[Client, int]] = []
        self.reads = anyio.Semaphore(0)

    async def before_entry(self, index: int) -> None:
        await self.reads.acquire()

    async def run(self, op: Op) -> None:
        name, which = op
        await getattr(self, name)(which)

    async def chunk(self, which: int) -> None:
        names = list(self.open)
        if which < len(names):
            name = names[which]
        else:
            self.count += 1
            name = f"m{self.count}"
            self.open[name] = ""
        self.count += 1
        said = f"[{self.count}]"
        self.open[name] += said
        self.fake.update(
            {"sessionUpdate": "agent_message_chunk", "messageId": name, "content": text(said)}, session_id=self.target
        )

    async def store(self, which: int) -> None:
        names = list(self.open)
        if which < len(names):
            name = names[which]
            whole = {"sessionUpdate": "agent_message", "messageId": name, "content": [text(self.open.pop(name))]}
            self.fake.persist(HistoryUpdate(self.target, whole))

    async def tool(self, which: int) -> None:
        self.count += 1
        call = {"toolCallId": f"t{self.count}", "title": f"Run {self.count}", "status": "in_progress"}
        self.tools[call["toolCallId"]] = call
        self.fake.update({"sessionUpdate": "tool_call_update", **call}, session_id=self.target)

    async def tool_ends(self, which: int) -> None:
        names = list(self.tools)
        if which < len(names):
            call = self.tools.pop(names[which])
            ended = {"toolCallId": call["toolCallId"], "status": "completed", "content": []}
            self.fake.update({"sessionUpdate": "tool_call_update", **ended}, session_id=self.target)
            self.fake.persist(HistoryUpdate(self.target, {"sessionUpdate": "tool_call_update", **call, **ended}))

    async def prompt(self, which: int) -> None:
        """Rows are stored in order: what was streamed before a stored prompt is stored."""
        while self.open:
            await self.store(0)
        self.fake.finish()
        count = len(self.fake.submitted)
        await self.client.begin("session/prompt", prompt_params(self.session_id, f"prompt {count}"))
        await self.fake.until(lambda: len(self.fake.submitted) > count)
        self.fake.run()
        self.fake.store(self.fake.submitted[-1])

    async def notice(self, which: int) -> None:
        self.fake.update({"sessionUpdate": "notice", "severity": "info", "title": "Live"}, session_id=self.target)

    async def join(self, which: int) -> None:
        if len(self.joined) < 3:
            client = await self.world.connect()
            params = {"sessionId": self.session_id, "cwd": "/", "replayFrom": {"type": "start"}}
            self.joined.append((client, await client.begin("session/resume", params)))

    async def step(self, which: int) -> None:
        for _ in range(which + 1):
            self.reads.release()
        await settle()

    async def settle(self, which: int) -> None:
        await settle()

    async def finish(self) -> None:
        for _ in range(1000):
            self.reads.release()
        for client, request in self.joined:
            await client.answer(request)
        while self.open:
            await self.store(0)
        self.fake.finish()
        await settle()


def held(updates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a client holds after these updates (UPD-2, UPD-3)."""
    entities: dict[str, Any] = {}
    for update in updates:
        match update["sessionUpdate"]:
            case "user_message" | "agent_message":
                entities[update["messageId"]] = "".join(block["text"] for block in update["content"])
            case "agent_message_chunk":
                entities[update["messageId"]] = entities.get(update["messageId"], "") + update["content"]["text"]
            case "tool_call_update":
                fields = {key: value for key, value in update.items() if value != []}
                entities[update["toolCallId"]] = entities.get(update["toolCallId"], {}) | fields
    return entities


async def scenario(ops: list[Op], *, in_child: bool) -> None:
    async with serving() as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        work = Work(world, client, session_id, fake)
        if in_child:
            work.target = fake.spawn("child", stored=True)
        world.store.before_entry = work.before_entry
        for op in ops:
            await work.run(op)
        await work.join(0)
        await work.finish()
        late = await world.connect()
        await late.resume(session_id, replay=True)
        for joined in [client for client, _ in work.joined] + [late]:
            for each in {session_id, work.target}:
                updates = joined.updates(each)
                kinds = [update["sessionUpdate"] for update in updates]
                assert kinds.count("replay_complete") == 1
                assert set(kinds[: kinds.index("replay_complete")]) <= HISTORY, "nothing but history"
                assert held(updates) == held(client.updates(each)), "no text is lost, none is doubled"


@rule("RPL-5", "RPL-4", "RPL-1", "RES-6")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("in_child", [False, True])
@settings(max_examples=40, deadline=None)
@given(ops=st.lists(OPS, max_size=30))
def test_joining_at_any_point(backend: str, in_child: bool, ops: list[Op]) -> None:
    async def run() -> None:
        await scenario(ops, in_child=in_child)

    anyio.run(run, backend=backend)
