"""What the user has set up for Claude Code holds here too: settings, rules, hooks, memory, providers, accounts."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sayagain.errors import to_wire
from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_request import Asked
from sayagain.testing.messages_script import Reply, Script, Step, Text, ToolUse
from sayagain_claude.control import ControlRefused, PendingControl
from sayagain_claude.executable import find_executable
from support_claude import AgentProcess, agent_process
from support_wire import WireError

pytestmark = pytest.mark.real


def write(path: Path, content: str | Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def bash(command: str) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "Run it"})


class Listening(Script):
    """Keeps the messages of the newest request."""

    heard: Sequence[Mapping[str, Any]] = ()

    def __call__(self, asked: Asked) -> Reply | None:
        if asked.kind == "turn":
            self.heard = asked.messages
        return super().__call__(asked)


class TestMemory:
    @pytest.fixture
    def script(self) -> Listening:
        return Listening()

    async def test_claude_md_of_every_level_reaches_the_model(
        self, agent: AgentProcess, env: dict[str, str], script: Listening, cwd: str
    ) -> None:
        write(Path(env["CLAUDE_CONFIG_DIR"], "CLAUDE.md"), "The user likes heliotrope.")
        write(Path(cwd, "CLAUDE.md"), "The project likes vermilion.")
        write(Path(cwd, "CLAUDE.local.md"), "This checkout likes cerulean.")
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        heard = json.dumps(script.heard)
        assert [word in heard for word in ("heliotrope", "vermilion", "cerulean")] == [True] * 3
        # What the model is told besides is not shown.
        assert "vermilion" not in json.dumps(agent.wire.updates(session_id))


class TestRulesAndHooks:
    @pytest.fixture
    def script(self) -> Script:
        commands = ["touch of-user", "touch of-project", "touch of-local", "touch denied", "touch asked"]
        return Script([Step("Go", [*([bash(command)] for command in commands), [Text("Went.")]])])

    async def test_rules_of_every_level_apply(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        agent.wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "cancelled"}})
        # The CLI takes what a project allows only where its user trusts the project, as it asks in a terminal.
        trusted = {"projects": {cwd: {"hasTrustDialogAccepted": True}}}
        write(Path(env["CLAUDE_CONFIG_DIR"], ".claude.json"), trusted)
        rules = {"allow": ["Bash(touch of-user)"]}
        write(Path(env["CLAUDE_CONFIG_DIR"], "settings.json"), {"permissions": rules})
        rules = {"allow": ["Bash(touch of-project)"], "deny": ["Bash(touch denied)"]}
        write(Path(cwd, ".claude", "settings.json"), {"permissions": rules})
        write(Path(cwd, ".claude", "settings.local.json"), {"permissions": {"allow": ["Bash(touch of-local)"]}})
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        made = sorted(path.name for path in Path(cwd).iterdir() if path.is_file())
        assert made == ["of-local", "of-project", "of-user"]
        (asked,) = agent.wire.asked
        assert asked["params"]["subject"]["toolCall"]["rawInput"]["command"] == "touch asked"

    async def test_hooks_of_the_project_run(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        agent.wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "cancelled"}})
        hook = {"type": "command", "command": "cat >> hooked; exit 0"}
        settings = {
            "permissions": {"allow": ["Bash(touch of-user)"]},
            "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}], "Stop": [{"hooks": [hook]}]},
        }
        write(Path(cwd, ".claude", "settings.json"), settings)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        hooked = Path(cwd, "hooked").read_text(encoding="utf-8")
        assert '"hook_event_name":"PreToolUse"' in hooked
        assert '"hook_event_name":"Stop"' in hooked


class TestProviders:
    async def test_a_bearer_token_for_a_gateway(self, env: dict[str, str], service: MessagesService, cwd: str) -> None:
        del env["ANTHROPIC_API_KEY"]
        async with agent_process(env | {"ANTHROPIC_AUTH_TOKEN": "dummy"}) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            await agent.wire.prompt(session_id, "Hello")
            await agent.wire.idle(session_id)
            assert agent.wire.states(session_id) == ["running", "idle:end_turn"]
        assert service.count("Hello") == 1

    async def test_a_helper_that_prints_a_key(self, env: dict[str, str], service: MessagesService, cwd: str) -> None:
        del env["ANTHROPIC_API_KEY"]
        write(Path(env["CLAUDE_CONFIG_DIR"], "settings.json"), {"apiKeyHelper": "echo dummy"})
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            await agent.wire.prompt(session_id, "Hello")
            await agent.wire.idle(session_id)
            assert agent.wire.states(session_id) == ["running", "idle:end_turn"]

    @pytest.mark.parametrize(
        "provider",
        [
            {"CLAUDE_CODE_USE_BEDROCK": "1", "CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1", "AWS_REGION": "us-east-1"},
            {"CLAUDE_CODE_USE_VERTEX": "1", "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1", "CLOUD_ML_REGION": "us-east5"},
        ],
        ids=["bedrock", "vertex"],
    )
    async def test_another_provider_needs_no_account_with_anthropic(
        self, env: dict[str, str], service: MessagesService, cwd: str, provider: dict[str, str]
    ) -> None:
        del env["ANTHROPIC_API_KEY"]
        urls = dict.fromkeys(("ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL"), service.url)
        more = {"ANTHROPIC_VERTEX_PROJECT_ID": "p", "CLAUDE_CODE_MAX_RETRIES": "0"}
        async with agent_process(env | provider | urls | more) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            # The stand-in is no such provider: what counts is that the prompt is taken.
            assert await agent.wire.prompt(session_id, "Hello")
            await agent.wire.idle(session_id)


class TestAccounts:
    async def test_the_status_and_a_logout(self, env: dict[str, str]) -> None:
        del env["ANTHROPIC_API_KEY"]
        token = {"accessToken": "dummy", "refreshToken": "dummy", "expiresAt": 4102444800000}
        credentials = Path(env["CLAUDE_CONFIG_DIR"], ".credentials.json")
        write(credentials, {"claudeAiOauth": token | {"scopes": ["user:inference"]}})
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            status = await agent.wire.request("auth/status", {})
            assert status["state"] == "authenticated"
            assert "dummy" not in json.dumps(status)
            assert await agent.wire.request("auth/logout", {}) == {}
            assert (await agent.wire.request("auth/status", {}))["state"] == "unauthenticated"
            assert "dummy" not in (credentials.read_text(encoding="utf-8") if credentials.exists() else "")

    async def test_a_login_is_a_terminals_business(self, agent: AgentProcess) -> None:
        with pytest.raises(WireError) as caught:
            await agent.wire.request("auth/login", {"methodId": "claude-subscription"})
        assert caught.value.code == -32602

    async def test_one_process_serves_all_prompts_of_a_session(
        self, env: dict[str, str], cwd: str, tmp_path: Path
    ) -> None:
        wrapper, started = tmp_path / "claude", tmp_path / "started"
        real = find_executable(env)
        write(wrapper, f'#!/bin/sh\necho "$@" >> {started}\nexec {real} "$@"\n')
        wrapper.chmod(0o755)
        async with agent_process(env | {"CLAUDE_CODE_EXECUTABLE": str(wrapper)}) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            for number in range(3):
                await agent.wire.prompt(session_id, f"Hello {number}")
                await agent.wire.idle(session_id, number + 1)
            await agent.wire.request("session/list", {})
        assert len(started.read_text(encoding="utf-8").splitlines()) == 1


class TestServers:
    async def test_a_server_that_fails_is_told_once(self, agent: AgentProcess, cwd: str) -> None:
        stdio = {"type": "stdio", "name": "mine", "command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}
        session_id = await agent.wire.new(cwd, mcpServers=[stdio])
        for number in range(2):
            await agent.wire.prompt(session_id, f"Hello {number}")
            await agent.wire.idle(session_id, number + 1)
        notices = [update["title"] for update in agent.wire.updates(session_id, "notice")]
        assert notices == ["MCP server mine failed to start"]


async def test_a_missing_executable_is_a_clear_error(env: dict[str, str], cwd: str) -> None:
    async with agent_process(env | {"CLAUDE_CODE_EXECUTABLE": shutil.which("false") or "/bin/false"}) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, "Hello")
        assert caught.value.code == -32603
        assert "Claude Code ended while it started" in caught.value.message


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("token-of-mine", "Claude Code ended while it started (exit code 3)"),
        (
            "No conversation found with session ID: token-of-mine",
            "Claude Code ended while it started (exit code 3): No conversation found",
        ),
    ],
)
async def test_what_claude_code_complains_of_is_told_only_where_it_is_known(
    env: dict[str, str], cwd: str, tmp_path: Path, said: str, told: str
) -> None:
    wrapper, log = tmp_path / "claude", tmp_path / "log"
    write(wrapper, f"#!/bin/sh\necho '{said}' >&2\nexit 3\n")
    wrapper.chmod(0o755)
    arguments = ("--log-level", "debug", "--log-file", str(log))
    async with agent_process(env | {"CLAUDE_CODE_EXECUTABLE": str(wrapper)}, *arguments) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, "Hello")
        assert told in caught.value.message
        assert "token-of-mine" not in caught.value.message
        await agent.close()
    assert "Claude Code ended while it started" in log.read_text(encoding="utf-8")
    assert "token-of-mine" not in log.read_text(encoding="utf-8")


async def test_a_refusal_of_claude_code_is_for_who_asked() -> None:
    control = PendingControl()
    with control.opened() as request_id:
        refusal = {"subtype": "error", "request_id": request_id, "error": "bad header: token-of-mine"}
        control.answer({"type": "control_response", "response": refusal})
        with pytest.raises(ControlRefused) as caught:
            await control.result(request_id)
    assert "token-of-mine" not in str(caught.value) + str(to_wire(caught.value))
    assert "token-of-mine" in caught.value.words
