"""Subagent sessions, live and in a replay (SUB-*, RPL-8, RPL-9, LST-4)."""

from __future__ import annotations

import pytest

from sayagain.runtime.events import Foreground
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryUpdate
from sayagain.testing.fake_runtime import FakeSession, FakeStore
from support_agent import Client, Stop, World, code_of, serving, settle, updates_before
from support_rules import rule
from support_wire import entities, prompt_params, text

START = {"replayFrom": {"type": "start"}}


def speak(fake: FakeSession, child_id: str, content: str, message_id: str = "m", *, stored: bool = True) -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": text(content)}
    fake.update(chunk, session_id=child_id)
    if stored:
        whole = {"sessionUpdate": "agent_message", "messageId": message_id, "content": [text(content)]}
        fake.persist(HistoryUpdate(child_id, whole))


def first_line(client: Client, session_id: str) -> int:
    return client.index(lambda line: isinstance(line, dict) and line.get("params", {}).get("sessionId") == session_id)


def announced(client: Client, child_id: str, start: int = 0) -> int:
    return next(
        n
        for n, line in enumerate(client.lines)
        if n >= start
        and line.get("method") == "session/update"
        and line["params"]["update"]["sessionUpdate"] == "subagent_update"
        and line["params"]["update"]["sessionId"] == child_id
    )


