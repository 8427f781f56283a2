"""A replay that was asked for by a client that is attached already: live traffic waits from the request on (RPL-4).

What such a request waits for before it can send its history differs; what the client sees must not.
"""

from __future__ import annotations

import base64

import pytest

from sayagain.errors import SessionInUse
from sayagain.runtime.history import HistoryUpdate
from sayagain.testing.fake_runtime import FakeSession, FakeStore
from support_agent import Client, Stop, World, serving, settle, updates_before
from support_rules import rule
from support_wire import WireError, entities, text

START = {"type": "start"}
NOTICE = {"sessionUpdate": "notice", "severity": "info", "title": "Live"}
HISTORY = {"user_message", "agent_message", "subagent_update"}


async def ask_for_replay(client: Client, session_id: str) -> int:
    return await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})


async def talk(fake: FakeSession) -> None:
    """Everything that is not history."""
    fake.update(NOTICE)
    fake.ask("permission")
    fake.update({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("live")})
    await settle()


def seen_before(client: Client, session_id: str, start: int) -> set[str]:
    end = client.update_index(session_id, "replay_complete", start)
    assert not any(line.get("method") == "session/request_permission" for line in client.lines[start:end])
    return set(updates_before(client, session_id, start=start))


@rule("RPL-4", "RPL-6", "RPL-1")
async def test_live_traffic_waits_while_the_replay_waits_for_the_owner(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = fake.before_own = Stop()
    start = len(client.lines)
    request = await ask_for_replay(client, session_id)
    await stop.reached.wait()
    await talk(fake)
    stop.go()
    await client.answer(request)
    assert seen_before(client, session_id, start) <= HISTORY
    assert client.updates(session_id, "notice") == [NOTICE]
    assert entities(client.updates(session_id))["m"] == "live"
    await client.until(lambda: client.asked)


@rule("RPL-4", "RPL-6")
async def test_live_traffic_waits_while_another_clients_replay_goes_first(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    other = await world.connect()
    stop = world.store.before_entry = Stop()
    first = await ask_for_replay(other, session_id)
    await stop.reached.wait()
    start = len(client.lines)
    request = await ask_for_replay(client, session_id)
    await settle()
    await talk(fake)
    stop.go()
    await other.answer(first)
    await client.answer(request)
    assert seen_before(client, session_id, start) <= HISTORY


@rule("RPL-4", "RPL-6")
async def test_live_traffic_waits_while_the_clients_own_replay_goes_first(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    first = await ask_for_replay(client, session_id)
    second = await ask_for_replay(client, session_id)
    await stop.reached.wait()
    await talk(fake)
    again = fake.before_own = Stop()
    stop.go()
    await client.answer(first)
    await again.reached.wait()
    start = client.answer_index(first) + 1
    fake.update(NOTICE)
    await settle()
    again.go()
    await client.answer(second)
    assert seen_before(client, session_id, start) <= HISTORY
    assert client.updates(session_id, "notice") == [NOTICE, NOTICE]
    assert len(client.updates(session_id, "replay_complete")) == 2


@rule("RPL-4")
async def test_a_childs_live_traffic_waits_too(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    child = fake.spawn("helper")
    await settle()
    stop = fake.before_own = Stop()
    start = len(client.lines)
    request = await ask_for_replay(client, session_id)
    await stop.reached.wait()
    fake.update(NOTICE, session_id=child)
    await settle()
    stop.go()
    await client.answer(request)
    assert set(updates_before(client, child, start=start)) <= HISTORY
    assert client.updates(child, "notice") == [NOTICE]


@rule("RPL-3", "RES-13", "RES-15")
async def test_a_replay_that_is_cancelled_before_it_began_gives_back_what_waited(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = fake.before_own = Stop()
    request = await ask_for_replay(client, session_id)
    await stop.reached.wait()
    await talk(fake)
    assert client.updates(session_id, "notice") == []
    await client.cancel(request)
    with pytest.raises(WireError) as caught:
        await client.answer(request)
    assert caught.value.code == -32800
    await settle()
    assert client.updates(session_id, "replay_complete") == []
    assert client.update_index(session_id, "notice") > client.answer_index(request)
    assert entities(client.updates(session_id))["m"] == "live"
    fake.update(NOTICE)
    await settle()
    assert client.updates(session_id, "notice") == [NOTICE, NOTICE], "and the session goes on"


@rule("RPL-3", "RES-15")
async def test_a_replay_that_is_cancelled_in_the_queue_leaves_the_other_one_whole(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    first = await ask_for_replay(client, session_id)
    await stop.reached.wait()
    second = await ask_for_replay(client, session_id)
    await settle()
    await client.cancel(second)
    with pytest.raises(WireError):
        await client.answer(second)
    await talk(fake)
    assert client.updates(session_id, "notice") == []
    stop.go()
    await client.answer(first)
    await settle()
    assert client.updates(session_id, "notice") == [NOTICE]
    assert len(client.updates(session_id, "replay_complete")) == 1
    fake.update(NOTICE)
    await settle()
    assert client.updates(session_id, "notice") == [NOTICE, NOTICE]


@rule("RPL-4", "RPL-6", "RES-15")
async def test_live_traffic_waits_for_the_second_replay_when_the_first_is_cancelled(
    world: World, client: Client
) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    first = await ask_for_replay(client, session_id)
    await stop.reached.wait()
    second = await ask_for_replay(client, session_id)
    again = fake.before_own = Stop()
    await client.cancel(first)
    with pytest.raises(WireError):
        await client.answer(first)
    await again.reached.wait()
    start = client.answer_index(first) + 1
    await talk(fake)
    stop.go()
    again.go()
    await client.answer(second)
    assert seen_before(client, session_id, start) <= HISTORY
    assert client.updates(session_id, "notice") == [NOTICE]


@rule("RES-15", "RES-13")
async def test_a_session_that_a_failed_resume_opened_is_kept_for_one_that_is_about_to_attach() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "one")
    async with serving(store) as world:
        client, other = await world.connect(), await world.connect()
        stop = store.before_entry = Stop()
        first = await ask_for_replay(client, session_id)
        await stop.reached.wait()
        fake = world.fake(session_id)
        async with world.sessions._sessions[session_id].turn(list(world.agent._peers)[1]):
            second = await ask_for_replay(other, session_id)
            await settle()
            await client.cancel(first)
            with pytest.raises(WireError):
                await client.answer(first)
            await settle()
        stop.go()
        await other.answer(second)
        assert world.fake(session_id) is fake
        assert not fake.closed
        assert await other.prompt(session_id, "two")


@rule("RPL-3", "RES-13")
async def test_a_replay_that_fails_after_the_cut_loses_nothing_for_an_attached_client(
    world: World, client: Client
) -> None:
    session_id, fake = await world.work(client)
    fake.update({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("one ")})
    await settle()
    owner, reader = Stop(), Stop()
    fake.before_own, world.store.before_entry = owner, reader
    request = await ask_for_replay(client, session_id)
    await owner.reached.wait()
    # Waits before the cut, is in the cut, and the history never gets there.
    fake.update({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("two ")})
    await settle()
    owner.go()
    await reader.reached.wait()
    fake.update({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("three")})
    await settle()
    world.store.read_error = SessionInUse()
    reader.go()
    with pytest.raises(WireError):
        await client.answer(request)
    await settle()
    assert entities(client.updates(session_id))["m"] == "one two three"


@rule("RPL-3", "RES-13")
async def test_what_a_failed_replay_sent_of_work_in_flight_is_brought_up_to_date(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.say("one ", message_id="m")
    fake.say("another", message_id="n")
    await settle()
    # The history tells m in its state of now, then fails.
    reader = world.store.before_entry = Stop(at=2)
    request = await ask_for_replay(client, session_id)
    await reader.reached.wait()
    fake.update({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("two")})
    await settle()
    await client.cancel(request)
    with pytest.raises(WireError):
        await client.answer(request)
    await settle()
    assert entities(client.updates(session_id))["m"] == "one two"


@rule("CLS-1", "CLS-3")
async def test_a_session_that_closes_while_a_replay_waits_is_seen_to_end(world: World, client: Client) -> None:
    session_id, _ = await world.work(client)
    close = client.request_message("session/close", {"sessionId": session_id})
    replay = client.request_message("session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": START})
    await client.post(close, replay)
    await client.answer(close["id"])
    await client.answer(replay["id"])
    assert client.index(
        lambda line: line.get("params", {}).get("update", {}).get("stopReason") == "cancelled"
    ) < client.answer_index(close["id"])


@rule("RES-4")
async def test_a_replay_whose_turn_never_comes_gives_back_what_waited() -> None:
    async with serving() as world:
        client, other = await world.connect(), await world.connect()
        session_id, fake = await world.work(client)
        await other.resume(session_id)
        # A close of the other client waits for its own resume, and holds the lock of the session's id meanwhile.
        stop = fake.before_own = Stop()
        await ask_for_replay(other, session_id)
        await stop.reached.wait()
        await other.begin("session/close", {"sessionId": session_id})
        await settle()
        request = await ask_for_replay(client, session_id)
        await settle()
        fake.update(NOTICE)
        await settle()
        assert client.updates(session_id, "notice") == []
        await client.cancel(request)
        with pytest.raises(WireError):
            await client.answer(request)
        await settle()
        assert client.updates(session_id, "notice") == [NOTICE]
        stop.go()


def shown(client: Client, session_id: str, terminal_id: str) -> bytes:
    """What a client shows of a terminal."""
    output = b""
    for update in client.updates(session_id):
        if update.get("terminalId") == terminal_id and update["sessionUpdate"] == "terminal_update":
            output = base64.b64decode(update["output"]["data"]) if "output" in update else output
        elif update.get("terminalId") == terminal_id:
            output += base64.b64decode(update["data"])
    return output


def say(fake: FakeSession, *parts: bytes) -> None:
    fake.update({"sessionUpdate": "terminal_update", "terminalId": "t", "command": "run", "cwd": "/"})
    for part in parts:
        data = base64.b64encode(part).decode()
        fake.update({"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": data})


@rule("RPL-5", "TC-2")
async def test_a_terminal_that_says_the_same_again_and_again(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    say(fake, b"a", b"\n", b".", b".", b".", b"b")
    await settle()
    other = await world.connect()
    await other.resume(session_id, replay=True)
    assert shown(client, session_id, "t") == shown(other, session_id, "t") == b"a\n...b"


@rule("RPL-5", "TC-2")
@pytest.mark.parametrize("kept", [b"onetwo", b"two"], ids=["all", "the end alone"])
async def test_a_terminal_that_is_in_the_history_and_in_the_cut(world: World, client: Client, kept: bytes) -> None:
    session_id, fake = await world.work(client)
    say(fake, kept)
    ended = {"sessionUpdate": "terminal_update", "terminalId": "t", "exitStatus": {"exitCode": 0}}
    fake.update(ended)
    whole = base64.b64encode(b"onetwo").decode()
    fake.persist(HistoryUpdate(session_id, {**ended, "command": "run", "cwd": "/", "output": {"data": whole}}))
    await settle()
    other = await world.connect()
    await other.resume(session_id, replay=True)
    assert shown(other, session_id, "t") == b"onetwo"
