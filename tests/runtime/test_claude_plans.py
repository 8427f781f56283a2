"""Plans in front of the real Claude Code: a plan that the model wrote to its file, and todo lists."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_request import Asked
from sayagain.testing.messages_script import Reply, Script, Step, Text, ToolUse
from support_claude import AgentProcess

pytestmark = pytest.mark.real

PLAN = "# The plan\n\n1. Write\n2. Test\n"


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return env | {"ENABLE_TOOL_SEARCH": "false"}


def approve(agent: AgentProcess) -> None:
    agent.wire.handle(
        "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
    )


async def replayed(agent: AgentProcess, session_id: str, cwd: str, kind: str) -> list[dict[str, Any]]:
    start = len(agent.wire.lines)
    await agent.wire.request("session/close", {"sessionId": session_id})
    await agent.wire.resume(session_id, cwd, replay=True)
    updates = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
    return [update for update in updates if update["sessionUpdate"] == kind]


class TestPlanFile:
    @pytest.fixture
    async def service(self) -> AsyncIterator[MessagesService]:
        """The model writes its plan where the runtime told it to, and then asks for approval without repeating it."""

        def script(asked: Asked) -> Reply | None:
            if asked.kind not in ("turn", "continuation"):
                return None
            if asked.round == 0:
                [path, *_] = re.findall(r"/[\w./-]+/plans/[\w-]+\.md", str(asked.messages))
                return [ToolUse("Write", {"file_path": path, "content": PLAN})]
            return [ToolUse("ExitPlanMode", {})] if asked.round == 1 else [Text("Now I can start.")]

        async with serve_messages(script, keep_messages=True) as service:
            yield service

    async def test_the_plan_is_shown_before_and_after_its_approval(self, agent: AgentProcess, cwd: str) -> None:
        approve(agent)
        session_id = await agent.wire.new(cwd)
        params = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "plan"}
        await agent.wire.request("session/set_config_option", params)
        await agent.wire.prompt(session_id, "Plan it")
        await agent.wire.idle(session_id)
        [asked] = [line["params"] for line in agent.wire.asked]
        assert asked["title"] == "Approve this plan?"
        assert asked["subject"]["toolCall"]["content"][0]["content"]["text"] == PLAN
        [update] = agent.wire.updates(session_id, "plan_update")
        assert update["plan"] == {"type": "markdown", "planId": "plan", "content": PLAN}
        assert await replayed(agent, session_id, cwd, "plan_update") == [update]


class TestTodos:
    @pytest.fixture
    def env(self, env: dict[str, str]) -> dict[str, str]:
        return env | {"CLAUDE_CODE_ENABLE_TASKS": "0", "ANTHROPIC_MODEL": "claude-sonnet-4-5"}

    @pytest.fixture
    def script(self) -> Script:
        def todos(*states: str) -> ToolUse:
            names = ("Write", "Test")
            items = [
                {"content": name, "status": state, "activeForm": f"{name}..."}
                for name, state in zip(names, states, strict=True)
            ]
            return ToolUse("TodoWrite", {"todos": items})

        calls = [[todos("in_progress", "pending")], [todos("completed", "completed")]]
        return Script([Step("Do it", [*calls, [Text("Done.")]])])

    async def test_todos_are_a_plan_live_and_in_replay(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Do it")
        await agent.wire.idle(session_id)
        live = agent.wire.updates(session_id, "plan_update")
        states = [[entry["status"] for entry in update["plan"]["entries"]] for update in live]
        assert states == [["in_progress", "pending"], ["completed", "completed"]]
        assert live[-1]["plan"]["type"] == "items"
        assert await replayed(agent, session_id, cwd, "plan_update") == live
