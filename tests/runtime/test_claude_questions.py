"""Questions of the model and of MCP servers in front of the real Claude Code (ELI-*)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

import support_elicit
from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process

pytestmark = pytest.mark.real

COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "Like a rose"}, {"label": "Blue", "description": "Like the sea"}],
}
SHADE = {
    **COLOUR,
    "question": "Which shade?",
    "options": [{"label": "Dark", "description": "Like night"}, {"label": "Light", "description": "Like day"}],
}
SIZES = {
    "question": "Which sizes?",
    "header": "Sizes",
    "multiSelect": True,
    "options": [{"label": "S", "description": "Small"}, {"label": "L", "description": "Large"}],
}
SERVER = {"type": "stdio", "name": "asker", "command": sys.executable, "args": [support_elicit.__file__], "env": []}


@pytest.fixture
def script() -> Script:
    return Script(
        [
            Step("Ask both", [[ToolUse("AskUserQuestion", {"questions": [COLOUR, SIZES]})], [Text("Thanks.")]]),
            Step("Ask colours", [[ToolUse("AskUserQuestion", {"questions": [COLOUR, SHADE]})], [Text("Thanks.")]]),
            *(Step(f"Call {n}", [[ToolUse(f"mcp__asker__{n}", {})], [Text("Done.")]]) for n in support_elicit.ASKS),
        ]
    )


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return env | {"ENABLE_TOOL_SEARCH": "false"}


@pytest.fixture
def capabilities() -> dict[str, Any]:
    return {"elicitation": {"form": {}, "url": {}}}


@pytest.fixture
async def agent(env: dict[str, str], capabilities: dict[str, Any]) -> AsyncIterator[AgentProcess]:
    async with agent_process(env) as agent:
        await agent.wire.initialize(**capabilities)
        yield agent


def answer(agent: AgentProcess, result: Any, *, option: str = "allow_once") -> None:
    chosen = {"outcome": {"outcome": "selected", "optionId": option}}
    agent.wire.handle("session/request_permission", lambda _: chosen)
    agent.wire.handle("elicitation/create", lambda _: result)


async def run(agent: AgentProcess, cwd: str, prompt: str) -> tuple[str, dict[str, Any]]:
    """A session after this prompt, and its one tool call as a client folds it."""
    session_id = await agent.wire.new(cwd, mcpServers=[SERVER] if prompt.startswith("Call") else [])
    await agent.wire.prompt(session_id, prompt)
    await agent.wire.idle(session_id)
    call: dict[str, Any] = {}
    for update in agent.wire.updates(session_id, "tool_call_update"):
        call |= update
    return session_id, call


def forms(agent: AgentProcess) -> list[dict[str, Any]]:
    return [line["params"] for line in agent.wire.asked if line["method"] == "elicitation/create"]


def told_the_model(service: MessagesService) -> str:
    """The tool result that the model got."""
    return "\n".join(result.text for asked in service.requests for result in asked.tool_results)


class TestQuestions:
    async def test_several_questions_are_one_form(
        self, agent: AgentProcess, service: MessagesService, cwd: str
    ) -> None:
        content = {"question_1": "Blue", "question_2": ["S", "L"], "question_2_other": "XXL"}
        answer(agent, {"action": "accept", "content": content})
        session_id, call = await run(agent, cwd, "Ask both")
        [params] = forms(agent)
        assert params["sessionId"] == session_id
        assert params["toolCallId"] == call["toolCallId"]
        assert list(params["requestedSchema"]["properties"]) == [
            "question_1",
            "question_1_other",
            "question_2",
            "question_2_other",
        ]
        assert call["status"] == "completed"
        assert "S, L, XXL" in told_the_model(service)
        assert agent.wire.states(session_id) == ["running", "requires_action", "running", "idle:end_turn"]

    @pytest.mark.parametrize(
        ("result", "heard"),
        [
            ({"action": "decline"}, "answer in the chat"),
            ({"action": "cancel"}, "dismissed"),
            ({"action": "_later"}, "dismissed"),
            ({}, "dismissed"),
            ({"action": "accept", "content": {"question_1": "Green"}}, "dismissed"),
            ({"action": "accept", "content": {"question_2": "S"}}, "dismissed"),
            ({"action": "accept"}, "dismissed"),
        ],
    )
    async def test_everything_but_fitting_answers_is_none(
        self, agent: AgentProcess, service: MessagesService, cwd: str, result: Any, heard: str
    ) -> None:
        answer(agent, result)
        session_id, call = await run(agent, cwd, "Ask both")
        assert call["status"] == "cancelled"
        assert heard in told_the_model(service)
        assert agent.wire.states(session_id)[-1] == "idle:end_turn"

    async def test_a_cancel_withdraws_the_form(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Ask both")
        await agent.wire.until(lambda: forms(agent))
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id)[-1] == "idle:cancelled"
        withdrawn = [line["params"] for line in agent.wire.lines if line.get("method") == "$/cancel_request"]
        assert withdrawn == [{"requestId": agent.wire.asked[0]["id"]}]


class TestServers:
    async def test_a_form_is_filled_in(self, agent: AgentProcess, service: MessagesService, cwd: str) -> None:
        answer(agent, {"action": "accept", "content": {"name": "Bo", "count": 3.0, "colour": "b", "more": 1}})
        session_id, call = await run(agent, cwd, "Call form")
        [params] = forms(agent)
        assert params["message"] == "asker: Who are you?"
        assert params["requestedSchema"]["properties"]["colour"]["oneOf"][1] == {"const": "b", "title": "Blue"}
        assert call["status"] == "completed"
        said = {"action": "accept", "content": {"name": "Bo", "count": 3, "colour": "b"}}
        assert json.dumps(json.dumps(said))[1:-1] in json.dumps(agent.wire.updates(session_id, "tool_call_update"))

    @pytest.mark.parametrize(
        ("result", "said"),
        [
            ({"action": "decline"}, "decline"),
            ({"action": "cancel"}, "cancel"),
            ({"action": "accept", "content": {"name": "B"}}, "cancel"),
            ({"action": "accept", "content": {"count": 3}}, "cancel"),
        ],
    )
    async def test_what_does_not_fit_is_no_answer(self, agent: AgentProcess, cwd: str, result: Any, said: str) -> None:
        answer(agent, result)
        session_id, _ = await run(agent, cwd, "Call form")
        assert said in json.dumps(agent.wire.updates(session_id, "tool_call_update")[-1])

    async def test_secrets_are_never_asked_for_in_forms(self, agent: AgentProcess, cwd: str) -> None:
        answer(agent, {"action": "accept", "content": {"apiKey": "hunter2"}})
        session_id, _ = await run(agent, cwd, "Call secret")
        assert forms(agent) == []
        assert "decline" in json.dumps(agent.wire.updates(session_id, "tool_call_update")[-1])
        [notice] = agent.wire.updates(session_id, "notice")
        assert "asker" in notice["title"]

    async def test_a_page_is_visited(self, agent: AgentProcess, cwd: str) -> None:
        answer(agent, {"action": "accept"})
        session_id, _ = await run(agent, cwd, "Call page")
        [params] = forms(agent)
        assert (params["mode"], params["url"], params["message"]) == ("url", "https://example.com/go", "Sign in there")
        assert "accept" in json.dumps(agent.wire.updates(session_id, "tool_call_update")[-1])


class TestWithoutForms:
    @pytest.fixture
    def capabilities(self) -> dict[str, Any]:
        return {}

    async def test_questions_go_to_the_chat(self, agent: AgentProcess, service: MessagesService, cwd: str) -> None:
        answer(agent, None, option="reject_once")
        _, call = await run(agent, cwd, "Ask both")
        assert forms(agent) == []
        assert call["status"] == "cancelled"
        assert "answer in the chat" in told_the_model(service)

    async def test_single_choices_are_asked_one_by_one(
        self, agent: AgentProcess, service: MessagesService, cwd: str
    ) -> None:
        answer(agent, None, option="answer_1")
        session_id, call = await run(agent, cwd, "Ask colours")
        assert [line["params"]["title"] for line in agent.wire.asked] == ["Which colour? (1/2)", "Which shade? (2/2)"]
        assert call["status"] == "completed"
        assert "Blue" in told_the_model(service)
        assert "Light" in told_the_model(service)
        assert agent.wire.states(session_id) == ["running", "requires_action", "running", "idle:end_turn"]

    async def test_a_cancel_withdraws_the_second_of_them(self, agent: AgentProcess, cwd: str) -> None:
        first = {"outcome": {"outcome": "selected", "optionId": "answer_1"}}
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Ask colours")
        await agent.wire.until(lambda: agent.wire.asked)
        await agent.wire.post({"jsonrpc": "2.0", "id": agent.wire.asked[0]["id"], "result": first})
        await agent.wire.until(lambda: len(agent.wire.asked) == 2)
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.idle(session_id)
        withdrawn = [line["params"] for line in agent.wire.lines if line.get("method") == "$/cancel_request"]
        assert withdrawn == [{"requestId": agent.wire.asked[1]["id"]}]
        assert agent.wire.states(session_id)[-1] == "idle:cancelled"

    @pytest.mark.parametrize("prompt", ["Call sure", "Call page"])
    async def test_a_yes_is_a_button(self, agent: AgentProcess, cwd: str, prompt: str) -> None:
        def choose(params: Any) -> Any:
            options = [option["optionId"] for option in params["options"]]
            option = "accept" if "accept" in options else "allow_once"
            return {"outcome": {"outcome": "selected", "optionId": option}}

        agent.wire.handle("session/request_permission", choose)
        session_id, _ = await run(agent, cwd, prompt)
        assert agent.wire.asked[-1]["params"]["title"] == "asker asks for your input"
        assert "accept" in json.dumps(agent.wire.updates(session_id, "tool_call_update")[-1])

    async def test_a_form_is_declined_and_the_user_told(self, agent: AgentProcess, cwd: str) -> None:
        answer(agent, None)
        session_id, _ = await run(agent, cwd, "Call form")
        [notice] = agent.wire.updates(session_id, "notice")
        assert "cannot show forms" in notice["title"]
        assert "decline" in json.dumps(agent.wire.updates(session_id, "tool_call_update")[-1])
