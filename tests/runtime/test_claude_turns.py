"""Turns, tools, permissions, subagents and content in front of the real Claude Code."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import ApiError, Hold, Script, Step, Text, Thinking, ToolUse
from support_claude import AgentProcess, agent_process, stored_ids
from support_wire import WireError, entities, text

pytestmark = pytest.mark.real

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c"
        "6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()


def choose(option_id: str) -> Any:
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option_id}}


def tool_calls(agent: AgentProcess, session_id: str) -> dict[str, dict[str, Any]]:
    """Tool calls as a client folds them."""
    calls: dict[str, dict[str, Any]] = {}
    for update in agent.wire.updates(session_id, "tool_call_update"):
        calls.setdefault(update["toolCallId"], {}).update(update)
    return calls


class TestStreaming:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Think", [[Thinking("Let me see."), Text("Here it is.", chunk=2)]])])

    async def test_texts_and_thoughts_have_the_same_ids_live_and_in_replay(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Think")
        await agent.wire.idle(session_id)
        live = entities(agent.wire.updates(session_id))
        assert list(live.values()) == ["Think", "Let me see.", "Here it is."]
        assert len(agent.wire.updates(session_id, "agent_message_chunk")) > 3
        start = len(agent.wire.lines)
        await agent.wire.request("session/close", {"sessionId": session_id})
        await agent.wire.resume(session_id, cwd, replay=True)
        replayed = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
        assert entities(replayed) == live


class TestPermissions:
    @pytest.fixture
    def script(self) -> Script:
        write = ToolUse("Write", {"file_path": "PLACE/new.txt", "content": "one\n"})
        return Script([Step("Write", [[write], [Text("Written.")]])])

    @pytest.fixture(autouse=True)
    def place(self, script: Script, cwd: str) -> None:
        (tool,) = script.steps[0].replies[0]
        assert isinstance(tool, ToolUse)
        script.steps[0].replies[0][0].input["file_path"] = f"{cwd}/new.txt"  # type: ignore[index,union-attr]

    async def test_an_allowed_tool_runs_and_shows_its_patch_before_and_after(
        self, agent: AgentProcess, cwd: str
    ) -> None:
        agent.wire.handle("session/request_permission", choose("allow_once"))
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.idle(session_id)
        assert Path(cwd, "new.txt").read_text(encoding="utf-8") == "one\n"
        (asked,) = agent.wire.asked
        assert asked["params"]["subject"]["toolCall"]["content"][0]["type"] == "diff"
        (call,) = tool_calls(agent, session_id).values()
        assert call["status"] == "completed"
        (diff,) = call["content"]
        assert diff["changes"] == [{"operation": "add", "path": f"{cwd}/new.txt", "fileType": "text"}]
        assert "+one" in diff["patch"]["text"]
        assert agent.wire.states(session_id) == ["running", "requires_action", "running", "idle:end_turn"]

    async def test_a_rejected_tool_does_not_run(self, agent: AgentProcess, cwd: str) -> None:
        agent.wire.handle("session/request_permission", choose("reject_once"))
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.idle(session_id)
        assert not Path(cwd, "new.txt").exists()
        (call,) = tool_calls(agent, session_id).values()
        assert call["status"] in ("failed", "cancelled")
        assert "doesn't want to proceed" not in json.dumps(agent.wire.lines)

    @pytest.mark.parametrize("outcome", [{"outcome": "cancelled"}, {"outcome": "selected", "optionId": "made-up"}, {}])
    async def test_anything_but_an_offered_option_is_a_refusal(
        self, agent: AgentProcess, cwd: str, outcome: dict[str, str]
    ) -> None:
        agent.wire.handle("session/request_permission", lambda _: {"outcome": outcome})
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.idle(session_id)
        assert not Path(cwd, "new.txt").exists()

    async def test_always_allowed_is_asked_once(self, agent: AgentProcess, script: Script, cwd: str) -> None:
        agent.wire.handle("session/request_permission", choose("allow_mode"))
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.idle(session_id)
        kinds = {option["optionId"]: option["kind"] for option in agent.wire.asked[0]["params"]["options"]}
        assert kinds["allow_mode"] == "allow_always"
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.idle(session_id, 2)
        assert len(agent.wire.asked) == 1

    async def test_a_cancel_withdraws_the_question_and_ends_the_turn(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.until(lambda: agent.wire.asked)
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id)[-1] == "idle:cancelled"
        cancelled = [line for line in agent.wire.lines if line.get("method") == "$/cancel_request"]
        assert [line["params"]["requestId"] for line in cancelled] == [agent.wire.asked[0]["id"]]
        (call,) = tool_calls(agent, session_id).values()
        assert call["status"] == "cancelled"

    async def test_a_question_that_is_open_at_a_resume_comes_after_the_marker(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Write")
        await agent.wire.until(lambda: agent.wire.asked)
        start = len(agent.wire.lines)
        await agent.wire.resume(session_id, cwd, replay=True)
        window = agent.wire.lines[start : agent.wire.update_index(session_id, "replay_complete", start)]
        assert all(line["params"]["update"]["sessionUpdate"] != "state_update" for line in window)
        assert agent.wire.states(session_id)[-1] == "requires_action"


class TestCancel:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Talk", [[Text("Some words "), Hold("more"), Text("never said")]])])

    async def test_a_cancel_in_the_middle_of_a_text(
        self, agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        message_id = await agent.wire.prompt(session_id, "Talk")
        await agent.wire.until(lambda: agent.wire.updates(session_id, "agent_message_chunk"))
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id) == ["running", "idle:cancelled"]
        assert stored_ids(env, session_id)[0] == message_id
        # The note that the CLI writes for the model is for the model.
        assert "interrupted" not in json.dumps(agent.wire.updates(session_id))
        again = await agent.wire.prompt(session_id, "Something else")
        await agent.wire.idle(session_id, 2)
        assert agent.wire.states(session_id)[2:] == ["running", "idle:end_turn"]
        assert again != message_id

    async def test_a_cancel_of_nothing_changes_nothing(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id) == ["running", "idle:end_turn"]


def child_script(*, background: bool) -> Script:
    task = ToolUse(
        "Task",
        {
            "description": "Look around",
            "prompt": "Child, look around",
            "subagent_type": "general-purpose",
            "run_in_background": background,
        },
    )
    return Script(
        [
            Step("Child, look around", [[Text("I looked.")]]),
            Step("Delegate", [[task], [Text("It is done.")]]),
        ]
    )


class TestSubagents:
    @pytest.fixture
    def script(self) -> Script:
        return child_script(background=False)

    async def test_a_subagent_is_a_child_session_live_and_in_replay(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Delegate")
        await agent.wire.idle(session_id)
        announced = agent.wire.updates(session_id, "subagent_update")[0]
        child_id = announced["sessionId"]
        assert child_id.startswith(f"{session_id}.")
        first = agent.wire.index(lambda line: line.get("params", {}).get("sessionId") == child_id)
        assert agent.wire.update_index(session_id, "subagent_update") < first
        live = entities(agent.wire.updates(child_id))
        assert list(live.values()) == ["Child, look around", "I looked."]
        assert agent.wire.states(child_id) == ["running", "idle:end_turn"]
        await agent.kill()
        async with agent_process(env) as second:
            await second.wire.initialize()
            resume = await second.wire.begin(
                "session/resume", {"sessionId": session_id, "cwd": cwd, "replayFrom": {"type": "start"}}
            )
            await second.wire.answer(resume)
            assert entities(second.wire.updates(child_id)) == live
            for session in (session_id, child_id):
                assert len(second.wire.updates(session, "replay_complete")) == 1
                assert second.wire.update_index(session, "replay_complete") < second.wire.answer_index(resume)
            with pytest.raises(WireError) as caught:
                await second.wire.prompt(child_id, "Hello, child")
            assert caught.value.code == -32602
            listed = await second.wire.request("session/list", {})
            assert [row["sessionId"] for row in listed["sessions"]] == [session_id]


class TestBackgroundSubagents:
    @pytest.fixture
    def script(self) -> Script:
        return child_script(background=True)

    async def test_a_background_subagent_and_the_turn_that_its_end_starts(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        message_id = await agent.wire.prompt(session_id, "Delegate")
        await agent.wire.idle(session_id, 2)
        child_id = agent.wire.updates(session_id, "subagent_update")[0]["sessionId"]
        assert list(entities(agent.wire.updates(child_id)).values()) == ["Child, look around", "I looked."]
        # The follow-up is work of its own, and no user said anything.
        # A repeated state has news of the background alone.
        states = [state for state, _ in itertools.groupby(agent.wire.states(session_id))]
        assert states == ["running", "idle:end_turn", "running", "idle:end_turn"]
        assert [u["messageId"] for u in agent.wire.updates(session_id, "user_message")] == [message_id]
        assert "task-notification" not in json.dumps(agent.wire.updates())


async def test_all_kinds_of_content_are_stored_and_replayed_as_they_came(
    agent: AgentProcess, service: MessagesService, cwd: str
) -> None:
    blocks = [
        text("Look at these"),
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "resource_link", "name": "notes", "uri": f"file://{cwd}/notes.txt"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "the text", "mimeType": "text/plain"}},
    ]
    session_id = await agent.wire.new(cwd)
    await agent.wire.request("session/prompt", {"sessionId": session_id, "prompt": blocks})
    await agent.wire.idle(session_id)
    await agent.wire.request("session/close", {"sessionId": session_id})
    start = len(agent.wire.lines)
    await agent.wire.resume(session_id, cwd, replay=True)
    (live, replayed) = agent.wire.updates(session_id, "user_message")
    assert agent.wire.update_index(session_id, "user_message", start)
    assert live == replayed
    assert live["content"] == blocks


class TestMcp:
    SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "s", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "echo", "description": "e", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "heard " + message["params"]["arguments"]["word"]}]}
        case _:
            result = {}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Echo", [[ToolUse("mcp__mine__echo", {"word": "yes"})], [Text("Fine.")]])])

    async def test_a_client_mcp_server_serves_its_tools(self, agent: AgentProcess, cwd: str) -> None:
        agent.wire.handle("session/request_permission", choose("allow_once"))
        server = Path(cwd, "server.py")
        server.write_text(self.SERVER, encoding="utf-8")
        stdio = {"type": "stdio", "name": "mine", "command": sys.executable, "args": [str(server)], "env": []}
        session_id = await agent.wire.new(cwd, mcpServers=[stdio])
        await agent.wire.prompt(session_id, "Echo")
        await agent.wire.idle(session_id)
        (call,) = tool_calls(agent, session_id).values()
        assert (call["title"], call["status"]) == ("mine: echo", "completed")
        assert call["content"] == [{"type": "content", "content": text("heard yes")}]

    async def test_two_servers_of_one_name_are_refused(self, agent: AgentProcess, cwd: str) -> None:
        stdio = {"type": "stdio", "name": "mine", "command": sys.executable}
        with pytest.raises(WireError) as caught:
            await agent.wire.new(cwd, mcpServers=[stdio, stdio])
        assert caught.value.data["field"] == "mcpServers.1.name"


class TestFailures:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Fail", [[ApiError(400, "invalid_request_error", "no such thing")]])])

    async def test_an_api_error_ends_the_turn_with_an_error(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Fail")
        await agent.wire.idle(session_id)
        last = agent.wire.updates(session_id, "state_update")[-1]
        assert last["stopReason"] == "error"
        assert "no such thing" in last["error"]["message"]
        await agent.wire.prompt(session_id, "Go on")
        await agent.wire.idle(session_id, 2)
        assert agent.wire.states(session_id)[-1] == "idle:end_turn"

    async def test_a_prompt_that_a_hook_blocks_is_an_error_and_its_key_is_free(
        self, agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
    ) -> None:
        settings = Path(env["CLAUDE_CONFIG_DIR"], "settings.json")
        hook = {"type": "command", "command": "echo not today >&2; exit 2"}
        settings.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}), encoding="utf-8")
        session_id = await agent.wire.new(cwd)
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, "Blocked words", key="k")
        assert caught.value.data == {"reason": "prompt_refused"}
        assert "not today" in caught.value.message
        assert "Blocked words" not in caught.value.message
        settings.write_text("{}", encoding="utf-8")
        message_id = await agent.wire.prompt(session_id, "Blocked words", key="k")
        await agent.wire.idle(session_id, 2)
        assert stored_ids(env, session_id) == [message_id]
        assert service.count("Blocked words") == 1

    @pytest.mark.parametrize("command", ["/clear", "/new", " /clear  now"])
    async def test_commands_that_would_change_the_session_id_are_refused(
        self, agent: AgentProcess, env: dict[str, str], cwd: str, command: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, command, key="k")
        assert "session" in caught.value.message
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        assert len(list(Path(env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl"))) == 1


async def test_without_credentials_nothing_is_stored(env: dict[str, str], cwd: str) -> None:
    async with agent_process({**env, "ANTHROPIC_API_KEY": ""}) as agent:
        answer = await agent.wire.initialize(auth={"terminal": {}})
        assert {method["type"] for method in answer["authMethods"]} == {"terminal"}
        session_id = await agent.wire.new(cwd)
        for _ in range(2):
            with pytest.raises(WireError) as caught:
                await agent.wire.prompt(session_id, "Hello", key="k")
            assert caught.value.code == -32000
    assert not list(Path(env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl"))


async def test_terminal_logins_are_offered_to_clients_that_can_run_them(agent: AgentProcess) -> None:
    answer = await agent.wire.initialize()
    assert answer["authMethods"] == []
