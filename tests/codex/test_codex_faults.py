"""Faults around a prompt, in front of the real Codex (design section 5)."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Hold, Script, Step, Text, exec_command, spawn_agent
from support_codex import (
    AgentProcess,
    agent_process,
    codex_environment,
    codex_pids,
    raw_codex,
    rollout,
    rows,
    stored_ids,
)
from support_wire import WireError, entities, prompt_params

pytestmark = pytest.mark.real

FULL_ACCESS = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"'


async def test_a_ghost_is_taken_back_before_the_retry(
    agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    """A death between Codex's two writes: the model would see the prompt, and no item has its id."""
    session_id = await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "First", key="1")
    await agent.wire.idle(session_id)
    second = await agent.wire.prompt(session_id, "Ghostly", key="2")
    await agent.wire.idle(session_id, 2)
    await agent.kill()
    path = rollout(env, session_id)
    kept = rows(env, session_id)
    end = next(n for n, row in enumerate(kept) if row["payload"].get("item", {}).get("client_id") == second)
    path.write_text("".join(json.dumps(row) + "\n" for row in kept[:end]), encoding="utf-8")
    for database in path.parents[4].glob("thread_history_1.sqlite*"):
        database.unlink()
    assert "Ghostly" in path.read_text(encoding="utf-8")
    async with agent_process(env) as again:
        await again.wire.initialize()
        await again.wire.resume(session_id, cwd, replay=True)
        assert list(entities(again.wire.updates(session_id)).values()) == ["First", "Done."]
        assert await again.wire.prompt(session_id, "Ghostly", key="2") == second
        await again.wire.idle(session_id, 2)
    assert service.occurrences("Ghostly") == 1
    async with agent_process(env) as last:
        await last.wire.initialize()
        await last.wire.resume(session_id, cwd, replay=True)
        users = [update["messageId"] for update in last.wire.updates(session_id, "user_message")]
        assert users == [first, second]


@pytest.mark.parametrize("whom", ["agent", "codex", "both"])
async def test_a_kill_right_after_the_prompt_was_sent(
    agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str, whom: str
) -> None:
    """Whatever the moment hits, the retry lands once, and the model reads it once."""
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "First", key="1")
    await agent.wire.idle(session_id)
    (codex,) = codex_pids(env)
    request = await agent.wire.begin("session/prompt", prompt_params(session_id, "Once only", "2"))
    if whom != "agent":
        os.kill(codex, signal.SIGKILL)
    if whom != "codex":
        await agent.kill()
        async with agent_process(env) as again:
            await again.wire.initialize()
            await again.wire.resume(session_id, cwd)
            message_id = await again.wire.prompt(session_id, "Once only", key="2")
            assert message_id == await again.wire.prompt(session_id, "Once only", key="2")
            # What was stored before the kill has no turn any more.
            await again.wire.prompt(session_id, "Last", key="3")
            await again.wire.until(lambda: "idle:end_turn" in again.wire.states(session_id))
            assert await again.close() == 0
    else:
        with suppress(WireError):
            await agent.wire.answer(request)
        message_id = await agent.wire.prompt(session_id, "Once only", key="2")
        await agent.wire.prompt(session_id, "Last", key="3")
        assert await agent.close() == 0
    assert stored_ids(env, session_id).count(message_id) == 1
    assert service.occurrences("Once only") == 1
    assert codex_pids(env) == []


async def test_a_codex_that_hangs_is_ended_and_the_prompt_is_answered(
    env: dict[str, str], service: ResponsesService, cwd: str
) -> None:
    async with agent_process({**env, "SAYAGAIN_PATIENCE": "1"}) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
        (codex,) = codex_pids(env)
        os.kill(codex, signal.SIGSTOP)
        with pytest.raises(WireError) as caught:
            await agent.wire.prompt(session_id, "Second", key="2")
        assert caught.value.data == {"reason": "runtime_died"}
        second = await agent.wire.prompt(session_id, "Second", key="2")
        await agent.wire.idle(session_id, 2)
    assert stored_ids(env, session_id) == [first, second]
    assert service.count("Second") == 1