@rule("SUB-1", "SUB-4", "SUB-6", "SUB-5")
async def test_a_live_child_is_announced_first_and_its_state_is_mirrored(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child_id = fake.spawn("helper")
    speak(fake, child_id, "working")
    fake.end_child(child_id)
    fake.finish()
    await client.idle(session_id)
    assert announced(client, child_id) < first_line(client, child_id)
    assert client.states(child_id) == ["running", "idle:end_turn"]
    mirrors = client.updates(session_id, "subagent_update")
    assert mirrors[0]["capabilities"] == {}
    assert [m["state"]["state"] for m in mirrors[1:]] == ["running", "idle"]
    assert [u["sessionUpdate"] for u in client.updates(child_id)] == [
        "state_update",
        "agent_message_chunk",
        "state_update",
    ]


@rule("SUB-1")
async def test_a_child_that_ends_at_once_is_announced_too(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child_id = fake.spawn("quick")
    fake.end_child(child_id)
    fake.finish()
    await client.idle(session_id)
    assert announced(client, child_id) < first_line(client, child_id)


@rule("SUB-1", "SUB-4", "PER-1")
async def test_a_childs_permission_bears_its_id_and_follows_its_announcement(world: World, client: Client) -> None:
    _, fake = await world.work(client)
    child_id = fake.spawn("helper")
    fake.ask("p", session_id=child_id)
    await client.until(lambda: client.asked)
    assert client.asked[0]["params"]["sessionId"] == child_id
    assert announced(client, child_id) < client.lines.index(client.asked[0])


@rule("SUB-5", "SUB-9", "LST-4")
async def test_a_child_takes_no_requests_and_is_not_listed(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child_id = fake.spawn("helper")
    await client.until(lambda: client.updates(child_id))
    assert await code_of(client, "session/prompt", prompt_params(child_id, "x")) == -32602
    assert await code_of(client, "session/resume", {"sessionId": child_id, "cwd": "/"}) == -32602
    assert await code_of(client, "session/close", {"sessionId": child_id}) == 0
    await client.notify("session/cancel", {"sessionId": child_id})
    await settle()
    assert fake.interrupts == 0
    listed = await client.request("session/list", {})
    assert [row["sessionId"] for row in listed["sessions"]] == [session_id]
    assert len(fake.submitted) == 1


@rule("SUB-9", "RES-4")
async def test_a_child_of_a_stored_session_cannot_be_resumed() -> None:
    store = FakeStore()
    async with serving(store) as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        child_id = fake.spawn("helper")
        fake.end_child(child_id)
        fake.finish()
        await client.idle(session_id)
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id, replay=True)
        assert await code_of(client, "session/resume", {"sessionId": child_id, "cwd": "/"}) in (-32002, -32602)
        assert await code_of(client, "session/prompt", prompt_params(child_id, "x")) in (-32002, -32602)


@rule("SUB-7", "CAN-1")
async def test_cancelling_the_parent_interrupts_the_runtime_with_its_children(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child_id = fake.spawn("helper")
    await client.until(lambda: client.updates(child_id))
    await client.notify("session/cancel", {"sessionId": session_id})
    await fake.until(lambda: fake.interrupts == 1)


@rule("RPL-8", "SUB-10", "SUB-2")
async def test_each_replayed_child_has_its_own_marker() -> None:
    store = FakeStore()
    async with serving(store) as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        child = fake.spawn("child")
        speak(fake, child, "of the child")
        grandchild = fake.spawn("grandchild", parent_id=child)
        speak(fake, grandchild, "of the grandchild")
        fake.end_child(grandchild)
        fake.end_child(child)
        empty = fake.spawn("empty")
        fake.end_child(empty)
        fake.finish()
        await client.idle(session_id)
        live = {each: entities(client.updates(each)) for each in (child, grandchild)}
    async with serving(store) as world:
        client = await world.connect()
        request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
        await client.answer(request)
        for each, parent in ((child, session_id), (grandchild, child), (empty, session_id), (session_id, None)):
            assert client.updates(each, "replay_complete") == [{"sessionUpdate": "replay_complete"}]
            marker = client.update_index(each, "replay_complete")
            assert marker < client.answer_index(request)
            if parent is not None:
                assert announced(client, each) < first_line(client, each)
                assert announced(client, each) < client.update_index(parent, "replay_complete")
        assert {each: entities(client.updates(each)) for each in live} == live
        assert [u["sessionUpdate"] for u in client.updates(empty)] == ["replay_complete"]


@rule("RPL-8", "RPL-5", "SUB-10", "SUB-11", "RPL-9")
@pytest.mark.parametrize("stored", [True, False])
async def test_children_that_run_at_the_cut(world: World, client: Client, stored: bool) -> None:
    session_id, fake = await world.work(client)
    child = fake.spawn("child", stored=stored)
    speak(fake, child, "child before", stored=stored)
    grandchild = fake.spawn("grandchild", parent_id=child, stored=stored)
    speak(fake, grandchild, "grandchild before", stored=False)
    await client.until(lambda: client.updates(grandchild, "agent_message_chunk"))
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    speak(fake, child, ", after", stored=False)
    speak(fake, grandchild, ", after", stored=False)
    await settle()
    stop.go()
    await other.answer(request)
    await settle()
    answered = other.answer_index(request)
    for each, said in ((child, "child before"), (grandchild, "grandchild before")):
        assert len(other.updates(each, "replay_complete")) == 1
        marker = other.update_index(each, "replay_complete")
        assert announced(other, each) < first_line(other, each)
        assert set(updates_before(other, each)) <= {"agent_message", "subagent_update"}
        assert marker < answered
        assert entities(other.updates(each))["m"] == said + ", after"
        again = announced(other, each, start=answered)
        fresh = other.update_index(each, "agent_message_chunk")
        assert answered < again < fresh, "announced again before fresh traffic"
        assert other.lines[again]["params"]["update"]["capabilities"] == {}
    assert announced(other, child, start=answered) < announced(other, grandchild, start=answered), "parents first"


@rule("RPL-8")
async def test_a_child_that_starts_during_the_replay_has_its_marker(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    child = fake.spawn("late", stored=False)
    grandchild = fake.spawn("later", parent_id=child, stored=False)
    speak(fake, child, "hello", stored=False)
    await settle()
    stop.go()
    await other.answer(request)
    await settle()
    answered = other.answer_index(request)
    before = [n for n in (announced(other, child), announced(other, grandchild)) if n < answered]
    for each in (child, grandchild):
        expected = int(announced(other, each) < answered)
        assert len(other.updates(each, "replay_complete")) == expected
        assert announced(other, each) < first_line(other, each)
    assert before
    assert entities(other.updates(child))["m"] == "hello"


async def test_a_child_that_starts_while_the_history_is_read_and_is_read_too(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.say("something", message_id="x")
    await settle()
    stop = world.store.before_entry = Stop(at=1)
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    child = fake.spawn("late")
    speak(fake, child, "hello")
    await settle()
    stop.go()
    await other.answer(request)
    speak(fake, child, " again", "m2", stored=False)
    await other.until(lambda: "m2" in entities(other.updates(child)))
    assert len(other.updates(child, "replay_complete")) == 1
    assert entities(other.updates(child)) == {"m": "hello", "m2": " again"}


async def test_a_child_is_announced_live_while_its_own_history_is_replayed(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child = "x.child"
    update = {"sessionUpdate": "subagent_update", "sessionId": child, "title": "child", "capabilities": {}}
    fake.persist(ChildStarts(session_id, child, update))
    fake.persist(HistoryUpdate(child, {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("a")]}))
    stop = world.store.before_entry = Stop(at=2)
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    from sayagain.runtime.events import ChildAnnounced

    fake.emit(ChildAnnounced(session_id, child, update))
    fake.emit(Foreground(child, "running"))
    await settle()
    fake.persist(HistoryEnds(child))
    stop.go()
    await other.answer(request)
    assert len(other.updates(child, "replay_complete")) == 1
    await other.until(lambda: other.states(child) == ["running"])


@rule("SUB-11")
async def test_continuing_children_are_announced_again_without_a_replay(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    parent = fake.spawn("parent")
    child = fake.spawn("child", parent_id=parent)
    done = fake.spawn("done")
    fake.end_child(done)
    fake.end_child(parent)
    await client.until(lambda: client.states(parent)[-1:] == ["idle:end_turn"])
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/"})
    await other.answer(request)
    speak(fake, child, "fresh", stored=False)
    await other.until(lambda: other.updates(child))
    answered = other.answer_index(request)
    assert answered < announced(other, parent) < announced(other, child) < first_line(other, child)
    assert done not in str(other.lines)
    assert "replay_complete" not in str(other.lines)


@rule("SUB-11", "RPL-9")
async def test_the_next_prompt_does_not_make_a_working_child_forgotten(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child = fake.spawn("background", stored=False)
    speak(fake, child, "before", stored=False)
    fake.finish()
    await client.idle(session_id)
    request = await client.begin("session/prompt", prompt_params(session_id, "next"))
    await fake.until(lambda: len(fake.submitted) == 2)
    fake.run()
    fake.store(fake.submitted[1])
    await client.answer(request)
    other = await world.connect()
    await other.resume(session_id, replay=True)
    assert announced(other, child) < other.update_index(session_id, "replay_complete")
    assert entities(other.updates(child)) == {"m": "before"}
    assert len(other.updates(child, "replay_complete")) == 1


@rule("SUB-3")
async def test_a_child_stays_under_its_parent(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child = fake.spawn("child")
    grandchild = fake.spawn("grandchild", parent_id=child)
    fake.end_child(grandchild)
    fake.end_child(child)
    fake.finish()
    await client.idle(session_id)
    await client.resume(session_id, replay=True)
    parents = {
        (line["params"]["update"]["sessionId"], line["params"]["sessionId"])
        for line in client.lines
        if line.get("method") == "session/update" and line["params"]["update"]["sessionUpdate"] == "subagent_update"
    }
    assert parents == {(child, session_id), (grandchild, child)}


@rule("RPL-6", "RPL-8")
async def test_a_childs_permission_waits_for_the_response(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child = fake.spawn("child")
    await client.until(lambda: client.updates(child))
    await client.close()
    fake.ask("p", session_id=child)
    await settle()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await other.answer(request)
    await other.until(lambda: other.asked)
    assert other.lines.index(other.asked[0]) > other.answer_index(request)
    assert announced(other, child, start=other.answer_index(request)) < other.lines.index(other.asked[0])
