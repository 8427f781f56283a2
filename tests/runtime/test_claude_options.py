"""Mode, model and effort of a session in front of the real Claude Code: whoever changes them, one truth (CFG-*)."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process
from support_wire import WireError

pytestmark = pytest.mark.real

SONNET = "claude-sonnet-5-5"


def values(options: list[dict[str, Any]]) -> dict[str, str]:
    """The current values of the select options."""
    return {option["configId"]: option["currentValue"] for option in options if option["type"] == "select"}


def switched_on(options: list[dict[str, Any]]) -> list[str]:
    """The boolean options that are on."""
    return [option["configId"] for option in options if option["type"] == "boolean" and option["currentValue"]]


def offered(options: list[dict[str, Any]], config_id: str) -> list[str]:
    [option] = [option for option in options if option["configId"] == config_id]
    return [entry["value"] for entry in option["options"]]


async def choose(agent: AgentProcess, session_id: str, config_id: str, value: Any, kind: str = "id") -> Any:
    params = {"sessionId": session_id, "configId": config_id, "type": kind, "value": value}
    return (await agent.wire.request("session/set_config_option", params))["configOptions"]


def told(agent: AgentProcess, session_id: str) -> list[dict[str, str]]:
    updates = agent.wire.updates(session_id, "config_option_update")
    return [values(update["configOptions"]) for update in updates]


def settings(env: dict[str, str], **content: Any) -> None:
    Path(env["CLAUDE_CONFIG_DIR"], "settings.json").write_text(json.dumps(content), encoding="utf-8")


class TestSetByTheClient:
    async def test_a_new_session_has_its_mode_at_once_and_all_options_soon(self, agent: AgentProcess, cwd: str) -> None:
        result = await agent.wire.request("session/new", {"cwd": cwd})
        assert values(result["configOptions"]) == {"mode": "default"}
        session_id = result["sessionId"]
        await agent.wire.until(lambda: told(agent, session_id))
        [update] = agent.wire.updates(session_id, "config_option_update")
        assert values(update["configOptions"]) == {"mode": "default", "model": "default", "effort": "medium"}
        assert offered(update["configOptions"], "mode") == [
            "default",
            "acceptEdits",
            "plan",
            "auto",
            "bypassPermissions",
        ]
        assert "haiku" in offered(update["configOptions"], "model")
        second = await agent.wire.request("session/new", {"cwd": cwd})
        assert "haiku" in offered(second["configOptions"], "model"), "the models are known by now"

    async def test_what_is_set_is_used_and_told_once(
        self, agent: AgentProcess, service: MessagesService, cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        assert values(await choose(agent, session_id, "mode", "plan"))["mode"] == "plan"
        options = await choose(agent, session_id, "model", "haiku")
        assert values(options) == {"mode": "plan", "model": "haiku", "effort": "medium"}
        assert values(await choose(agent, session_id, "mode", "acceptEdits"))["mode"] == "acceptEdits"
        assert values(await choose(agent, session_id, "effort", "max"))["effort"] == "max"
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        assert [asked.model for asked in service.requests if asked.kind == "turn"] == ["claude-haiku-5-5"]
        updates = told(agent, session_id)
        assert updates[-1] == {"mode": "acceptEdits", "model": "haiku", "effort": "max"}
        assert all(one != other for one, other in pairwise(updates))

    @pytest.mark.parametrize(
        ("config_id", "value", "kind"),
        [
            ("mode", "everything", "id"),
            ("mode", "dontAsk", "id"),
            ("model", "gpt", "id"),
            ("effort", "none", "id"),
            ("colour", "red", "id"),
            ("mode", True, "boolean"),
            ("mode", {"a": 1}, "_other"),
        ],
    )
    async def test_anything_else_is_refused_and_changes_nothing(
        self, agent: AgentProcess, cwd: str, config_id: str, value: Any, kind: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.until(lambda: told(agent, session_id))
        with pytest.raises(WireError) as refused:
            await choose(agent, session_id, config_id, value, kind)
        assert refused.value.code == -32602
        assert len(told(agent, session_id)) == 1
        assert values(await choose(agent, session_id, "mode", "default")) == told(agent, session_id)[0]

    async def test_what_the_environment_fixes_cannot_be_set(self, env: dict[str, str], cwd: str) -> None:
        async with agent_process(env | {"CLAUDE_CODE_EFFORT_LEVEL": "high"}) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            with pytest.raises(WireError) as refused:
                await choose(agent, session_id, "effort", "low")
            assert refused.value.code == -32602
            assert told(agent, session_id)[-1]["effort"] == "high"

    async def test_ultracode_is_a_switch(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        assert switched_on(await choose(agent, session_id, "ultracode", True, "boolean")) == ["ultracode"]
        assert switched_on(await choose(agent, session_id, "mode", "plan")) == ["ultracode"]
        assert switched_on(await choose(agent, session_id, "ultracode", False, "boolean")) == []
        with pytest.raises(WireError):
            await choose(agent, session_id, "ultracode", "true")


class TestSetByTheSettings:
    async def test_the_users_settings_are_the_start(self, env: dict[str, str], agent: AgentProcess, cwd: str) -> None:
        settings(
            env, permissions={"defaultMode": "plan"}, model="sonnet", modelSettings={SONNET: {"effortLevel": "low"}}
        )
        result = await agent.wire.request("session/new", {"cwd": cwd})
        assert values(result["configOptions"]) == {"mode": "plan"}
        await agent.wire.until(lambda: told(agent, result["sessionId"]))
        assert told(agent, result["sessionId"]) == [{"mode": "plan", "model": "sonnet", "effort": "low"}]

    async def test_what_the_settings_forbid_is_not_offered(
        self, env: dict[str, str], agent: AgentProcess, cwd: str
    ) -> None:
        settings(env, permissions={"disableBypassPermissionsMode": "disable"}, disableAutoMode="disable")
        session_id = await agent.wire.new(cwd)
        await agent.wire.until(lambda: told(agent, session_id))
        [update] = agent.wire.updates(session_id, "config_option_update")
        assert offered(update["configOptions"], "mode") == ["default", "acceptEdits", "plan"]
        for mode in ("auto", "bypassPermissions"):
            with pytest.raises(WireError):
                await choose(agent, session_id, "mode", mode)

    @pytest.mark.parametrize("stored", [False, True])
    async def test_root_without_a_sandbox_never_bypasses(
        self, env: dict[str, str], service: MessagesService, cwd: str, stored: bool
    ) -> None:
        settings(env, permissions={"defaultMode": "bypassPermissions"})
        session_id = ""
        if stored:
            async with agent_process(env) as agent:
                await agent.wire.initialize()
                session_id = await agent.wire.new(cwd)
                await agent.wire.prompt(session_id, "Hello")
                await agent.wire.idle(session_id)
                assert told(agent, session_id)[-1]["mode"] == "bypassPermissions"
        async with agent_process({**env, "IS_SANDBOX": ""}) as agent:
            await agent.wire.initialize()
            if stored:
                result = await agent.wire.resume(session_id, cwd)
            else:
                result = await agent.wire.request("session/new", {"cwd": cwd})
                session_id = result["sessionId"]
            assert values(result["configOptions"])["mode"] == "default"
            assert "bypassPermissions" not in offered(result["configOptions"], "mode")
            await agent.wire.prompt(session_id, "Hello again")
            await agent.wire.until(lambda: agent.wire.states(session_id)[-1:] == ["idle:end_turn"])
            with pytest.raises(WireError):
                await choose(agent, session_id, "mode", "bypassPermissions")


class TestSetByTheRuntime:
    @pytest.fixture
    def script(self) -> Script:
        enter, leave = ToolUse("EnterPlanMode", {}), ToolUse("ExitPlanMode", {"plan": "# Plan\n\n1. Do it"})
        return Script([Step("Plan it", [[enter], [leave], [Text("Done.")]])])

    @pytest.fixture
    def env(self, env: dict[str, str]) -> dict[str, str]:
        return env | {"ENABLE_TOOL_SEARCH": "false"}

    async def test_slash_commands_change_the_options(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "/model haiku")
        await agent.wire.until(lambda: told(agent, session_id)[-1:] and told(agent, session_id)[-1]["model"] == "haiku")
        await agent.wire.prompt(session_id, "/effort high")
        await agent.wire.until(lambda: told(agent, session_id)[-1]["effort"] == "high")
        # The truth that a client reads is the same.
        assert values(await choose(agent, session_id, "mode", "plan")) == {
            "mode": "plan",
            "model": "haiku",
            "effort": "high",
        }

    @pytest.mark.parametrize(
        ("option", "mode", "end"),
        [
            ("plan_auto", "auto", "idle:end_turn"),
            ("plan_acceptEdits", "acceptEdits", "idle:end_turn"),
            ("plan_bypassPermissions", "bypassPermissions", "idle:end_turn"),
            ("allow_once", "default", "idle:end_turn"),
            ("reject_once", "plan", "idle:cancelled"),
        ],
    )
    async def test_plans_change_the_mode(self, agent: AgentProcess, cwd: str, option: str, mode: str, end: str) -> None:
        agent.wire.handle(
            "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": option}}
        )
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Plan it")
        await agent.wire.idle(session_id)
        asked = [line["params"] for line in agent.wire.asked if line["params"]["title"] == "Approve this plan?"]
        assert [entry["optionId"] for entry in asked[0]["options"]] == [
            "plan_auto",
            "plan_acceptEdits",
            "plan_bypassPermissions",
            "allow_once",
            "reject_once",
        ]
        modes = list(dict.fromkeys(update["mode"] for update in told(agent, session_id)))
        assert modes == list(dict.fromkeys(["default", "plan", mode]))
        assert told(agent, session_id)[-1]["mode"] == mode
        assert agent.wire.states(session_id)[-1] == end
        plans = [update["plan"] for update in agent.wire.updates(session_id, "plan_update")]
        approved = [{"type": "markdown", "planId": "plan", "content": "# Plan\n\n1. Do it"}]
        assert plans == (approved if option != "reject_once" else [])
        start = len(agent.wire.lines)
        await agent.wire.request("session/close", {"sessionId": session_id})
        await agent.wire.resume(session_id, cwd, replay=True)
        replayed = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
        assert [update["plan"] for update in replayed if update["sessionUpdate"] == "plan_update"] == plans


class TestResumed:
    @pytest.mark.parametrize("mode", ["plan", "acceptEdits", "auto"])
    async def test_a_new_process_goes_on_with_what_was_stored(self, env: dict[str, str], cwd: str, mode: str) -> None:
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            await choose(agent, session_id, "mode", mode)
            await choose(agent, session_id, "model", "opus")
            await choose(agent, session_id, "effort", "high")
            await agent.wire.prompt(session_id, "Hello")
            await agent.wire.idle(session_id)
            assert await agent.close() == 0
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            result = await agent.wire.resume(session_id, cwd)
            assert values(result["configOptions"])["mode"] == mode
            await agent.wire.until(lambda: told(agent, session_id))
            assert told(agent, session_id) == [{"mode": mode, "model": "default", "effort": "high"}]

    async def test_bypassing_is_not_restored(self, env: dict[str, str], cwd: str) -> None:
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            await choose(agent, session_id, "mode", "bypassPermissions")
            await agent.wire.prompt(session_id, "Hello")
            await agent.wire.idle(session_id)
            assert await agent.close() == 0
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            result = await agent.wire.resume(session_id, cwd)
            assert values(result["configOptions"])["mode"] == "default"
            assert values(await choose(agent, session_id, "effort", "low"))["mode"] == "default"

    async def test_a_process_that_is_started_again_keeps_what_was_set(
        self, env: dict[str, str], agent: AgentProcess, service: MessagesService, cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await choose(agent, session_id, "mode", "bypassPermissions")
        await choose(agent, session_id, "model", "haiku")
        await choose(agent, session_id, "effort", "high")
        await choose(agent, session_id, "ultracode", True, "boolean")
        await agent.wire.prompt(session_id, "/model sonnet")
        await agent.wire.until(lambda: told(agent, session_id)[-1]["model"] == "sonnet")
        before = told(agent, session_id)
        [registered] = Path(env["CLAUDE_CONFIG_DIR"], "sessions").glob("*.json")
        os.kill(int(registered.stem), signal.SIGKILL)
        # It may be written to the process that dies; then the retry starts another one.
        with suppress(WireError):
            await agent.wire.prompt(session_id, "Hello", key="k")
        await agent.wire.prompt(session_id, "Hello", key="k")
        await agent.wire.until(lambda: any(asked.kind == "turn" for asked in service.requests))
        assert [asked.model for asked in service.requests if asked.kind == "turn"] == [SONNET]
        assert switched_on(await choose(agent, session_id, "mode", "bypassPermissions")) == ["ultracode"]
        # To choose an effort is to choose against ultracode, in the CLI.
        options = await choose(agent, session_id, "effort", "max")
        assert values(options) == before[-1] | {"effort": "max"}
        assert switched_on(options) == []
        assert told(agent, session_id)[: len(before)] == before
        assert told(agent, session_id)[len(before) :] == [before[-1] | {"effort": "max"}]
