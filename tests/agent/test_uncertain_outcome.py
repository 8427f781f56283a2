"""An error says that nothing was inserted, so nobody gets one while it is not known (KEY-4, CAN-4).

What is not known: a message that is taken back before the history was read, and one whose runtime ended without a word.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sayagain.agent.prompts import MAX_UNSTORED
from sayagain.errors import HistoryUnreadable
from sayagain.identity import derive_message_id
from sayagain.runtime.events import Foreground, Rejected
from sayagain.runtime.history import HistoryEntry, UserTurn
from sayagain.testing.fake_runtime import FakeSession, FakeStore
from support_agent import Client, Stop, World, serving, settle, submitted
from support_rules import rule
from support_wire import WireError, prompt_params

KEY = "k"


async def begin(client: Client, session_id: str, key: str = KEY) -> int:
    return await client.begin("session/prompt", prompt_params(session_id, "Hello", key))


async def refusal(client: Client, request: int) -> WireError:
    with pytest.raises(WireError) as caught:
        await client.answer(request)
    return caught.value


def vanish(fake: FakeSession, *, stored: bool) -> str:
    """The runtime dies with the message, and the store cannot be read at that moment."""
    (message_id,) = fake.submitted[-1:]
    if stored:
        fake.persist(UserTurn(fake.session_id, (message_id,), None))
    fake.emit(Rejected(message_id, HistoryUnreadable()))
    fake.emit(Foreground(fake.session_id, "idle"))
    return message_id


async def given(world: World, client: Client) -> tuple[str, FakeSession, int]:
    session_id, fake = await world.manual(client)
    request = await begin(client, session_id)
    await submitted(fake)
    return session_id, fake, request


@rule("KEY-4", "PRM-1")
async def test_a_death_without_a_word_is_looked_up(world: World, client: Client) -> None:
    session_id, fake, request = await given(world, client)
    message_id = vanish(fake, stored=True)
    assert await client.answer(request) == {"messageId": message_id}
    assert await client.prompt(session_id, "Hello", key=KEY) == message_id
    assert fake.submitted == [message_id]


@rule("KEY-4")
async def test_a_death_without_a_word_that_lost_the_message_is_an_error(world: World, client: Client) -> None:
    session_id, fake, request = await given(world, client)
    message_id = vanish(fake, stored=False)
    assert (await refusal(client, request)).code == -32603
    assert fake.submitted == [message_id], "it is for the client to send it again"
    fake.manual = False
    assert await client.prompt(session_id, "Hello", key=KEY) == message_id


@rule("KEY-4")
@pytest.mark.parametrize("lasting", [False, True])
async def test_an_unreadable_store_is_read_again(
    world: World, client: Client, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayagain.agent.pump.READ_PAUSES", (0.0, 0.0))
    session_id, fake, request = await given(world, client)
    world.store.read_error = HistoryUnreadable()
    reads = world.store.reads
    if not lasting:
        original = world.runtime.message_ids

        async def heal(of: str) -> object:
            if world.store.reads == reads + 2:
                world.store.read_error = None
            return await original(of)

        monkeypatch.setattr(world.runtime, "message_ids", heal)
    message_id = vanish(fake, stored=True)
    if lasting:
        assert (await refusal(client, request)).data == {"reason": "history_unreadable"}
        world.store.read_error = None
        # A retry looks again before it is submitted.
        assert await client.prompt(session_id, "Hello", key=KEY) == message_id
    else:
        assert await client.answer(request) == {"messageId": message_id}
    assert fake.submitted == [message_id]


@rule("KEY-9", "KEY-12")
async def test_a_replay_that_began_before_does_not_vouch_for_what_it_did_not_read(world: World, client: Client) -> None:
    session_id = await world.stored(client, "zero")
    fake = world.fake(session_id)
    fake.manual = True
    request = await begin(client, session_id)
    await submitted(fake, 2)
    # The replay has read all that there is, and its client is not served for a while.
    before, stop = list(world.store.sessions[session_id]), Stop()

    async def history(session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        for entry in before:
            yield entry
        await stop()

    world.runtime.history = history  # type: ignore[method-assign]
    other = await world.connect()
    params = {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    replay = await other.begin("session/resume", params)
    await stop.reached.wait()
    look = fake.before_own = Stop()
    message_id = vanish(fake, stored=True)
    await look.reached.wait()
    stop.go()
    await other.answer(replay)
    await settle()
    assert not client.answered(request)
    look.go()
    assert await client.answer(request) == {"messageId": message_id}
    assert fake.submitted.count(message_id) == 1


@rule("KEY-4", "PRM-1")
@pytest.mark.parametrize("stored", [True, False])
async def test_a_session_that_breaks_looks_before_it_answers(world: World, client: Client, stored: bool) -> None:
    session_id, fake, request = await given(world, client)
    message_id = fake.submitted[-1]
    if stored:
        fake.persist(UserTurn(session_id, (message_id,), None))
    fake.fail(ValueError("a bug"))
    if stored:
        assert await client.answer(request) == {"messageId": message_id}
    else:
        assert (await refusal(client, request)).code == -32603


@rule("KEY-4")
async def test_a_session_that_breaks_over_an_unreadable_store_says_so(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayagain.agent.pump.READ_PAUSES", (0.0,))
    _, fake, request = await given(world, client)
    world.store.read_error = HistoryUnreadable()
    fake.fail(ValueError("a bug"))
    assert (await refusal(client, request)).data == {"reason": "history_unreadable"}


@rule("KEY-4")
async def test_a_session_that_breaks_over_a_store_that_hangs_says_so(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayagain.agent.pump.LAST_LOOK", 0.01)
    monkeypatch.setattr(world.runtime, "message_ids", Stop())
    _, fake, request = await given(world, client)
    fake.fail(ValueError("a bug"))
    assert (await refusal(client, request)).data == {"reason": "history_unreadable"}


@rule("KEY-4")
async def test_a_fault_nobody_foresaw_after_the_message_went_out(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)

    async def break_down(message_id: str) -> None:
        fake.persist(UserTurn(session_id, (message_id,), None))
        raise ValueError("a bug")

    fake.before_submit = break_down
    request = await begin(client, session_id)
    assert await client.answer(request) == {"messageId": derive_message_id(session_id, KEY)}


@rule("CAN-4", "KEY-6", "KEY-7", "PRM-1")
@pytest.mark.parametrize("how", ["$/cancel_request", "session/cancel", "session/close"])
@pytest.mark.parametrize("key", [KEY, "new"])
async def test_taken_back_before_the_history_was_read(how: str, key: str) -> None:
    store = FakeStore()
    async with serving(store) as world:
        client = await world.connect()
        session_id = await world.stored(client, "Hello", key=KEY)
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        stop = world.fake(session_id).before_own = Stop()
        request = await begin(client, session_id, key)
        await stop.reached.wait()
        close = None
        if how == "$/cancel_request":
            await client.cancel(request)
        elif how == "session/cancel":
            await client.notify("session/cancel", {"sessionId": session_id})
        else:
            close = await client.begin("session/close", {"sessionId": session_id})
        await settle()
        stop.go()
        if key == KEY:
            assert await client.answer(request) == {"messageId": derive_message_id(session_id, KEY)}
        else:
            assert (await refusal(client, request)).code == -32800
        if close is not None:
            await client.answer(close)
        assert world.fake(session_id).submitted == []


@rule("CAN-4", "KEY-8")
async def test_a_retry_of_what_was_taken_back_unread_is_served() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "one")
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        stop = world.fake(session_id).before_own = Stop()
        request = await begin(client, session_id)
        await stop.reached.wait()
        await client.cancel(request)
        retry = await begin(client, session_id)
        await settle()
        stop.go()
        assert (await refusal(client, request)).code == -32800
        message_id = derive_message_id(session_id, KEY)
        assert await client.answer(retry) == {"messageId": message_id}
        assert world.fake(session_id).submitted == [message_id]


@rule("KEY-4")
async def test_of_too_many_unread_prompts_those_that_are_stored_are_known() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "Hello", key=KEY)
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        fake = world.fake(session_id)
        fake.manual = True
        stop = fake.before_own = Stop()
        others = [await begin(client, session_id, f"other {n}") for n in range(MAX_UNSTORED + 1)]
        stored = await begin(client, session_id)
        await stop.reached.wait()
        stop.go()
        assert await client.answer(stored) == {"messageId": derive_message_id(session_id, KEY)}
        assert (await refusal(client, others[-1])).code == -32603
        assert not client.answered(others[-2])