@pytest.mark.parametrize("what", ["a turn", "a held prompt", "a command in the background"])
async def test_a_codex_that_hangs_is_noticed_as_long_as_anything_is_under_way(
    env: dict[str, str], service: ResponsesService, script: Script, folder: Path, cwd: str, what: str
) -> None:
    """Nothing is asked of it; an idle one is in nobody's way."""
    script.steps = [Step("Long work", [[Text("I begin "), Hold("work"), Text("and end.")]])]
    if what == "a command in the background":
        env = codex_environment(folder, service, more=FULL_ACCESS)
        script.steps = [Step("Long work", [[exec_command("sleep 1000", yield_time_ms=300)], [Text("It serves.")]])]
    async with agent_process({**env, "SAYAGAIN_PATIENCE": "1"}) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Long work")
        states = agent.wire.states
        if what == "a command in the background":
            await agent.wire.idle(session_id)
        else:
            await service.held("work")
        (codex,) = codex_pids(env)
        os.kill(codex, signal.SIGSTOP)
        if what == "a held prompt":
            await agent.wire.prompt(session_id, "Held")
            await agent.wire.idle(session_id, 2)
            assert states(session_id) == ["running", "idle:error", "running", "idle:end_turn"]
        elif what == "a turn":
            await agent.wire.idle(session_id)
            assert states(session_id) == ["running", "idle:error"]
        else:
            await agent.wire.until(lambda: agent.wire.updates(session_id, "state_update")[-1]["background"] == [])
        assert codex not in codex_pids(env)
        service.release("work")
        await agent.wire.prompt(session_id, "Go on")


async def test_a_codex_that_hangs_does_not_keep_the_agent(agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "First")
    await agent.wire.idle(session_id)
    (codex,) = codex_pids(env)
    os.kill(codex, signal.SIGSTOP)
    # Within the time that the test's client waits, far below that for an answer.
    assert await agent.close() == 0
    assert codex_pids(env) == []


async def test_two_agents_on_one_session_one_of_them_prompts(
    agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "First", key="1")
    await agent.wire.idle(session_id)
    async with agent_process(env) as other:
        await other.wire.initialize()
        await other.wire.resume(session_id, cwd, replay=True)
        assert list(entities(other.wire.updates(session_id)).values()) == ["First", "Done."]
        # What is stored is stored, whoever owns the session; what is not there proves nothing.
        assert await other.wire.prompt(session_id, "First", key="1") == first
        with pytest.raises(WireError) as caught:
            await other.wire.prompt(session_id, "Second", key="2")
        assert caught.value.data == {"reason": "session_in_use"}
        await agent.wire.request("session/close", {"sessionId": session_id})
        second = await other.wire.prompt(session_id, "Second", key="2")
        await other.wire.until(lambda: "idle:end_turn" in other.wire.states(session_id))
        assert await other.close() == 0
    assert stored_ids(env, session_id) == [first, second]
    assert service.count("First") == 1


