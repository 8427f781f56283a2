"""The real Codex in front of a model service whose ids come again, as many local ones' do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sayagain.runtime.events import Update
from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Reasoning, Script, Step, Text, exec_command
from support_codex import AgentProcess, agent_process
from support_folding import Entities, fold

pytestmark = pytest.mark.real

KINDS = ("agent_message", "agent_thought", "terminal", "tool_call")


class Ids:
    """What the service names its items: it counts, and begins anew when it is told to."""

    def __init__(self) -> None:
        self.with_each_request = False
        self._counts: Counter[str] = Counter()

    def begin(self) -> None:
        self._counts.clear()

    def new_id(self, prefix: str) -> str:
        if prefix == "resp" and self.with_each_request:
            self.begin()
        self._counts[prefix] += 1
        return f"{prefix}_{self._counts[prefix] - 1}"


@pytest.fixture
def ids(service: ResponsesService, monkeypatch: pytest.MonkeyPatch) -> Ids:
    ids = Ids()
    monkeypatch.setattr(service, "new_id", ids.new_id)
    return ids


async def session_with_full_access(agent: AgentProcess, cwd: str) -> str:
    session_id = await agent.wire.new(cwd)
    params = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "full-access"}
    await agent.wire.request("session/set_config_option", params)
    return session_id


def held(agent: AgentProcess, session_id: str) -> Entities:
    """What the client has of the session's items: an empty field is one that it shows as none."""
    entities = fold(Update(session_id, update) for update in agent.wire.updates(session_id))
    return {
        key[1:]: {name: value for name, value in entity.items() if value}
        for key, entity in entities.items()
        if key[1] in KINDS
    }


async def resumed(agent: AgentProcess, session_id: str, cwd: str) -> Entities:
    await agent.wire.initialize()
    await agent.wire.resume(session_id, cwd, replay=True)
    return held(agent, session_id)


@pytest.mark.parametrize("with_each_request", [False, True])
async def test_what_is_live_is_what_is_replayed(
    script: Script, env: dict[str, str], cwd: str, ids: Ids, with_each_request: bool
) -> None:
    ids.with_each_request = with_each_request
    turn: list[Any] = [
        [Reasoning(("A thought.",)), Text("First. "), exec_command("echo one; exit 3")],
        [Text("Second. "), exec_command("echo two")],
        [Text("Third.")],
    ]
    script.steps = [Step("Go", [*turn, *turn, *turn])]
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        session_id = await session_with_full_access(agent, cwd)
        for number in (1, 2):
            ids.begin()
            await agent.wire.prompt(session_id, f"Go {number}")
            await agent.wire.idle(session_id, number)
        live = held(agent, session_id)
        fork = (await agent.wire.request("session/fork", {"sessionId": session_id, "cwd": cwd}))["sessionId"]
    kinds = Counter(kind for kind, _ in live)
    assert kinds == {
        "agent_message": 2 if with_each_request else 6,
        "agent_thought": 2,
        "terminal": 2 if with_each_request else 4,
        "tool_call": 2 if with_each_request else 4,
    }
    # The next process knows nothing of the turns before, and names what comes as it will be named.
    async with agent_process(env) as agent:
        assert await resumed(agent, session_id, cwd) == live
        ids.begin()
        await agent.wire.prompt(session_id, "Go on")
        await agent.wire.until(lambda: agent.wire.states(session_id)[-1] == "idle:end_turn")
        more = held(agent, session_id)
        assert len(more) == len(live) * 3 // 2
        assert more.items() >= live.items()
    async with agent_process(env) as agent:
        assert await resumed(agent, session_id, cwd) == more
        await agent.wire.resume(fork, cwd, replay=True)
        assert held(agent, fork) == live


async def test_a_command_in_the_background_of_each_turn_can_be_ended(
    script: Script, agent: AgentProcess, cwd: str, ids: Ids
) -> None:
    serve = exec_command("sleep 60", id="call_0", yield_time_ms=300)
    look = exec_command("echo seen", id="call_0")
    script.steps = [Step("Serve", [[serve], [Text("It serves.")], [serve], [look], [Text("It serves as well.")]])]
    session_id = await session_with_full_access(agent, cwd)

    def background() -> list[str]:
        return [entry["terminalId"] for entry in agent.wire.updates(session_id, "state_update")[-1]["background"]]

    for number in (1, 2):
        ids.begin()
        await agent.wire.prompt(session_id, f"Serve {number}")
        await agent.wire.idle(session_id, number)
    first, second = background()
    assert first.startswith("call_0.")
    assert second.startswith("call_0.")
    for terminal_id, left in ((second, [first]), (first, [])):
        await agent.wire.request("terminal/cancel", {"sessionId": session_id, "terminalId": terminal_id})
        await agent.wire.until(lambda left=left: background() == left)
        calls = [u for u in agent.wire.updates(session_id, "tool_call_update") if u["toolCallId"] == terminal_id]
        assert calls[-1]["status"] == "cancelled"
