"""What has gone wrong in other agents in front of Claude Code, tried out on ours; ``docs/claude.md`` lists all of it.

Here is what no other test shows in whole: each fault from its cause on, live, and in what another process replays.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sayagain.identity import derive_message_id
from sayagain.testing.claude_process import Place, run_claude
from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Hold, Script, Step, Text, ToolUse
from sayagain_claude.executable import find_executable
from support_claude import AgentProcess, agent_process, stored_ids, transcript
from support_wire import Wire, WireError, entities, text

pytestmark = pytest.mark.real

FOR_THE_MODEL = (
    "<system-reminder>",
    "<command-name>",
    "<local-command",
    "<task-notification>",
    "tools-used-before-summary",
    "[Request interrupted",
    "[Tool call interrupted",
    "The user doesn't want to",
    "completed with no output)",
    "Command running in background",
    "Output is being written to",
    "This session is being continued",
    "agentId:",
    "Shell cwd was reset",
)
"""Beginnings of what the runtime tells the model, or keeps books with."""


def bash(command: str, **more: Any) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "Run it", **more})


def task(prompt: str) -> ToolUse:
    child = {"description": "Look around", "prompt": prompt, "subagent_type": "general-purpose"}
    return ToolUse("Task", {**child, "run_in_background": False})


def allow(wire: Wire) -> None:
    wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}})


def folded_calls(updates: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tool calls as a client holds them after patches; what was emptied is gone."""
    held: dict[str, dict[str, Any]] = {}
    for update in updates:
        if update["sessionUpdate"] == "tool_call_update":
            call = held.setdefault(update["toolCallId"], {})
            call.update(update)
    return {name: {k: v for k, v in call.items() if v not in (None, [])} for name, call in held.items()}