async def test_what_two_sessions_do_is_told_apart_in_one_process(
    service: ResponsesService, script: Script, agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    script.steps = [
        Step("Work A", [[Text("A begins "), Hold("a"), Text("and A ends.")]]),
        Step("Work B", [[Text("B begins "), Hold("b"), Text("and B ends.")]]),
    ]
    sessions = [await agent.wire.new(cwd) for _ in range(2)]
    for session_id, text in zip(sessions, ("Work A", "Work B"), strict=True):
        await agent.wire.prompt(session_id, text)
    await service.held("a")
    await service.held("b")
    assert len(codex_pids(env)) == 1
    service.release("b")
    await agent.wire.idle(sessions[1])
    assert list(entities(agent.wire.updates(sessions[1])).values()) == ["Work B", "B begins and B ends."]
    (codex,) = codex_pids(env)
    os.kill(codex, signal.SIGKILL)
    await agent.wire.idle(sessions[0])
    # Its work was the only one under way.
    assert agent.wire.states(sessions[0]) == ["running", "idle:error"]
    assert agent.wire.states(sessions[1]) == ["running", "idle:end_turn"]
    service.release("a")
    for session_id in sessions:
        await agent.wire.prompt(session_id, "Go on")
    await agent.wire.idle(sessions[0], 2)
    await agent.wire.idle(sessions[1], 2)


async def test_what_ran_in_the_background_of_a_dead_codex_is_no_longer_listed(
    script: Script, agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    script.steps = [Step("Serve", [[exec_command("sleep 60", id="server", yield_time_ms=300)], [Text("It serves.")]])]
    session_id = await agent.wire.new(cwd)
    params = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "full-access"}
    await agent.wire.request("session/set_config_option", params)
    await agent.wire.prompt(session_id, "Serve")
    await agent.wire.idle(session_id)
    assert agent.wire.updates(session_id, "state_update")[-1]["background"] != []
    (codex,) = codex_pids(env)
    os.kill(codex, signal.SIGKILL)
    await agent.wire.until(lambda: agent.wire.updates(session_id, "state_update")[-1]["background"] == [])
    assert agent.wire.states(session_id) == ["running", "idle:end_turn", "idle"]
    assert await agent.close() == 0
    # Whoever loads the thread knows that nothing runs, and says so (UPD-8).
    async with agent_process(env) as again:
        await again.wire.initialize()
        await again.wire.resume(session_id, cwd, replay=True)
        assert again.wire.updates(session_id, "state_update")[-1]["background"] == []


async def test_a_thread_of_an_older_codex_keeps_the_promise(
    service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    with raw_codex(env) as request:
        session_id = request("thread/start", {"cwd": cwd, "historyMode": "legacy"})["thread"]["id"]
        # It is stored from now on.
        request("thread/name/set", {"threadId": session_id, "name": "Old"})
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        await agent.wire.resume(session_id, cwd, replay=True)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.kill()
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd, replay=True)
        users = [update["messageId"] for update in second.wire.updates(session_id, "user_message")]
        assert users == [first]
        assert await second.wire.prompt(session_id, "First", key="1") == first
        new = await second.wire.prompt(session_id, "Second", key="2")
        await second.wire.until(lambda: "idle:end_turn" in second.wire.states(session_id))
        await second.wire.resume(session_id, cwd, replay=True)
        users = [update["messageId"] for update in second.wire.updates(session_id, "user_message")]
        assert users[-2:] == [first, new]
        assert await second.close() == 0
    assert service.occurrences("First") == 1


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_subagents_stop_with_the_work_that_started_them(
    service: ResponsesService, script: Script, agent: AgentProcess, cwd: str, end: str
) -> None:
    script.steps = [
        Step("Look around", [[Text("child "), Hold("child"), Text("done")]]),
        Step("Delegate", [[spawn_agent("Look around")], [Text("parent "), Hold("parent"), Text("done")]]),
    ]
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Delegate")
    await service.held("child")
    await service.held("parent")
    if end == "cancel":
        await agent.wire.notify("session/cancel", {"sessionId": session_id})
    else:
        await agent.wire.request("session/close", {"sessionId": session_id})
    await agent.wire.idle(session_id)
    (announced, *_) = agent.wire.updates(session_id, "subagent_update")
    child = announced["sessionId"]
    await agent.wire.until(lambda: agent.wire.states(child)[-1].startswith("idle"))
    assert agent.wire.states(child) == ["running", "idle:cancelled"]


async def test_closing_a_session_frees_it_and_ends_its_work(
    service: ResponsesService, script: Script, agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    script.steps = [Step("Long work", [[Text("I begin "), Hold("work"), Text("and end.")]])]
    session_id, other = await agent.wire.new(cwd), await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Long work", key="1")
    await service.held("work")
    await agent.wire.request("session/close", {"sessionId": session_id})
    assert agent.wire.states(session_id) == ["running", "idle:cancelled"]
    service.release("work")
    await agent.wire.prompt(other, "Go on")
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd)
        with anyio.fail_after(10):
            await second.wire.prompt(session_id, "Go on", key="2")
        assert await second.close() == 0


async def test_a_resume_that_was_cancelled_leaves_the_session_to_others(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id, other = await agent.wire.new(cwd), await agent.wire.new(cwd)
    first = await agent.wire.prompt(session_id, "First", key="1")
    await agent.wire.idle(session_id)
    await agent.wire.request("session/close", {"sessionId": session_id})
    (codex,) = codex_pids(env)
    os.kill(codex, signal.SIGSTOP)
    try:
        resume = await agent.wire.begin("session/resume", {"sessionId": session_id, "cwd": cwd})
        for _ in range(50):
            # Needs no Codex, and gives the agent the time to ask it.
            await agent.wire.request("session/status", {"sessionId": other})
        await agent.wire.cancel(resume)
        await agent.wire.request("session/status", {"sessionId": other})
    finally:
        os.kill(codex, signal.SIGCONT)
    with pytest.raises(WireError):
        await agent.wire.answer(resume)
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd)
        assert await second.wire.prompt(session_id, "First", key="1") == first
        assert await second.wire.prompt(session_id, "Second", key="2")
        assert await second.close() == 0


async def test_a_configuration_that_codex_cannot_read_is_named_when_it_asks_for_a_login(
    env: dict[str, str], cwd: str
) -> None:
    config = Path(env["CODEX_HOME"]) / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace('"responses"', '"chat"'), encoding="utf-8")
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        with pytest.raises(WireError, match=r"Invalid configuration.*wire_api") as caught:
            await agent.wire.new(cwd)
        assert caught.value.code == -32000
        assert await agent.close() == 0


