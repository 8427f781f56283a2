"""A client of each public SDK drives our agent, in front of the real Claude Code."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.identity import derive_message_id
from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import Hold, Script, Step, Text, Thinking, ToolUse
from support_claude import claude_environment, stored_ids
from support_schema import needs_oracles
from support_wire import entities

pytestmark = pytest.mark.real

CLIENTS = Path(__file__).with_name("clients")
PATIENCE = 120.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MessagesService]:
    write = ToolUse("Write", {"file_path": str(tmp_path / "project" / "new.txt"), "content": "one\n"})
    child = {
        "description": "Look around",
        "prompt": "Child, look around",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    script = Script(
        [
            Step("Child, look around", [[Text("I looked.")]]),
            Step("Delegate", [[ToolUse("Task", child)], [Text("It is done.")]]),
            Step("Say something", [[Thinking("Let me see."), Text("Here it is.", chunk=2)]]),
            Step("Write a file", [[write], [Text("Written.")]]),
            Step("Long work", [[Text("I begin "), Hold("for ever")]]),
        ]
    )
    async with serve_messages(script) as service:
        yield service


@dataclass
class Told:
    """What a client told, in order."""

    facts: list[dict[str, Any]]

    def processes(self) -> tuple[Told, Told]:
        """The same for each of the two agent processes."""
        _, start = (index for index, fact in enumerate(self.facts) if fact.get("method") == "initialize")
        return Told(self.facts[:start]), Told(self.facts[start:])

    def results(self, method: str) -> list[dict[str, Any]]:
        return [f["result"] for f in self.facts if f["event"] == "result" and f["method"] == method]

    def errors(self) -> list[tuple[str, int]]:
        return [(f["method"], f["code"]) for f in self.facts if f["event"] == "error"]

    def permissions(self) -> list[dict[str, Any]]:
        return [f["params"] for f in self.facts if f["event"] == "permission"]

    def updates(self, session_id: str) -> list[dict[str, Any]]:
        return [f["update"] for f in self.facts if f["event"] == "update" and f["sessionId"] == session_id]

    def idles(self, session_id: str) -> list[str]:
        return [update["stopReason"] for update in self.updates(session_id) if update.get("stopReason")]

    def kinds(self) -> list[str]:
        """The kind of each update and the method of each answer."""
        return [f["update"]["sessionUpdate"] if f["event"] == "update" else f.get("method", "") for f in self.facts]


def command(client: str, cwd: Path) -> list[str]:
    oracles = os.environ["SAYAGAIN_ORACLES"]
    agent = [sys.executable, "-m", "sayagain", "claude"]
    if client == "typescript":
        node = shutil.which("node")
        if node is None:
            pytest.skip("node is not installed")
        return [node, str(CLIENTS / "typescript.mjs"), oracles, str(cwd), *agent]
    python = Path(oracles, "python-v2", "bin", "python")
    if not python.exists():
        pytest.skip("the folder SAYAGAIN_ORACLES has no python-v2")
    return [str(python), str(CLIENTS / "python.py"), str(cwd), *agent]


@needs_oracles
@pytest.mark.parametrize("client", ["typescript", "python"])
async def test_a_public_sdk_drives_the_agent(client: str, service: MessagesService, tmp_path: Path) -> None:
    env = claude_environment(tmp_path, service)
    cwd = tmp_path / "project"
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(command(client, cwd), env=env, stderr=None)
    told = Told(json.loads(done.stdout))
    first, second = told.processes()
    session_id = told.results("session/new")[0]["sessionId"]

    for answer in told.results("initialize"):
        assert answer["protocolVersion"] == 2
        assert answer["info"]["name"] == "sayagain-claude"
        assert "fork" in answer["capabilities"]["session"]

    # The key reached the agent, whatever the SDK knows of it: the id is the derived one, over a restart too.
    said, again, wrote, delegated, worked, resent = (answer["messageId"] for answer in told.results("session/prompt"))
    assert said == again == resent == derive_message_id(session_id, "key-1")
    assert service.count("Say something") == 1
    assert stored_ids(env, session_id)[:4] == [said, wrote, delegated, worked]
    # The one error: a prompt to a session that was closed.
    assert told.errors() == [("session/prompt", -32002)]

    # Streaming, the permission, the cancel.
    live = entities(first.updates(session_id))
    assert list(live.values())[:3] == ["Say something", "Let me see.", "Here it is."]
    assert first.kinds().count("agent_message_chunk") > 3
    (permission,) = told.permissions()
    assert permission["sessionId"] == session_id
    assert permission["subject"]["toolCall"]["kind"] == "edit"
    assert (cwd / "new.txt").read_text(encoding="utf-8") == "one\n"
    assert first.idles(session_id) == ["end_turn", "end_turn", "end_turn", "cancelled"]

    # A subagent is a session of its own, with one marker in the replay.
    (child_id,) = {f["sessionId"] for f in first.facts if f["event"] == "update"} - {session_id}
    assert list(entities(first.updates(child_id)).values()) == ["Child, look around", "I looked."]
    assert entities(second.updates(child_id)) == entities(first.updates(child_id))
    assert [u["sessionUpdate"] for u in second.updates(child_id)].count("replay_complete") == 1
    if client == "typescript":  # the Python SDK's models fail on a state in it, and its client drops it
        announced = next(u for u in first.updates(session_id) if u["sessionUpdate"] == "subagent_update")
        assert announced["sessionId"] == child_id

    # The marker passes through, between the history and the response.
    replayed = [u["sessionUpdate"] for u in second.updates(session_id)]
    assert replayed.count("replay_complete") == 1
    kinds = second.kinds()
    marker = len(kinds) - 1 - kinds[::-1].index("replay_complete")
    assert "replay_complete" not in first.kinds()
    assert marker < kinds.index("session/resume")
    assert entities(Told(second.facts[:marker]).updates(session_id)) == live

    # List, fork, delete.
    (fork,) = told.results("session/fork")
    before, both, after = ([row["sessionId"] for row in a["sessions"]] for a in told.results("session/list"))
    assert before == after == [session_id]
    assert set(both) == {session_id, fork["sessionId"]}
