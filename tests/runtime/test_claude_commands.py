"""Slash commands in front of the real Claude Code: the session's list, arguments, and what cannot work here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Script, Step, Text
from support_claude import AgentProcess, rows
from support_wire import WireError, entities, text

pytestmark = pytest.mark.real

SUMMARY = Step("Your task is to create a detailed summary", [[Text("<summary>They said hello.</summary>")]])
"""Answers the request that the runtime makes for a compaction."""


@pytest.fixture
def script() -> Script:
    return Script([SUMMARY])


@pytest.fixture(autouse=True)
def own_commands(env: dict[str, str], cwd: str) -> None:
    """A command and a skill of the project's own, one of the user's, and one with the name of a refused one."""
    commands = Path(cwd, ".claude", "commands")
    skill = Path(cwd, ".claude", "skills", "greet")
    theirs = Path(env["CLAUDE_CONFIG_DIR"], "commands")
    for folder in (commands, skill, theirs):
        folder.mkdir(parents=True)
    head = "---\ndescription: {}\nargument-hint: '[what]'\n---\n"
    commands.joinpath("mine.md").write_text(head.format("My command") + "Please do $ARGUMENTS now")
    commands.joinpath("branch.md").write_text("Make a branch")
    theirs.joinpath("everywhere.md").write_text("Do it everywhere")
    skill.joinpath("SKILL.md").write_text("---\nname: greet\ndescription: Says hello\n---\nSay hello.")


def listed(agent: AgentProcess, session_id: str) -> dict[str, dict[str, Any]]:
    update = agent.wire.updates(session_id, "available_commands_update")[-1]
    return {command["name"]: command for command in update["availableCommands"]}


async def started(agent: AgentProcess, cwd: str) -> str:
    session_id = await agent.wire.new(cwd)
    await agent.wire.until(lambda: agent.wire.updates(session_id, "available_commands_update"))
    return session_id


def asked(service: MessagesService) -> list[str]:
    return [request.newest_text for request in service.requests if request.kind == "turn"]


async def test_the_list_has_what_works_and_the_users_own(agent: AgentProcess, cwd: str) -> None:
    session_id = await started(agent, cwd)
    commands = listed(agent, session_id)
    assert {"compact", "context", "model", "usage", "mine", "everywhere", "greet", "branch"} <= set(commands)
    hidden = {"clear", "login", "logout", "heapdump", "color", "__remote-workflow", "workflow-launch-exec"}
    assert not hidden & set(commands)
    assert commands["mine"]["description"].startswith("My command")
    assert commands["mine"]["input"] == {"type": "text", "hint": "[what]"}
    assert commands["greet"]["description"].startswith("Says hello")


async def test_a_command_of_the_users_own_gets_its_arguments(
    agent: AgentProcess, service: MessagesService, cwd: str
) -> None:
    session_id = await started(agent, cwd)
    message_id = await agent.wire.prompt(session_id, "/mine the dishes")
    await agent.wire.idle(session_id)
    assert "Please do the dishes now" in asked(service)[0]
    assert entities(agent.wire.updates(session_id))[message_id] == "/mine the dishes"
    start = len(agent.wire.lines)
    await agent.wire.request("session/close", {"sessionId": session_id})
    await agent.wire.resume(session_id, cwd, replay=True)
    replayed = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
    shown = entities(replayed)
    assert shown[message_id] == "/mine the dishes"
    assert "Please do" not in str(shown)


async def test_files_that_are_mentioned_are_arguments_too(
    agent: AgentProcess, service: MessagesService, cwd: str
) -> None:
    session_id = await started(agent, cwd)
    link = {"type": "resource_link", "name": "a.py", "uri": f"file://{cwd}/a.py"}
    prompt = [text("/mine sort "), link, text(" quickly")]
    await agent.wire.request("session/prompt", {"sessionId": session_id, "prompt": prompt})
    await agent.wire.idle(session_id)
    assert f"Please do sort [@a.py](file://{cwd}/a.py) quickly now" in asked(service)[0]


async def test_a_new_skill_is_told(agent: AgentProcess, cwd: str) -> None:
    session_id = await started(agent, cwd)
    skill = Path(cwd, ".claude", "skills", "later")
    skill.mkdir()
    skill.joinpath("SKILL.md").write_text("---\nname: later\ndescription: Comes later\n---\nLater.")
    await agent.wire.prompt(session_id, "/reload-skills")
    await agent.wire.until(lambda: "later" in listed(agent, session_id))
    assert "mine" in listed(agent, session_id)


async def test_a_command_with_the_name_of_a_refused_one_is_the_users(
    agent: AgentProcess, service: MessagesService, cwd: str
) -> None:
    session_id = await started(agent, cwd)
    await agent.wire.prompt(session_id, "/branch")
    await agent.wire.idle(session_id)
    assert "Make a branch" in asked(service)[0]


@pytest.mark.parametrize(
    "prompt",
    [
        [text("/clear")],
        [text(" /new thing")],
        [text("First this."), text("/clear")],
        [text("/login")],
        [text("/exit")],
        [text("/plan")],
    ],
)
async def test_what_cannot_work_here_is_refused_with_a_hint(
    agent: AgentProcess, env: dict[str, str], service: MessagesService, cwd: str, prompt: list[dict[str, Any]]
) -> None:
    session_id = await started(agent, cwd)
    await agent.wire.prompt(session_id, "Hello")
    await agent.wire.idle(session_id)
    params = {"sessionId": session_id, "prompt": prompt, "idempotencyKey": "k"}
    with pytest.raises(WireError) as refused:
        await agent.wire.request("session/prompt", params)
    assert prompt[-1]["text"].split()[0] in refused.value.message
    # The key is unused, and the session is the same.
    again = await agent.wire.request("session/prompt", {**params, "prompt": [text("Hello again")]})
    await agent.wire.until(lambda: asked(service)[-1:] == ["Hello again"])
    await agent.wire.until(lambda: agent.wire.states(session_id)[-1] == "idle:end_turn")
    assert again["messageId"] in [row.get("uuid") for row in rows(env, session_id)]
    assert {row["sessionId"] for row in rows(env, session_id) if "sessionId" in row} == {session_id}


async def test_local_commands_keep_the_rules_of_prompts(
    agent: AgentProcess, service: MessagesService, cwd: str
) -> None:
    session_id = await started(agent, cwd)
    first = await agent.wire.prompt(session_id, "/context", key="k")
    await agent.wire.idle(session_id)
    assert await agent.wire.prompt(session_id, "/context", key="k") == first
    assert agent.wire.states(session_id) == ["running", "idle:end_turn"]
    # The command and one answer, without the model.
    assert len(entities(agent.wire.updates(session_id))) == 2
    assert asked(service) == []


async def test_compacting_keeps_the_session_and_shows_the_summary(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await started(agent, cwd)
    before = await agent.wire.prompt(session_id, "Hello", key="before")
    await agent.wire.idle(session_id)
    await agent.wire.prompt(session_id, "/compact")
    await agent.wire.idle(session_id, 2)

    def folded(updates: list[dict[str, Any]]) -> dict[str, Any]:
        [compaction] = {update["compactionId"] for update in updates}
        result: dict[str, Any] = {}
        for update in updates:
            result |= update
        return result | {"compactionId": compaction}

    live = folded(agent.wire.updates(session_id, "compaction_update"))
    assert live["status"] == "completed"
    assert live["summary"] == [text("They said hello.")]
    start = len(agent.wire.lines)
    await agent.wire.request("session/close", {"sessionId": session_id})
    await agent.wire.resume(session_id, cwd, replay=True)
    replayed = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
    assert folded([u for u in replayed if u["sessionUpdate"] == "compaction_update"]) == live
    assert await agent.wire.prompt(session_id, "Hello", key="before") == before


class TestFailedCompaction:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Your task is to create a detailed summary", [[Text("")]])])

    async def test_what_was_not_compacted_is_no_compaction(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await started(agent, cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        await agent.wire.prompt(session_id, "/compact")
        await agent.wire.idle(session_id, 2)
        assert agent.wire.updates(session_id, "compaction_update") == []
        live = entities(agent.wire.updates(session_id))
        assert "Error during compaction" in [*live.values()][-1]
        start = len(agent.wire.lines)
        await agent.wire.request("session/close", {"sessionId": session_id})
        await agent.wire.resume(session_id, cwd, replay=True)
        replayed = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
        assert entities(replayed) == live
        assert all(update["sessionUpdate"] != "compaction_update" for update in replayed)
