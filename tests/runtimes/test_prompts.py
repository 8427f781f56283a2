"""Keyed prompts in front of the real runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtimes.conftest import RealRuntime
from sayagain.identity import derive_message_id
from sayagain.testing.stand_in import StandIn
from sayagain.testing.stand_in_script import Hold
from support_process import AgentProcess
from support_wire import WireError, entities, prompt_params

pytestmark = pytest.mark.real


async def test_a_prompt_sent_again_after_a_crash_lands_once(
    runtime: RealRuntime, agent: AgentProcess, service: StandIn[Any], env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    message_id = await agent.wire.prompt(session_id, "Say hello", key="key-1")
    await agent.wire.idle(session_id)
    await agent.kill()
    assert message_id == derive_message_id(session_id, "key-1")
    async with runtime.agent(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd, replay=True)
        assert second.wire.updates(session_id, "replay_complete") == [{"sessionUpdate": "replay_complete"}]
        assert list(entities(second.wire.updates(session_id)).values()) == ["Say hello", "Done."]
        assert await second.wire.prompt(session_id, "Say hello", key="key-1") == message_id
        assert await second.close() == 0
    assert runtime.stored_ids(env, session_id) == [message_id]
    assert service.count("Say hello") == 1


async def test_a_retry_without_replay_reads_the_history_once(
    runtime: RealRuntime, agent: AgentProcess, service: StandIn[Any], env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "One", key="a")
    await agent.wire.idle(session_id)
    await agent.close()
    async with runtime.agent(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd)
        assert not second.wire.updates(session_id, "replay_complete")
        assert await second.wire.prompt(session_id, "One", key="a") == first
        new = await second.wire.prompt(session_id, "Two", key="b")
        await second.wire.idle(session_id, 2)
    assert runtime.stored_ids(env, session_id) == [first, new]
    assert service.count("One") == 1


async def test_a_session_whose_first_prompt_was_never_stored_is_not_found(
    runtime: RealRuntime, agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.kill()
    async with runtime.agent(env) as second:
        await second.wire.initialize()
        with pytest.raises(WireError) as caught:
            await second.wire.resume(session_id, cwd, replay=True)
    assert caught.value.code == -32002
    assert caught.value.data == {"sessionId": session_id}


class TestHeld:
    @pytest.fixture
    def steps(self, runtime: RealRuntime) -> Any:
        return [("Long work", [[runtime.text("I begin "), Hold("work"), runtime.text("and end.")]])]

    async def test_prompts_are_held_and_run_in_order_as_messages_of_their_own(
        self, runtime: RealRuntime, agent: AgentProcess, service: StandIn[Any], env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "Long work", key="1")
        await service.held("work")
        held = [
            await agent.wire.begin("session/prompt", prompt_params(session_id, text, key))
            for text, key in (("Second", "2"), ("Third", "3"), ("Second", "2"))
        ]
        # A round trip: the agent has read all of them.
        await agent.wire.request("session/list", {})
        assert not any(map(agent.wire.answered, held))
        service.release("work")
        answers = [(await agent.wire.answer(request))["messageId"] for request in held]
        await agent.wire.idle(session_id, 3)
        assert answers[0] == answers[2]
        # None is merged, folded or steered: each has its own.
        assert runtime.stored_ids(env, session_id) == [first, answers[0], answers[1]]
        assert agent.wire.states(session_id) == ["running", "idle:end_turn"] * 3

    async def test_a_withdrawn_prompt_never_runs_and_its_key_is_free(
        self, runtime: RealRuntime, agent: AgentProcess, service: StandIn[Any], env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "Long work", key="1")
        await service.held("work")
        requests = [
            await agent.wire.begin("session/prompt", prompt_params(session_id, "Second", "2")) for _ in range(2)
        ]
        await agent.wire.cancel(requests[1])
        for request in requests:
            with pytest.raises(WireError) as caught:
                await agent.wire.answer(request)
            assert caught.value.code == -32800
        service.release("work")
        await agent.wire.idle(session_id)
        assert runtime.stored_ids(env, session_id) == [first]
        again = await agent.wire.prompt(session_id, "Second", key="2")
        await agent.wire.idle(session_id, 2)
        assert runtime.stored_ids(env, session_id) == [first, again]
        assert service.count("Second") == 1

    async def test_a_replay_during_the_work_is_cut_without_a_seam(
        self, agent: AgentProcess, service: StandIn[Any], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Long work")
        await agent.wire.until(lambda: agent.wire.updates(session_id, "agent_message_chunk"))
        start = len(agent.wire.lines)
        await agent.wire.resume(session_id, cwd, replay=True)
        marker = agent.wire.update_index(session_id, "replay_complete", start)
        before = [line["params"]["update"] for line in agent.wire.lines[start:marker]]
        assert list(entities(before).values()) == ["Long work", "I begin "]
        assert all(update["sessionUpdate"] != "agent_message_chunk" for update in before)
        service.release("work")
        await agent.wire.idle(session_id)
        after = [line["params"]["update"] for line in agent.wire.lines[start:] if "params" in line]
        assert list(entities(after).values()) == ["Long work", "I begin and end."]


class TestToolLoop:
    @pytest.fixture
    def gate(self, folder: Path) -> Path:
        return folder / "project" / "gate"

    @pytest.fixture
    def steps(self, runtime: RealRuntime, gate: Path) -> Any:
        command = runtime.command(f"until [ -e {gate} ]; do sleep 0.05; done")
        return [("Use a tool", [[command], [runtime.text("Tool done.")]])]

    async def test_a_prompt_that_arrives_in_it_is_not_put_into_it(
        self, runtime: RealRuntime, agent: AgentProcess, gate: Path, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await runtime.allow_all(agent, session_id)
        first = await agent.wire.prompt(session_id, "Use a tool", key="1")
        await agent.wire.until(lambda: any(u.get("status") == "in_progress" for u in agent.wire.updates(session_id)))
        second = await agent.wire.begin("session/prompt", prompt_params(session_id, "Another thing", "2"))
        await agent.wire.request("session/list", {})
        gate.touch()
        answer = (await agent.wire.answer(second))["messageId"]
        await agent.wire.idle(session_id, 2)
        assert runtime.stored_ids(env, session_id) == [first, answer]
        assert agent.wire.states(session_id).count("idle:end_turn") == 2


async def test_keys_from_before_a_compaction_are_recognised_after_a_restart(
    runtime: RealRuntime, agent: AgentProcess, service: StandIn[Any], env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "Before the compaction", key="old")
    await agent.wire.idle(session_id)
    compact = await agent.wire.prompt(session_id, "/compact", key="compact")
    await agent.wire.idle(session_id, 2)
    assert await agent.wire.prompt(session_id, "/compact", key="compact") == compact
    await agent.kill()
    async with runtime.agent(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd, replay=True)
        assert await second.wire.prompt(session_id, "Before the compaction", key="old") == first
        if runtime.keeps_commands:
            assert await second.wire.prompt(session_id, "/compact", key="compact") == compact
        shown = list(entities(second.wire.updates(session_id)).values())
        assert shown[:2] == ["Before the compaction", "Done."]
        assert not any("continued from a previous conversation" in text for text in shown)
        (compaction,) = second.wire.updates(session_id, "compaction_update")
        assert compaction["status"] == "completed"
    assert service.count("Before the compaction") == 1


async def test_no_key_is_ever_seen_again(runtime: RealRuntime, env: dict[str, str], cwd: str, folder: Path) -> None:
    log = folder / "log"
    key = "a-key-that-nobody-else-uses"
    async with runtime.agent(env, "--log-level", "debug", "--log-file", str(log)) as logged:
        await logged.wire.initialize()
        session_id = await logged.wire.new(cwd)
        await logged.wire.prompt(session_id, "Hello", key=key)
        await logged.wire.idle(session_id)
        await logged.wire.prompt(session_id, "Hello", key=key)
        with pytest.raises(WireError):
            await logged.wire.prompt(session_id, "Hello", key=key * 20)
        await logged.wire.resume(session_id, cwd, replay=True)
        assert await logged.close() == 0
        assert key not in str(logged.wire.lines)
    assert key not in log.read_text(encoding="utf-8")
    for path in folder.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes()