@pytest.mark.parametrize("what", ["a FIFO", "a folder"])
async def test_what_is_no_file_is_not_opened(agent: AgentProcess, env: dict[str, str], cwd: str, what: str) -> None:
    """Codex would wait for a FIFO until it counts as hung, and every session with it."""
    session_id, other = await agent.wire.new(cwd), await agent.wire.new(cwd)
    for each in (session_id, other):
        await agent.wire.prompt(each, "Hello")
        await agent.wire.idle(each)
    await agent.wire.request("session/close", {"sessionId": session_id})
    path = rollout(env, session_id)
    path.unlink()
    if what == "a FIFO":
        os.mkfifo(path)
    else:
        path.mkdir()
    params = {"sessionId": session_id, "cwd": cwd}
    for method in ("session/resume", "session/fork", "session/delete", "session/status"):
        with pytest.raises(WireError, match=r"rollout-.* is no file") as refused:
            await agent.wire.request(method, params)
        assert refused.value.data == {"reason": "history_unreadable"}
    await agent.wire.prompt(other, "Go on")
    await agent.wire.idle(other, 2)


@pytest.mark.parametrize(("end", "reason"), [("kill -9 $$", "runtime_died"), ("exit 3", "runtime_missing")])
async def test_a_codex_that_was_killed_while_it_started_may_be_tried_again(
    env: dict[str, str], folder: Path, cwd: str, end: str, reason: str
) -> None:
    codex = folder / "starting"
    codex.write_text(f"#!/bin/sh\nread hello\n{end}\n", encoding="utf-8")
    codex.chmod(0o755)
    async with agent_process({**env, "CODEX_PATH": str(codex)}) as agent:
        await agent.wire.initialize()
        with pytest.raises(WireError, match="starting ended while it started") as caught:
            await agent.wire.new(cwd)
        assert caught.value.data == {"reason": reason}
        assert await agent.close() == 0


async def test_an_early_end_is_told_in_codex_s_own_words(env: dict[str, str], cwd: str) -> None:
    async with agent_process({**env, "CODEX_HOME": "/nowhere"}) as agent:
        await agent.wire.initialize()
        with pytest.raises(WireError, match=r'Error: CODEX_HOME points to "/nowhere", but that path does not exist'):
            await agent.wire.new(cwd)
        assert await agent.close() == 0


async def test_a_file_that_does_not_begin_as_one_is_unreadable_and_no_other(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    """A mark of the byte order in front of one file spoiled all of them (openai/codex 28139)."""
    session_ids = [await agent.wire.new(cwd) for _ in range(3)]
    for session_id in session_ids:
        await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
    assert await agent.close() == 0
    marked, *others = session_ids
    path = rollout(env, marked)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    async with agent_process(env) as again:
        await again.wire.initialize()
        listed = await again.wire.request("session/list", {})
        assert {session["sessionId"] for session in listed["sessions"]} >= set(others)
        with pytest.raises(WireError, match="Codex cannot read the session") as refused:
            await again.wire.resume(marked, cwd, replay=True)
        assert (refused.value.code, refused.value.data) == (-32603, {"reason": "history_unreadable"})
        assert again.wire.updates(marked) == []
        for session_id in others:
            await again.wire.resume(session_id, cwd, replay=True)
            assert "First" in entities(again.wire.updates(session_id)).values()
        assert await again.close() == 0
