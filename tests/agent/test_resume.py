"""``session/resume`` without faults: order, markers, current state (RES-*, RPL-*)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sayagain.agent.session import Session
from sayagain.errors import HistoryUnreadable
from sayagain.runtime.events import Foreground
from sayagain.runtime.history import HistoryUpdate, UserTurn
from sayagain.testing.fake_runtime import FakeSession, FakeStore
from support_agent import Client, Stop, World, code_of, serving, settle, updates_before
from support_rules import rule
from support_wire import WireError, entities, prompt_params, text

START = {"type": "start"}


@rule("RES-1", "RES-9", "RPL-3")
async def test_without_a_cursor_there_is_state_and_no_history(world: World, client: Client) -> None:
    session_id = await world.stored(client, *(f"prompt {n}" for n in range(25)))
    other = await world.connect()
    for cursor in ({}, {"replayFrom": None}):
        request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **cursor})
        await other.answer(request)
        assert {u["sessionUpdate"] for u in other.updates(session_id)} == {"state_update"}
        assert other.update_index(session_id, "state_update") < other.answer_index(request)


@rule("RES-2", "RPL-1", "RES-9", "RES-13")
async def test_the_order_on_the_wire(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one", "two")
    world.fake(session_id).snapshot_updates = [{"sessionUpdate": "session_info_update", "title": "A title"}]
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})
    await other.answer(request)
    assert [u["sessionUpdate"] for u in other.updates(session_id)] == [
        "user_message",
        "agent_message",
        "user_message",
        "agent_message",
        "replay_complete",
        "session_info_update",
        "state_update",
    ]
    assert other.update_index(session_id, "state_update") + 1 == other.answer_index(request)
    assert list(entities(other.updates(session_id)).values()) == ["one", "answer to one", "two", "answer to two"]
    await other.resume(session_id, replay=True)
    assert len(other.updates(session_id, "replay_complete")) == 2, "one for each request"


@rule("RES-7", "RPL-4")
@pytest.mark.parametrize("replay", [True, False])
async def test_what_a_session_says_while_it_is_opened_is_not_lost(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, replay: bool
) -> None:
    session_id = await world.stored(client, "one")
    await client.request("session/close", {"sessionId": session_id})
    notices = [{"sessionUpdate": "notice", "severity": "warning", "title": title} for title in ("First", "Second")]
    resume = world.runtime.resume

    async def talking(*arguments: Any) -> FakeSession:
        session = await resume(*arguments)
        for notice in notices:
            session.update(notice)
        return session

    monkeypatch.setattr(world.runtime, "resume", talking)
    start = len(client.lines)
    await client.resume(session_id, replay=replay)
    await settle()
    told = [line["params"]["update"] for line in client.lines[start:] if line.get("method") == "session/update"]
    assert [update for update in told if update["sessionUpdate"] == "notice"] == notices
    if replay:
        kinds = [update["sessionUpdate"] for update in told]
        assert kinds.index("replay_complete") < kinds.index("notice")


async def test_a_resume_that_is_cancelled_before_its_turn_leaves_nothing(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await world.stored(client, "one")
    await client.request("session/close", {"sessionId": session_id})
    turn = Stop()

    @asynccontextmanager
    async def wait(*_: object) -> AsyncIterator[None]:
        await turn()
        yield

    monkeypatch.setattr(Session, "turn", wait)
    request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/"})
    await turn.reached.wait()
    await client.cancel(request)
    with pytest.raises(WireError) as caught:
        await client.answer(request)
    assert caught.value.code == -32800
    await settle()
    assert world.fake(session_id).closed
    assert await client.request("session/status", {"sessionId": session_id}) == {"status": "saved"}


@rule("RPL-2")
@pytest.mark.parametrize("where", ["same connection", "another connection"])
async def test_an_empty_history_has_its_marker_first(world: World, client: Client, where: str) -> None:
    session_id = await client.new()
    world.fake(session_id).snapshot_updates = [{"sessionUpdate": "session_info_update", "title": "A title"}]
    other = client if where == "same connection" else await world.connect()
    await other.resume(session_id, replay=True)
    kinds = [u["sessionUpdate"] for u in other.updates(session_id)]
    assert kinds == ["replay_complete", "session_info_update", "state_update"]


@rule("RPL-2")
async def test_a_stored_session_without_entries(client: Client, world: World) -> None:
    world.store.sessions["empty"] = []
    world.store.directories["empty"] = "/"
    await client.resume("empty", replay=True)
    assert [u["sessionUpdate"] for u in client.updates("empty")] == ["replay_complete", "state_update"]


@rule("RES-3", "RPL-3")
@pytest.mark.parametrize(
    "cursor",
    [{"type": "end"}, {"type": "_ours", "at": 1}, {}, {"type": 3}, "start", [], 0, {"type": None}],
)
async def test_a_bad_cursor_is_refused_and_nothing_is_resumed(world: World, client: Client, cursor: object) -> None:
    session_id = await world.stored(client, "one")
    other = await world.connect()
    params = {"sessionId": session_id, "cwd": "/", "replayFrom": cursor}
    assert await code_of(other, "session/resume", params) == -32602
    assert other.updates() == []
    assert await code_of(other, "session/prompt", prompt_params(session_id, "x")) == -32002


@rule("RES-4", "RPL-3")
@pytest.mark.parametrize("session_id", ["unknown", "../../etc/passwd", "a\0b", "x" * 10_000, "", " ", "%2e%2e", "é"])
@pytest.mark.parametrize("replay", [False, True])
async def test_an_unknown_session(client: Client, session_id: str, replay: bool) -> None:
    with pytest.raises(WireError) as caught:
        await client.resume(session_id, replay=replay)
    if caught.value.code != -32602:
        assert caught.value.code == -32002
        assert session_id.startswith(caught.value.data["sessionId"])
    assert client.updates() == []


@rule("RES-5", "RES-6", "PRM-2")
async def test_every_replayed_message_has_its_own_lasting_id() -> None:
    store = FakeStore()
    ids: list[list[str]] = []
    async with serving(store) as world:
        client = await world.connect()
        session_id = await client.new()
        prompted = [await client.prompt(session_id, f"p{n}") for n in range(5)]
        await client.idle(session_id, 5)
    for _ in range(2):
        async with serving(store) as world:
            client = await world.connect()
            await client.resume(session_id, replay=True)
            messages = [u for u in client.updates(session_id) if "messageId" in u]
            assert all(u["sessionUpdate"] in ("user_message", "agent_message") for u in messages), "full upserts"
            ids.append([u["messageId"] for u in messages])
            assert [u["messageId"] for u in client.updates(session_id, "user_message")] == prompted
    assert ids[0] == ids[1], "the same history gives the same ids"
    assert len(set(ids[0])) == 10


@rule("RES-9", "RES-10", "UPD-4")
async def test_the_snapshot_is_no_new_completion(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.emit(
        Foreground(
            session_id, "idle", stop_reason="end_turn", usage={"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}
        )
    )
    await client.idle(session_id)
    assert "usage" in client.updates(session_id, "state_update")[-1]
    other = await world.connect()
    await other.resume(session_id)
    assert other.updates(session_id) == [{"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}]


@rule("RES-9", "RES-14")
async def test_a_running_session_is_told_as_running(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    other = await world.connect()
    await other.resume(session_id)
    assert other.states(session_id) == ["running"]
    fake.say("live")
    await other.until(lambda: other.updates(session_id, "agent_message_chunk"))


@rule("RES-14", "NEW-4")
async def test_a_session_is_active_from_its_response_on(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})
    await stop.reached.wait()
    assert await code_of(other, "session/prompt", prompt_params(session_id, "too early")) == -32002
    stop.go()
    await other.answer(request)
    await other.prompt(session_id, "now")


@rule("RES-8", "RES-7")
async def test_history_is_told_not_acted_on(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.ask("old")
    await client.until(lambda: client.asked)
    await client.post({"jsonrpc": "2.0", "id": client.asked[0]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    fake.update({"sessionUpdate": "notice", "severity": "warning", "title": "Once"})
    fake.finish()
    await client.idle(session_id)
    assert len(client.updates(session_id, "notice")) == 1
    other = await world.connect()
    await other.resume(session_id, replay=True)
    await settle()
    assert other.asked == []
    assert other.updates(session_id, "notice") == []
    assert len(fake.submitted) == 1


@rule("RES-11", "UPD-8")
async def test_background_items_are_announced_before_the_snapshot_that_lists_them(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "bg", "title": "Watch", "status": "in_progress"}
    fake.update(call)
    background = [{"type": "tool_call", "toolCallId": "bg"}]
    fake.emit(Foreground(session_id, "idle", stop_reason="end_turn", background=background))
    fake.snapshot_updates = [call]
    await client.idle(session_id)
    other = await world.connect()
    await other.resume(session_id)
    kinds = [u["sessionUpdate"] for u in other.updates(session_id)]
    assert kinds == ["tool_call_update", "state_update"]
    assert other.updates(session_id, "state_update")[0]["background"] == background


@rule("RES-12", "NEW-5", "NEW-3")
async def test_servers_and_directories_are_never_restored_silently() -> None:
    store = FakeStore()
    server = {"type": "stdio", "name": "s", "command": "/bin/true", "args": []}
    async with serving(store) as world:
        client = await world.connect()
        session_id = await client.new(mcpServers=[server], additionalDirectories=["/tmp"])
        await client.prompt(session_id, "x")
        setup = world.fake(session_id).setup
        assert (list(setup.mcp_servers), setup.additional_directories) == ([server], ("/tmp",))
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        setup = world.fake(session_id).setup
        assert (setup.mcp_servers, setup.additional_directories) == ((), ())


@rule("RPL-4", "UPD-1")
async def test_nothing_but_history_comes_before_the_marker(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})
    await stop.reached.wait()
    live: list[dict[str, Any]] = [
        {"sessionUpdate": "notice", "severity": "info", "title": "Live"},
        {"sessionUpdate": "available_commands_update", "availableCommands": []},
        {"sessionUpdate": "config_option_update", "configOptions": []},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
        {"sessionUpdate": "session_info_update", "title": "Live"},
        {"sessionUpdate": "agent_message_chunk", "messageId": "live", "content": text("live")},
        {"sessionUpdate": "tool_call_update", "toolCallId": "live", "title": "Live"},
    ]
    for update in live:
        fake.update(update)
    fake.finish()
    await client.idle(session_id)
    assert other.updates() == []
    stop.go()
    await other.answer(request)
    assert set(updates_before(other, session_id)) == {"user_message"}
    after = other.updates(session_id)[2:]
    assert after[: len(live)] == live, "what waited keeps its order"
    assert [u["sessionUpdate"] for u in after[len(live) :]] == ["state_update"], "the state that it is in, once"


@rule("RPL-5")
async def test_a_running_turn_is_cut(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.say("Once ", message_id="m", stored=False)
    fake.say("upon ", message_id="m", stored=False)
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Run", "status": "in_progress"}
    fake.update(call)
    await client.until(lambda: client.updates(session_id, "tool_call_update"))
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})
    await stop.reached.wait()
    fake.say("a ", message_id="m", stored=False)
    fake.say("time", message_id="m", stored=False)
    await settle()
    stop.go()
    await other.answer(request)
    marker = other.update_index(session_id, "replay_complete")
    before = [line["params"]["update"] for line in other.lines[1:marker]]
    assert entities(before)["m"] == "Once upon "
    assert call in before, "a running tool call keeps its live status"
    assert entities(other.updates(session_id))["m"] == "Once upon a time"
    assert [u["sessionUpdate"] for u in other.updates(session_id) if u.get("messageId") == "m"] == [
        "agent_message",
        "agent_message_chunk",
    ]
    fake.say(".", message_id="m", stored=False)
    await other.until(lambda: entities(other.updates(session_id))["m"] == "Once upon a time.")


@rule("RPL-5")
async def test_what_came_while_the_replay_had_to_wait_is_told_once(world: World, client: Client) -> None:
    """Between the attachment and the cut the session goes on; that is in the cut and must not follow it again."""
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    second, third = await world.connect(), await world.connect()
    params = {"sessionId": session_id, "cwd": "/", "replayFrom": START}
    first_request = await second.begin("session/resume", params)
    await stop.reached.wait()
    other_request = await third.begin("session/resume", params)
    await settle()
    fake.say("said meanwhile", message_id="m", stored=False)
    fake.update({"sessionUpdate": "usage_update", "used": 1, "size": 2})
    await settle()
    stop.go()
    for wire, request in ((second, first_request), (third, other_request)):
        await wire.answer(request)
        assert entities(wire.updates(session_id))["m"] == "said meanwhile"
        assert len(wire.updates(session_id, "usage_update")) == 1
        assert "usage_update" not in updates_before(wire, session_id)
        assert len(wire.updates(session_id, "replay_complete")) == 1


@rule("RPL-5")
async def test_a_message_that_is_stored_while_the_history_is_read_is_told_once(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})
    await stop.reached.wait()
    fake.say("streamed, then stored", message_id="m")
    await client.until(lambda: client.updates(session_id, "agent_message_chunk"))
    stop.go()
    await other.answer(request)
    assert entities(other.updates(session_id))["m"] == "streamed, then stored"


@rule("RPL-5")
async def test_a_stored_message_whose_chunks_are_late_is_told_once(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    whole = {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("all of it")]}
    fake.persist(HistoryUpdate(session_id, whole))
    other = await world.connect()
    await other.resume(session_id, replay=True)
    fake.say("all of it", message_id="m", stored=False)
    fake.finish()
    await other.until(lambda: other.states(session_id)[-1:] == ["idle:end_turn"])
    assert entities(other.updates(session_id))["m"] == "all of it"


@rule("RPL-7")
async def test_a_known_gap_is_a_notice_after_the_marker(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    world.runtime.gap(session_id, "3 damaged lines")
    other = await world.connect()
    await other.resume(session_id, replay=True)
    notice = other.updates(session_id, "notice")
    assert [n["description"] for n in notice] == ["3 damaged lines"]
    assert "notice" not in updates_before(other, session_id)
    assert other.update_index(session_id, "notice") > other.update_index(session_id, "replay_complete")


@rule("PRM-7", "KEY-9")
async def test_a_hidden_user_turn_is_not_shown_but_its_ids_count(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    from sayagain.identity import derive_message_id

    hidden, merged = (derive_message_id(session_id, key) for key in ("hidden", "merged"))
    world.store.sessions[session_id].append(UserTurn(session_id, (hidden,), None))
    shown = {"sessionUpdate": "user_message", "messageId": "m", "content": [text("merged")]}
    world.store.sessions[session_id].append(UserTurn(session_id, ("m", merged), shown))
    await client.request("session/close", {"sessionId": session_id})
    await client.resume(session_id, replay=True)
    assert hidden not in str(client.lines)
    assert await client.prompt(session_id, "x", "hidden") == hidden
    assert await client.prompt(session_id, "x", "merged") == merged


@rule("RES-13")
async def test_resume_prompt_and_output(world: World, client: Client) -> None:
    """A replay is followed by ordinary work (cline#14045)."""
    session_id = await world.stored(client, "one")
    other = await world.connect()
    await other.resume(session_id, replay=True)
    await other.prompt(session_id, "two")
    await other.until(lambda: "answer to two" in entities(other.updates(session_id)).values())
    await client.until(lambda: "answer to two" in entities(client.updates(session_id)).values())


@rule("RES-15", "RPL-3")
@pytest.mark.parametrize("how", ["cancelled", "failed", "disconnected"])
async def test_a_resume_that_shows_nobody_anything_leaves_the_session_to_others(how: str) -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "one")
    async with serving(store) as first, serving(store) as second:
        client, other = await first.connect(), await second.connect()
        stop = store.before_entry = Stop()
        params = {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
        request = await client.begin("session/resume", params)
        await stop.reached.wait()
        if how == "cancelled":
            await client.cancel(request)
        elif how == "disconnected":
            await client.close()
        else:
            store.read_error = HistoryUnreadable()
            stop.go()
        await settle()
        assert first.fake(session_id).closed
        store.before_entry = store.read_error = None
        await other.resume(session_id)
        assert await other.prompt(session_id, "x", "k")


@rule("RES-15", "RES-13")
async def test_a_failed_resume_leaves_the_session_to_those_who_have_it_and_those_who_come(world: World) -> None:
    client, other, third = await world.connect(), await world.connect(), await world.connect()
    session_id = await world.stored(third, "one")
    await third.request("session/close", {"sessionId": session_id})
    stop = world.store.before_entry = Stop()
    params = {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    request = await client.begin("session/resume", params)
    await stop.reached.wait()
    waits = await other.begin("session/resume", params)
    await settle()
    await client.cancel(request)
    await settle()
    stop.go()
    await other.answer(waits)
    assert await code_of(client, "session/resume", {**params, "replayFrom": {"type": "start"}}) == 0
    assert not world.fake(session_id).closed
    assert await other.prompt(session_id, "two")


@rule("RES-12")
async def test_a_resume_of_an_active_session_says_what_it_keeps(world: World, client: Client) -> None:
    session_id = await world.stored(client, "x")
    other = await world.connect()
    server = {"type": "stdio", "name": "tools", "command": "/bin/tools", "args": [], "env": []}
    await other.request("session/resume", {"sessionId": session_id, "cwd": "/elsewhere", "mcpServers": [server]})
    (notice,) = other.updates(session_id, "notice")
    assert notice["title"] == "The session keeps the working directory and MCP servers that it was opened with"
    await client.request("session/close", {"sessionId": session_id})
    for _ in range(2):
        params = {"sessionId": session_id, "cwd": "/elsewhere", "mcpServers": [server]}
        await client.request("session/resume", params)
    same = dict(reversed(server.items())) | {"_meta": None}
    for params in ({"cwd": "/elsewhere"}, {"cwd": "/elsewhere/./", "mcpServers": [same]}):
        await client.request("session/resume", {"sessionId": session_id, **params})
    assert client.updates(session_id, "notice") == []


@rule("RES-7")
async def test_what_waited_for_the_marker_and_is_the_state_is_told_once(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await world.stored(client, "x")
    fake = world.runtime.sessions[session_id]
    command = {"type": "command", "description": "Does it"}
    commands = [
        {"sessionUpdate": "available_commands_update", "availableCommands": [{**command, "name": name}]}
        for name in ("old", "new")
    ]
    monkeypatch.setattr(fake, "snapshot", lambda: [commands[1]])
    world.store.before_entry = stop = Stop()
    request = await client.begin(
        "session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    )
    await stop.reached.wait()
    for update in commands:
        fake.update(update)
    await settle()
    stop.go()
    await client.answer(request)
    assert [u for u in client.updates(session_id) if u["sessionUpdate"] == "available_commands_update"] == commands
