"""Sessions, options, accounts and commands of the real Codex."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import ApiError, Hold, Script, Step, Text, exec_command, mcp_tool
from support_codex import AgentProcess, agent_process, codex_environment, rows, stored_ids
from support_wire import WireError, entities

pytestmark = pytest.mark.real

BACKGROUND = "call_b6d1f0a92c7e4835b6d1f0a9"


async def code_of(agent: AgentProcess, method: str, params: dict[str, Any]) -> int:
    try:
        await agent.wire.request(method, params)
    except WireError as error:
        return error.code
    return 0


def options(answer: dict[str, Any]) -> dict[str, Any]:
    return {option["configId"]: option["currentValue"] for option in answer["configOptions"]}


async def test_sessions_of_equal_age_are_all_listed(agent: AgentProcess, cwd: str) -> None:
    sessions = [await agent.wire.new(cwd) for _ in range(5)]
    for session_id in sessions:
        await agent.wire.prompt(session_id, f"In {session_id}")
        await agent.wire.idle(session_id)
    answer = await agent.wire.request("session/list", {"cwd": cwd})
    assert [row["sessionId"] for row in answer["sessions"]] == sessions[::-1]
    assert answer["sessions"][0]["title"] == f"In {sessions[-1]}"
    assert await agent.wire.request("session/list", {"cwd": "/nowhere"}) == {"sessions": []}
    for cursor in ("", "x", '[true,"x"]', '[false,"x"]', "[1]"):
        assert await code_of(agent, "session/list", {"cursor": cursor}) == -32602


async def test_titles_archive_delete_and_fork(agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Hello")
    await agent.wire.idle(session_id)
    await agent.wire.request("session/set_title", {"sessionId": session_id, "title": "My title"})
    await agent.wire.until(
        lambda: (
            agent.wire.updates(session_id, "session_info_update")[-1:]
            == [{"sessionUpdate": "session_info_update", "title": "My title"}]
        )
    )
    fork = (await agent.wire.request("session/fork", {"sessionId": session_id, "cwd": cwd}))["sessionId"]
    await agent.wire.request("session/archive", {"sessionId": session_id})
    await agent.wire.request("session/archive", {"sessionId": session_id})
    # Codex lists a fork from its first prompt on.
    assert await agent.wire.request("session/list", {}) == {"sessions": []}
    await agent.wire.prompt(fork, "Go on")
    await agent.wire.idle(fork)
    with pytest.raises(WireError) as caught:
        await agent.wire.resume(session_id, cwd)
    assert caught.value.data == {"reason": "session_archived"}
    await agent.wire.request("session/unarchive", {"sessionId": session_id})
    await agent.wire.request("session/unarchive", {"sessionId": session_id})
    await agent.wire.resume(session_id, cwd)
    # The fork builds on its file, so Codex would not let it go.
    await agent.wire.request("session/delete", {"sessionId": session_id})
    await agent.wire.request("session/delete", {"sessionId": session_id})
    await agent.wire.request("session/delete", {"sessionId": "no such session"})
    rows = (await agent.wire.request("session/list", {}))["sessions"]
    assert [row["sessionId"] for row in rows] == [fork]
    await agent.wire.resume(fork, cwd, replay=True)
    assert list(entities(agent.wire.updates(fork)).values())[-4:] == ["Go on", "Done.", "Hello", "Done."]
    # What it shares with its origin stands in that one's file.
    assert len(stored_ids(env, fork)) == 1


async def test_an_archived_session_can_be_titled(agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
    session_id = await agent.wire.new(cwd)
    message_id = await agent.wire.prompt(session_id, "Hello", key="1")
    await agent.wire.idle(session_id)
    await agent.wire.request("session/archive", {"sessionId": session_id})
    (before,) = (await agent.wire.request("session/list", {"archived": "only"}))["sessions"]
    await agent.wire.request("session/set_title", {"sessionId": session_id, "title": "My title"})
    assert (await agent.wire.request("session/list", {}))["sessions"] == []
    (after,) = (await agent.wire.request("session/list", {"archived": "only"}))["sessions"]
    assert after == {**before, "title": "My title", "updatedAt": after["updatedAt"]}
    unknown = {"sessionId": "01a22da8-65e1-7f10-90be-cad90846c227", "title": "T"}
    assert await code_of(agent, "session/set_title", unknown) == -32002
    await agent.wire.request("session/unarchive", {"sessionId": session_id})
    await agent.wire.resume(session_id, cwd)
    assert await agent.wire.prompt(session_id, "Hello", key="1") == message_id
    assert stored_ids(env, session_id) == [message_id]
    # What is open, here or in another process, is not archived.
    await agent.wire.request("session/unarchive", {"sessionId": session_id})
    assert (await agent.wire.request("session/status", {"sessionId": session_id}))["status"] == "open"
    async with agent_process(env) as other:
        await other.wire.initialize()
        await other.wire.request("session/unarchive", {"sessionId": session_id})
        assert await other.close() == 0


@pytest.mark.parametrize("session_id", ["x", "../x", "\0", "a" * 10_000, "01A22DA8-65E1-7F10-90BE-CAD90846C227"])
async def test_odd_session_ids_are_not_found(agent: AgentProcess, cwd: str, session_id: str) -> None:
    params = {"sessionId": session_id, "cwd": cwd}
    for method in ("session/resume", "session/fork"):
        assert await code_of(agent, method, params) == -32002
    for method in ("session/archive", "session/unarchive"):
        assert await code_of(agent, method, {"sessionId": session_id}) == -32002
    assert await code_of(agent, "session/set_title", {"sessionId": session_id, "title": "T"}) == -32002
    assert await code_of(agent, "session/delete", {"sessionId": session_id}) == 0
    for bad_cwd in (f"{cwd}/missing", "/" + "x" * 5000, "/x" * 5000):
        assert await code_of(agent, "session/new", {"cwd": bad_cwd}) == -32602


async def test_options_are_set_and_come_back_with_the_session(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    answer = await agent.wire.request("session/new", {"cwd": cwd})
    session_id = answer["sessionId"]
    assert options(answer)["mode"] == "read-only"
    await agent.wire.until(lambda: agent.wire.updates(session_id, "available_commands_update"))

    async def choose(config_id: str, value: str) -> dict[str, Any]:
        params = {"sessionId": session_id, "configId": config_id, "type": "id", "value": value}
        return options(await agent.wire.request("session/set_config_option", params))

    assert (await choose("mode", "workspace-write"))["mode"] == "workspace-write"
    (model,) = (o for o in answer["configOptions"] if o["configId"] == "model")
    assert model["currentValue"] == "stand-in"
    chosen = next(entry["value"] for entry in model["options"] if entry["value"] != "stand-in")
    after = await choose("model", chosen)
    assert after["model"] == chosen
    assert (await choose("reasoning_effort", "high"))["reasoning_effort"] == "high"
    assert (await choose("collaboration_mode", "plan"))["collaboration_mode"] == "plan"
    for config_id, value in (("mode", "custom"), ("model", "none"), ("other", "x")):
        with pytest.raises(WireError) as caught:
            await choose(config_id, value)
        assert caught.value.code == -32602
    await agent.wire.prompt(session_id, "Hello")
    await agent.wire.idle(session_id)
    await agent.kill()
    async with agent_process(env) as second:
        await second.wire.initialize()
        kept = options(await second.wire.resume(session_id, cwd))
        assert await second.close() == 0
    assert kept == {
        "mode": "workspace-write",
        "model": chosen,
        "reasoning_effort": "high",
        "collaboration_mode": "plan",
    }


async def test_the_last_of_several_changes_holds_though_nobody_waits_for_them(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    modes = ["full-access", "workspace-write", "full-access", "read-only"]
    changes = [{"sessionId": session_id, "configId": "mode", "type": "id", "value": mode} for mode in modes]
    begun = [agent.wire.request_message("session/set_config_option", change) for change in changes]
    titles = [
        agent.wire.request_message("session/set_title", {"sessionId": session_id, "title": title}) for title in "ABC"
    ]
    await agent.wire.post(*begun, *titles)
    answers = [options(await agent.wire.answer(message["id"])) for message in begun]
    assert [answer["mode"] for answer in answers] == modes
    for message in titles:
        await agent.wire.answer(message["id"])
    await agent.wire.prompt(session_id, "Hello")
    await agent.wire.idle(session_id)
    (listed,) = (await agent.wire.request("session/list", {}))["sessions"]
    assert listed["title"] == "C"
    (context,) = (row["payload"] for row in rows(env, session_id) if row["type"] == "turn_context")
    assert context["approval_policy"] == "on-request"
    assert context["sandbox_policy"]["type"] == "read-only"


async def test_a_background_terminal_is_listed_and_can_be_ended(
    service: ResponsesService, script: Script, agent: AgentProcess, cwd: str
) -> None:
    script.steps = [
        Step("Use a tool", [[exec_command("sleep 60", id=BACKGROUND, yield_time_ms=300)], [Text("It runs.")]])
    ]
    session_id = await agent.wire.new(cwd)
    params = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "full-access"}
    await agent.wire.request("session/set_config_option", params)
    await agent.wire.prompt(session_id, "Use a tool")
    await agent.wire.idle(session_id)
    idle = agent.wire.updates(session_id, "state_update")[-1]
    assert idle["background"] == [{"type": "terminal", "terminalId": BACKGROUND}]
    assert await code_of(agent, "terminal/cancel", {"sessionId": session_id, "terminalId": "other"}) == -32602
    await agent.wire.request("terminal/cancel", {"sessionId": session_id, "terminalId": BACKGROUND})
    await agent.wire.until(lambda: agent.wire.updates(session_id, "state_update")[-1]["background"] == [])
    assert agent.wire.states(session_id) == ["running", "idle:end_turn", "idle"]
    assert agent.wire.updates(session_id, "terminal_update")[-1]["exitStatus"] is not None


async def test_an_approval_is_the_clients(
    service: ResponsesService, script: Script, agent: AgentProcess, cwd: str
) -> None:
    call = exec_command("touch made", sandbox_permissions="require_escalated", justification="It is needed")
    script.steps = [Step("Use a tool", [[call], [Text("Touched.")]])]
    agent.wire.handle(
        "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "accept"}}
    )
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Use a tool")
    await agent.wire.idle(session_id)
    (asked,) = agent.wire.asked
    assert asked["params"]["sessionId"] == session_id
    assert agent.wire.states(session_id) == ["running", "requires_action", "running", "idle:end_turn"]
    assert Path(cwd, "made").exists()


async def test_commands_and_skills(service: ResponsesService, env: dict[str, str], folder: Path, cwd: str) -> None:
    skill = folder / "codex" / "skills" / "greet"
    skill.mkdir(parents=True)
    text = "---\nname: greet\ndescription: Says hello\n---\nSay hello in the words of the secret skill.\n"
    (skill / "SKILL.md").write_text(text, encoding="utf-8")
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        await agent.wire.until(lambda: agent.wire.updates(session_id, "available_commands_update"))
        (update,) = agent.wire.updates(session_id, "available_commands_update")
        names = [command["name"] for command in update["availableCommands"]]
        assert names[:3] == ["compact", "review", "review-branch"]
        assert "greet" in names
        await agent.wire.prompt(session_id, "/greet them")
        await agent.wire.idle(session_id)
        assert any("secret skill" in json.dumps(asked.items) for asked in service.requests)
        await agent.wire.prompt(session_id, "/rename A new name", key="r")
        await agent.wire.idle(session_id, 2)
        title = {"sessionUpdate": "session_info_update", "title": "A new name"}
        await agent.wire.until(lambda: title in agent.wire.updates(session_id))
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, "/rename")
        assert caught.value.data == {"reason": "prompt_refused"}
        await agent.wire.prompt(session_id, "/review Look at it")
        await agent.wire.idle(session_id, 3)
        assert agent.wire.states(session_id) == ["running", "idle:end_turn"] * 3
        # A path is no command.
        await agent.wire.prompt(session_id, "/etc/hosts is a file")
        await agent.wire.idle(session_id, 4)
        assert await agent.close() == 0


async def test_commands_of_the_terminal_are_refused_and_skills_of_such_a_name_work(
    service: ResponsesService, env: dict[str, str], folder: Path, cwd: str
) -> None:
    skill = folder / "codex" / "skills" / "diff"
    skill.mkdir(parents=True)
    text = "---\nname: diff\ndescription: Shows changes\n---\nSay it in the words of the secret skill.\n"
    (skill / "SKILL.md").write_text(text, encoding="utf-8")
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        # At once: whether the skill is there may not be known yet.
        message_id = await agent.wire.prompt(session_id, "/diff", key="1")
        await agent.wire.idle(session_id)
        assert any("secret skill" in json.dumps(asked.items) for asked in service.requests)
        asked_before = len(service.requests)
        for prompt in ("/clear", "/quit", "/plan something", "/status"):
            with pytest.raises(WireError, match="cannot work here; ") as caught:
                await agent.wire.prompt(session_id, prompt, key="2")
            assert caught.value.data == {"reason": "prompt_refused"}
        assert agent.wire.states(session_id) == ["running", "idle:end_turn"]
        assert len(service.requests) == asked_before
        second = await agent.wire.prompt(session_id, "/status 500 is returned", key="2")
        await agent.wire.idle(session_id, 2)
        assert await agent.close() == 0
    assert stored_ids(env, session_id) == [message_id, second]


async def test_a_system_prompt_is_appended_or_overrides(service: ResponsesService, folder: Path, cwd: str) -> None:
    env = codex_environment(folder, service, more='developer_instructions = "The user\'s own words."')
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        for mode, words in (("append", "Appended words."), ("override", "Overriding words.")):
            prompt = {"mode": mode, "content": [{"type": "text", "text": words}]}
            session_id = await agent.wire.new(cwd, systemPrompt=prompt)
            await agent.wire.prompt(session_id, f"With {mode}")
            await agent.wire.idle(session_id)
            asked = next(asked for asked in service.requests if f"With {mode}" in asked.inputs)
            assert words in json.dumps(asked.items)
            assert "The user's own words." in json.dumps(asked.items)


class TestAccounts:
    @pytest.fixture
    def env(self, folder: Path, service: ResponsesService) -> dict[str, str]:
        return codex_environment(folder, service, auth=True, OPENAI_API_KEY="sk-stand-in", NO_BROWSER="1")

    async def test_nothing_is_stored_before_a_login(
        self, agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
    ) -> None:
        with pytest.raises(WireError) as caught:
            await agent.wire.new(cwd)
        assert caught.value.code == -32000
        assert (await agent.wire.request("auth/status", {}))["state"] == "unauthenticated"
        assert await code_of(agent, "auth/login", {"methodId": "chatgpt"}) == -32602
        await agent.wire.request("auth/login", {"methodId": "api-key"})
        assert (await agent.wire.request("auth/status", {}))["state"] == "authenticated"
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        for path in Path(env["CODEX_HOME"]).rglob("*"):
            assert not path.is_file() or b"sk-stand-in" not in path.read_bytes()
        await agent.wire.request("auth/logout", {})
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, "Again", key="1")
        assert caught.value.code == -32000
        assert len(stored_ids(env, session_id)) == 1

    async def test_a_login_with_the_key_in_use_disturbs_nobody(
        self, agent: AgentProcess, service: ResponsesService, script: Script, cwd: str
    ) -> None:
        script.steps = [Step("Long work", [[Text("I begin "), Hold("work"), Text("and end.")]])]
        await agent.wire.request("auth/login", {"methodId": "api-key"})
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Long work")
        await service.held("work")
        await agent.wire.request("auth/login", {"methodId": "api-key"})
        service.release("work")
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id) == ["running", "idle:end_turn"]
        # After a logout it is a login again.
        await agent.wire.request("auth/logout", {})
        await agent.wire.request("auth/login", {"methodId": "api-key"})
        await agent.wire.prompt(session_id, "Go on")
        await agent.wire.idle(session_id, 2)

    async def test_a_login_in_another_terminal_is_seen(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        assert await code_of(agent, "session/new", {"cwd": cwd}) == -32000
        login = {"OPENAI_API_KEY": "sk-stand-in", "auth_mode": "apikey"}
        Path(env["CODEX_HOME"], "auth.json").write_text(json.dumps(login), encoding="utf-8")
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)

    async def test_a_refused_login_is_an_error_of_the_turn(
        self, agent: AgentProcess, service: ResponsesService, script: Script, cwd: str
    ) -> None:
        script.steps = [Step("Hello", [[ApiError(401, "invalid_api_key", "Wrong key")]])]
        await agent.wire.request("auth/login", {"methodId": "api-key"})
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        idle = agent.wire.updates(session_id, "state_update")[-1]
        assert idle["stopReason"] == "error"
        assert idle["error"]["code"] == -32000

    async def test_terminal_methods_are_for_those_who_can(self, env: dict[str, str]) -> None:
        async with agent_process(env) as agent:
            answer = await agent.wire.initialize(auth={"terminal": {}})
            methods = {method["methodId"]: method["type"] for method in answer["authMethods"]}
        assert methods == {"api-key": "agent", "chatgpt-terminal": "terminal", "chatgpt-device-code": "terminal"}


@pytest.mark.parametrize("version", ["0.99.0", None])
async def test_a_codex_that_does_not_fit_is_named(
    env: dict[str, str], folder: Path, cwd: str, version: str | None
) -> None:
    fake = folder / "codex-of-old"
    if version is not None:
        answer = {"id": 1, "result": {"userAgent": f"sayagain/{version} (Linux)"}}
        fake.write_text(f"#!/bin/sh\nread line\necho '{json.dumps(answer)}'\ncat\n", encoding="utf-8")
    else:
        fake.write_text("#!/bin/sh\necho 'no such command: app-server' >&2\nexit 2\n", encoding="utf-8")
    fake.chmod(0o755)
    async with agent_process({**env, "CODEX_PATH": str(fake)}) as agent:
        await agent.wire.initialize()
        with pytest.raises(WireError) as caught:
            await agent.wire.new(cwd)
    assert caught.value.data == {"reason": "runtime_missing"}
    assert str(fake) in caught.value.message
    assert (version or "no such command") in caught.value.message


async def test_a_missing_codex_is_an_error_with_a_way_out(env: dict[str, str], cwd: str) -> None:
    async with agent_process({**env, "CODEX_PATH": "/nowhere/codex"}) as agent:
        await agent.wire.initialize()
        with pytest.raises(WireError) as caught:
            await agent.wire.new(cwd)
    assert caught.value.data == {"reason": "runtime_missing"}
    assert "/nowhere/codex" in caught.value.message


async def test_the_clients_mcp_servers_and_directories_are_used(
    service: ResponsesService, script: Script, agent: AgentProcess, folder: Path, cwd: str
) -> None:
    script.steps = [
        Step("Use MCP", [[mcp_tool("echo", "echo", {"text": "hello"})], [Text("Echoed.")]]),
        Step("Touch it", [[exec_command(f"touch {folder}/other/made")], [Text("Touched.")]]),
    ]
    agent.wire.handle(
        "session/request_permission",
        lambda params: {"outcome": {"outcome": "selected", "optionId": params["options"][0]["optionId"]}},
    )
    server = {
        "type": "stdio",
        "name": "echo",
        "command": sys.executable,
        "args": ["-m", "sayagain.testing.mcp_echo"],
    }
    session_id = await agent.wire.new(cwd, mcpServers=[server], additionalDirectories=[str(folder / "other")])
    params = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "workspace-write"}
    await agent.wire.request("session/set_config_option", params)
    await agent.wire.prompt(session_id, "Use MCP")
    await agent.wire.idle(session_id)
    calls = agent.wire.updates(session_id, "tool_call_update")
    assert "hello" in json.dumps(calls)
    assert calls[-1]["status"] == "completed"
    await agent.wire.prompt(session_id, "Touch it")
    await agent.wire.idle(session_id, 2)
    assert (folder / "other" / "made").exists()
