"""Crashes and cancels of keyed prompts in front of the real Codex."""

from __future__ import annotations

import os
import signal

import pytest

from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Hold, Script, Step, Text
from support_codex import AgentProcess, codex_pids, stored_ids
from support_wire import prompt_params

pytestmark = pytest.mark.real


async def test_a_crash_of_codex_after_the_prompt_was_stored_is_an_error_of_the_turn(
    service: ResponsesService, script: Script, agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    script.steps = [Step("Long work", [[Text("I begin "), Hold("work"), Text("and end.")]])]
    session_id = await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "Long work", key="1")
    await service.held("work")
    (pid,) = codex_pids(env)
    os.kill(pid, signal.SIGKILL)
    await agent.wire.idle(session_id)
    (idle,) = (u for u in agent.wire.updates(session_id, "state_update") if u["state"] == "idle")
    assert idle["stopReason"] == "error"
    assert idle["error"]["data"] == {"reason": "runtime_died"}
    assert await agent.wire.prompt(session_id, "Long work", key="1") == first
    second = await agent.wire.prompt(session_id, "Go on", key="2")
    await agent.wire.idle(session_id, 2)
    assert stored_ids(env, session_id) == [first, second]
    assert service.count("Long work") == 1


class TestHeld:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Long work", [[Text("I begin "), Hold("work"), Text("and end.")]])])

    async def test_a_cancel_interrupts_the_turn(
        self, agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "Long work", key="1")
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id) == ["running", "idle:cancelled"]
        service.release("work")
        second = await agent.wire.prompt(session_id, "Go on", key="2")
        await agent.wire.idle(session_id, 2)
        assert stored_ids(env, session_id) == [first, second]

    async def test_a_cancel_in_the_same_write_as_the_prompt_is_answered_with_the_truth(
        self, agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        message = agent.wire.request_message("session/prompt", prompt_params(session_id, "Long work", "1"))
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}}
        await agent.wire.post(message, cancel)
        await agent.wire.until(lambda: agent.wire.answered(message["id"]))
        line = agent.wire.lines[agent.wire.answer_index(message["id"])]
        service.release("work")
        second = await agent.wire.prompt(session_id, "Go on", key="2")
        await agent.wire.until(lambda: "idle:end_turn" in agent.wire.states(session_id))
        if "error" in line:
            assert line["error"]["code"] == -32800
            assert stored_ids(env, session_id) == [second]
        else:
            assert stored_ids(env, session_id) == [line["result"]["messageId"], second]