def shown(value: Any) -> list[str]:
    """Every text that a user may read in an update; what terminals show is decoded."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in shown(item)]
    if not isinstance(value, dict):
        return []
    texts = [base64.b64decode(value["data"]).decode()] if isinstance(value.get("data"), str) else []
    return texts + [t for name, item in value.items() if name not in ("data", "rawInput") for t in shown(item)]


def for_the_model(wire: Wire) -> list[str]:
    return [text for text in shown(wire.updates()) for words in FOR_THE_MODEL if words in text]


class TestHistoryOfOthers:
    """A process that queues prompts in the runtime itself leaves them merged into one row, or folded into a turn."""

    @pytest.fixture
    def script(self) -> Script:
        return Script(
            [
                Step("Second.", [[Text("Seen.")]] * 2),
                Step("Merge.", [[Text("Wait"), Hold("first"), Text(" for it.")]]),
                Step("Fold.", [[Text("Wait"), Hold("first"), Text(" for it."), bash("echo one")], [Text("Seen.")]]),
            ]
        )

    @pytest.mark.parametrize("way", ["Merge.", "Fold."])
    async def test_keys_of_prompts_that_were_merged_or_folded_are_recognised(
        self, env: dict[str, str], service: MessagesService, tmp_path: Path, way: str
    ) -> None:
        session_id = str(uuid.uuid4())
        place = Place(tmp_path)
        for folder in (place.project, place.scratch):
            folder.mkdir(parents=True)
        ids = {words: derive_message_id(session_id, words) for words in (way, "Second.", "Third.")}
        session, config = ("--session-id", session_id), {"CLAUDE_CONFIG_DIR": env["CLAUDE_CONFIG_DIR"]}
        async with run_claude(place, service.url, session=session, environment=config) as claude:
            await claude.prompt(way, uuid=ids[way])
            await service.held("first")
            await claude.prompt("Second.", uuid=ids["Second."])
            await claude.prompt("Third.", uuid=ids["Third."])
            await claude.until(lambda f: f.get("command_uuid") == ids["Third."] and f["type"] == "command_lifecycle")
            service.release("first")
            await claude.until(lambda f: f.get("command_uuid") == ids["Third."] and f.get("state") == "completed")
            await claude.until(lambda f: f.get("subtype") == "session_state_changed" and f["state"] == "idle")
        # Not rows of their own: what a lookup of rows alone would miss.
        assert not set(ids.values()) <= set(stored_ids(env, session_id))
        asked = len(service.requests)
        size = transcript(env, session_id).stat().st_size
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            await agent.wire.resume(session_id, str(place.project), replay=True)
            answers = {words: await agent.wire.prompt(session_id, words, key=words) for words in ids}
            assert agent.wire.states(session_id)[-1] == "idle"
        assert answers == ids
        assert len(service.requests) == asked
        assert transcript(env, session_id).stat().st_size == size


class TestBeforeACompaction:
    @pytest.fixture
    def script(self) -> Script:
        asked = "Your task is to create a detailed summary"
        return Script(
            [
                Step(asked, [[Text("<summary>They talked.</summary>")]], times=1),
                Step(asked, [[Text("<summary>They talked more.</summary>")]]),
                Step("Child, look", [[bash("echo found")], [Text("I looked.")]]),
                Step("Delegate", [[task("Child, look around")], [Text("It is done.")]]),
            ]
        )

    async def test_everything_from_before_two_compactions_comes_back(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        for count, words in enumerate(("Delegate", "/compact", "Between", "/compact", "Afterwards"), 1):
            await agent.wire.prompt(session_id, words)
            await agent.wire.idle(session_id, count)
        child_id = agent.wire.updates(session_id, "subagent_update")[0]["sessionId"]
        await agent.close()
        async with agent_process(env) as second:
            await second.wire.initialize()
            await second.wire.resume(session_id, cwd, replay=True)
            for session in (session_id, child_id):
                live, replayed = agent.wire.updates(session), second.wire.updates(session)
                assert entities(replayed) == entities(live)
                assert folded_calls(replayed) == folded_calls(live)
            assert list(entities(second.wire.updates(child_id)).values()) == ["Child, look around", "I looked."]
            assert len(folded_calls(second.wire.updates(child_id))) == 1
            summaries = [update["summary"] for update in second.wire.updates(session_id, "compaction_update")]
            assert summaries == [[text("They talked.")], [text("They talked more.")]]
        for wire in (agent.wire, second.wire):
            assert for_the_model(wire) == []
            # No summary is a message of anybody's.
            assert not [message for message in entities(wire.updates()).values() if "They talked" in message]


class TestWordsForTheModel:
    @pytest.fixture
    def script(self) -> Script:
        silent, behind, long = bash("true"), bash("sleep 0.1", run_in_background=True), bash("touch runs; sleep 60")
        return Script(
            [
                Step("Child, look", [[bash("echo found")], [Text("I looked.")]]),
                Step("Work", [[silent], [bash("cd / && true")], [behind], [task("Child, look")], [Text("Worked.")]]),
                Step("Wait", [[long]]),
                Step("Refuse", [[bash("touch refused")], [Text("Then not.")]]),
            ]
        )

    async def test_they_are_shown_to_nobody(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Work")
        await agent.wire.until(lambda: "Worked." in entities(agent.wire.updates(session_id)).values())
        await agent.wire.until(lambda: agent.wire.states(session_id)[-1].startswith("idle"))
        await agent.wire.prompt(session_id, "Wait")
        await agent.wire.until(Path(cwd, "runs").exists)
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.until(lambda: agent.wire.states(session_id)[-1] == "idle:cancelled")
        agent.wire.handle(
            "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "reject_once"}}
        )
        await agent.wire.prompt(session_id, "Refuse")
        await agent.wire.until(lambda: agent.wire.states(session_id)[-1] == "running")
        await agent.wire.until(lambda: agent.wire.states(session_id)[-1].startswith("idle"))
        await agent.close()
        stored = transcript(env, session_id).read_text(encoding="utf-8")
        told = {words for words in FOR_THE_MODEL if words in stored}
        assert {"[Request interrupted", "The user doesn't want to", "completed with no output)", "agentId:"} <= told
        assert {"Command running in background", "Shell cwd was reset", "<task-notification>"} <= told
        async with agent_process(env) as second:
            await second.wire.initialize()
            await second.wire.resume(session_id, cwd, replay=True)
            replayed = folded_calls(second.wire.updates(session_id))
            assert replayed == folded_calls(agent.wire.updates(session_id))
            # Stopped by the user, one way or the other.
            assert [call["status"] for call in replayed.values()][-2:] == ["cancelled", "cancelled"]
        for wire in (agent.wire, second.wire):
            assert for_the_model(wire) == []


async def test_a_local_commands_answer_is_given_once_and_comes_back(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "/context")
    await agent.wire.idle(session_id)
    live = entities(agent.wire.updates(session_id))
    command, answer = live.values()
    assert command == "/context"
    headings = Counter(line for line in answer.splitlines() if line.startswith("#"))
    assert headings
    assert set(headings.values()) == {1}
    await agent.close()
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd, replay=True)
        assert entities(second.wire.updates(session_id)) == live


async def test_a_runtime_that_cannot_start_cuts_no_replay(
    agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "Hello", key="k")
    await agent.wire.idle(session_id)
    await agent.close()
    async with agent_process(env | {"CLAUDE_CODE_EXECUTABLE": shutil.which("false") or "/bin/false"}) as second:
        await second.wire.initialize()
        # The history is whole and says so: what reads it is no process of the runtime's.
        await second.wire.resume(session_id, cwd, replay=True)
        assert len(second.wire.updates(session_id, "replay_complete")) == 1
        assert list(entities(second.wire.updates(session_id)).values()) == ["Hello", "Done."]
        assert await second.wire.prompt(session_id, "Hello", key="k") == first
        with pytest.raises(WireError) as caught:
            await second.wire.prompt(session_id, "More", key="more")
        assert caught.value.code == -32603
        # And the session is not lost with the first attempt.
        with pytest.raises(WireError):
            await second.wire.prompt(session_id, "More", key="more")
    assert stored_ids(env, session_id) == [first]


class TestEndInTheMiddle:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Talk", [[Text("Some words "), Hold("more"), Text("never said")]])])

    async def test_a_runtime_that_ends_without_a_result_leaves_nothing_open(
        self, service: MessagesService, env: dict[str, str], cwd: str, tmp_path: Path
    ) -> None:
        wrapper, pids = tmp_path / "claude", tmp_path / "pids"
        wrapper.write_text(f'#!/bin/sh\necho $$ >> {pids}\nexec {find_executable(env)} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        async with agent_process(env | {"CLAUDE_CODE_EXECUTABLE": str(wrapper)}) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            first = await agent.wire.prompt(session_id, "Talk", key="k")
            await agent.wire.until(lambda: agent.wire.updates(session_id, "agent_message_chunk"))
            os.kill(int(pids.read_text(encoding="utf-8").split()[-1]), signal.SIGKILL)
            await agent.wire.idle(session_id)
            assert agent.wire.states(session_id) == ["running", "idle:error"]
            assert await agent.wire.prompt(session_id, "Talk", key="k") == first
            await agent.wire.prompt(session_id, "Go on")
            await agent.wire.idle(session_id, 2)
            assert agent.wire.states(session_id)[2:] == ["running", "idle:end_turn"]
        assert service.count("Talk") == 1


class TestAfterAResume:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Run", [[bash("echo one")], [Text("Ran.")]])])

    @pytest.mark.parametrize("replay", [True, False])
    async def test_the_next_turn_is_whole_and_refers_to_nothing_unknown(
        self, agent: AgentProcess, env: dict[str, str], cwd: str, replay: bool
    ) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Run")
        await agent.wire.idle(session_id)
        await agent.close()
        async with agent_process(env) as second:
            allow(second.wire)
            await second.wire.initialize()
            await second.wire.resume(session_id, cwd, replay=replay)
            assert bool(entities(second.wire.updates(session_id))) is replay
            start = len(second.wire.updates(session_id))
            await second.wire.prompt(session_id, "Run")
            await second.wire.idle(session_id, 2)
            new = second.wire.updates(session_id)[start:]
            assert list(entities(new).values()) == ["Run", "Ran."]
            announced = set[str]()
            for update in second.wire.updates(session_id):
                if update["sessionUpdate"] == "terminal_update":
                    announced.add(update["terminalId"])
                elif update["sessionUpdate"] == "terminal_output_chunk":
                    assert update["terminalId"] in announced
                for item in update.get("content") or () if update["sessionUpdate"] == "tool_call_update" else ():
                    assert item["type"] != "terminal" or item["terminalId"] in announced
            assert len(announced) == 1 + replay


class TestMissingSubagent:
    @pytest.fixture
    def script(self) -> Script:
        return Script(
            [
                Step("Child, look", [[Text("I looked.")]]),
                Step("Delegate", [[task("Child, look")], [Text("It is done.")]]),
            ]
        )

    async def test_a_subagents_lost_history_is_told_behind_the_marker(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Delegate")
        await agent.wire.idle(session_id)
        await agent.close()
        for path in transcript(env, session_id).with_suffix("").glob("subagents/agent-*.jsonl"):
            path.unlink()
        async with agent_process(env) as second:
            await second.wire.initialize()
            await second.wire.resume(session_id, cwd, replay=True)
            assert second.wire.updates(session_id, "subagent_update")
            assert list(entities(second.wire.updates(session_id)).values()) == ["Delegate", "It is done."]
            marker = second.wire.update_index(session_id, "replay_complete")
            assert second.wire.update_index(session_id, "notice") > marker


class TestBackgroundOutlivesACancel:
    """What a cancel of the turn stops is the turn (CAN-1)."""

    @pytest.fixture
    def script(self) -> Script:
        command = bash("until [ -e gate ]; do sleep 0.05; done", run_in_background=True)
        child = ToolUse(task("Child, look").name, {**task("Child, look").input, "run_in_background": True})
        return Script(
            [
                Step("Child, look", [[Text("I "), Hold("child"), Text("looked.")]]),
                Step("Command", [[command], [Text("Started "), Hold("talk"), Text("never said")]]),
                Step("Subagent", [[child], [Text("Started "), Hold("talk"), Text("never said")]]),
            ]
        )

    @pytest.mark.parametrize("kind", ["Command", "Subagent"])
    async def test_a_cancelled_turn_leaves_the_background_alone(
        self, agent: AgentProcess, service: MessagesService, cwd: str, kind: str
    ) -> None:
        allow(agent.wire)

        def listed() -> list[Any]:
            return list(agent.wire.updates(session_id, "state_update")[-1]["background"])

        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, kind)
        await agent.wire.until(lambda: "Started " in entities(agent.wire.updates(session_id)).values())
        await agent.wire.until(listed)
        before = listed()
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
        await agent.wire.until(lambda: agent.wire.states(session_id)[-1] == "idle:cancelled")
        assert listed() == before
        Path(cwd, "gate").touch()
        service.release("child")
        # It comes to its end, which the model is told in a turn of its own.
        await agent.wire.until(lambda: "Done." in entities(agent.wire.updates(session_id)).values())
        await agent.wire.until(lambda: not listed())
        if kind == "Subagent":
            child_id = agent.wire.updates(session_id, "subagent_update")[0]["sessionId"]
            assert agent.wire.states(child_id)[-1] == "idle:end_turn"
            assert list(entities(agent.wire.updates(child_id)).values()) == ["Child, look", "I looked."]
        else:
            (ended,) = [u["exitStatus"] for u in agent.wire.updates(session_id) if u.get("exitStatus")]
            assert ended == {"exitCode": 0}
