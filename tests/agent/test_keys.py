"""Keyed prompts: inserted at most once, whatever shape the requests come in (KEY-*, PRM-*, faults: request shapes)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sayagain.errors import AuthRequired, HistoryUnreadable, PromptRefused, SessionInUse
from sayagain.identity import derive_message_id
from sayagain.testing.fake_runtime import FakeStore
from support_agent import Client, Stop, World, code_of, serving, settle, submitted
from support_rules import rule
from support_wire import WireError, entities, prompt_params, text

KEY = "3f0c4c1e-key"


@rule("KEY-2", "KEY-11", "PRM-1", "PRM-2")
async def test_the_same_key_after_the_answer(world: World, client: Client) -> None:
    session_id = await client.new()
    message_id = await client.prompt(session_id, "hello", KEY)
    assert message_id == derive_message_id(session_id, KEY)
    await client.idle(session_id)
    answer = await client.request("session/prompt", prompt_params(session_id, "hello", KEY))
    assert answer == {"messageId": message_id}
    await settle()
    assert world.store.ids(session_id) == [message_id]
    assert client.states(session_id) == ["running", "idle:end_turn"]
    assert [u["messageId"] for u in client.updates(session_id, "user_message")] == [message_id]


@rule("KEY-3", "PRM-1")
async def test_the_same_key_before_the_answer(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    first = await client.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    await submitted(fake)
    second = await client.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    await settle()
    assert not client.answered(first)
    assert not client.answered(second)
    fake.run()
    await settle()
    assert not client.answered(first), "running is no acknowledgement"
    fake.store(fake.submitted[0])
    assert await client.answer(first) == await client.answer(second)
    assert abs(client.answer_index(first) - client.answer_index(second)) == 1
    assert len(fake.submitted) == 1


@rule("KEY-2", "KEY-3", "KEY-13")
async def test_the_same_key_on_two_connections_at_once(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    other = await world.connect()
    await other.resume(session_id)
    first = await client.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    second = await other.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    await submitted(fake)
    await settle()
    fake.store(fake.submitted[0])
    assert await client.answer(first) == await other.answer(second)
    assert world.store.ids(session_id) == fake.submitted


@rule("KEY-2", "KEY-3")
@pytest.mark.parametrize("shape", ["batch", "write"])
async def test_the_same_key_twice_at_once(world: World, client: Client, shape: str) -> None:
    session_id = await client.new()
    messages = [client.prompt_message(session_id, "hello", KEY) for _ in range(5)]
    await (client.batch if shape == "batch" else client.post)(*messages)
    answers = [await client.answer(message["id"]) for message in messages]
    assert answers == [{"messageId": derive_message_id(session_id, KEY)}] * 5
    await client.idle(session_id)
    assert len(world.store.ids(session_id)) == 1
    assert client.states(session_id) == ["running", "idle:end_turn"]


@rule("KEY-2", "KEY-9")
async def test_the_same_key_twice_in_one_write_before_any_history_was_read() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "first")
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        messages = [client.prompt_message(session_id, "hello", KEY) for _ in range(3)]
        await client.post(*messages)
        answers = [await client.answer(message["id"]) for message in messages]
        assert answers == [answers[0]] * 3
        assert store.ids(session_id).count(answers[0]["messageId"]) == 1


@rule("KEY-9", "KEY-12", "RES-5", "KEY-2")
@pytest.mark.parametrize("replay", [False, True])
async def test_the_key_is_known_after_a_restart(replay: bool) -> None:
    store = FakeStore()
    async with serving(store) as world:
        client = await world.connect()
        session_id = await world.stored(client, "hello", "more", key=KEY)
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id, replay=replay)
        assert await client.prompt(session_id, "hello", KEY) == derive_message_id(session_id, KEY)
        await client.prompt(session_id, "another", "other key")
        await client.idle(session_id)
        assert len(store.ids(session_id)) == 3
        assert store.reads == 1, "the replay or the first keyed prompt does the only read"


@rule("KEY-9", "KEY-13")
async def test_the_key_is_known_on_a_second_connection(world: World, client: Client) -> None:
    session_id = await client.new()
    message_id = await client.prompt(session_id, "hello", KEY)
    await client.close()
    other = await world.connect()
    await other.resume(session_id)
    assert await other.prompt(session_id, "hello", KEY) == message_id
    assert world.store.ids(session_id) == [message_id]


@rule("KEY-8")
async def test_another_session_and_a_fork_know_nothing_of_the_key(world: World, client: Client) -> None:
    session_id = await world.stored(client, "hello", key=KEY)
    other = await client.new()
    fork = (await client.request("session/fork", {"sessionId": session_id, "cwd": "/"}))["sessionId"]
    ids = {await client.prompt(each, "hello", KEY) for each in (session_id, other, fork)}
    assert len(ids) == 3
    assert world.store.ids(session_id) == [derive_message_id(session_id, KEY)]
    assert world.store.ids(fork)[-1] == derive_message_id(fork, KEY)


@rule("KEY-1")
@pytest.mark.parametrize(
    "key",
    ["", "k" * 256, "\U0001f511" * 256, "\ud800", 7, 1.5, True, [], {}, {"key": "k"}],
    ids=["empty", "256", "256 wide", "lone surrogate", "int", "float", "bool", "array", "object", "object with a key"],
)
async def test_a_malformed_key_is_an_error(world: World, client: Client, key: object) -> None:
    session_id = await client.new()
    with pytest.raises(WireError) as caught:
        await client.request("session/prompt", {**prompt_params(session_id, "hello"), "idempotencyKey": key})
    assert caught.value.code == -32602
    assert caught.value.data["field"] == "idempotencyKey"
    await settle()
    assert world.store.ids(session_id) == []


@rule("KEY-1", "RPC-6")
@pytest.mark.parametrize("params", [{}, {"idempotencyKey": None}])
async def test_null_and_absent_mean_no_key(world: World, client: Client, params: dict[str, Any]) -> None:
    session_id = await client.new()
    ids = [
        (await client.request("session/prompt", {**prompt_params(session_id, "hello"), **params}))["messageId"]
        for _ in range(2)
    ]
    assert ids[0] != ids[1]
    await client.idle(session_id, 2)
    assert world.store.ids(session_id) == ids


@rule("KEY-1")
@pytest.mark.parametrize("key", ["\U0001f511" * 255, "\0", "A", " ", "../x", "é"])
async def test_any_string_of_1_to_255_characters_is_a_key(world: World, client: Client, key: str) -> None:
    session_id = await client.new()
    assert await client.prompt(session_id, "hello", key) == await client.prompt(session_id, "hello", key)
    await client.idle(session_id)
    assert len(world.store.ids(session_id)) == 1


@rule("KEY-1")
async def test_keys_are_opaque_and_case_sensitive(world: World, client: Client) -> None:
    session_id = await client.new()
    keys = ["key", "Key", "key ", "é", "e\u0301"]
    assert len({await client.prompt(session_id, "hello", key) for key in keys}) == len(keys)


@rule("KEY-5")
async def test_another_prompt_under_a_recorded_key(world: World, client: Client) -> None:
    session_id = await client.new()
    message_id = await client.prompt(session_id, "hello", KEY)
    assert await code_of(client, "session/prompt", prompt_params(session_id, "other", KEY)) == -32602
    assert await client.prompt(session_id, "hello", KEY) == message_id, "the key stays recorded"
    assert world.store.ids(session_id) == [message_id]


@rule("KEY-5")
async def test_another_prompt_under_a_pending_key(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    held = await client.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    assert await code_of(client, "session/prompt", prompt_params(session_id, "other", KEY)) == -32602
    fake.finish()
    await submitted(fake, 2)
    fake.store(fake.submitted[1])
    assert await client.answer(held) == {"messageId": derive_message_id(session_id, KEY)}


@rule("KEY-5")
async def test_another_prompt_under_the_key_after_a_restart_is_answered_as_a_retry() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "hello", key=KEY)
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        assert await client.prompt(session_id, "other", KEY) == derive_message_id(session_id, KEY)
        assert len(store.ids(session_id)) == 1


@rule("KEY-4", "PRM-1")
async def test_a_refused_prompt_leaves_its_key_unused(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    requests = [await client.begin("session/prompt", prompt_params(session_id, "hello", KEY)) for _ in range(2)]
    await submitted(fake)
    await settle()
    fake.refuse(fake.submitted[0], PromptRefused("a hook said no"))
    for request in requests:
        with pytest.raises(WireError, match="a hook said no"):
            await client.answer(request)
    retry = await client.begin("session/prompt", prompt_params(session_id, "changed", KEY))
    await submitted(fake, 2)
    fake.store(fake.submitted[1])
    assert await client.answer(retry) == {"messageId": derive_message_id(session_id, KEY)}
    assert client.states(session_id) == [], "refusing a prompt is no work"


@rule("KEY-4", "NEW-7")
async def test_what_the_runtime_raises_leaves_the_key_unused(world: World, client: Client) -> None:
    session_id = await client.new()
    fake = world.fake(session_id)
    fake.submit_error = AuthRequired()
    assert await code_of(client, "session/prompt", prompt_params(session_id, "hello", KEY)) == -32000
    fake.submit_error = None
    await client.prompt(session_id, "hello", KEY)
    assert len(world.store.ids(session_id)) == 1


@rule("KEY-4")
async def test_an_unexpected_error_of_the_runtime_is_answered_without_its_text(world: World, client: Client) -> None:
    session_id = await client.new()

    async def explode(_: str) -> None:
        raise RuntimeError("secret")

    world.fake(session_id).before_submit = explode
    with pytest.raises(WireError) as caught:
        await client.prompt(session_id, "hello", KEY)
    assert caught.value.code == -32603
    assert "secret" not in caught.value.message
    world.fake(session_id).before_submit = None
    await client.prompt(session_id, "hello", KEY)


@rule("KEY-12", "KEY-4")
async def test_an_unreadable_history_is_an_error_and_never_an_empty_set() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "hello", key=KEY)
    async with serving(store) as world:
        client = await world.connect()
        await client.resume(session_id)
        store.read_error = HistoryUnreadable()
        with pytest.raises(WireError) as caught:
            await client.prompt(session_id, "hello", KEY)
        assert caught.value.code == -32603
        assert caught.value.data == {"reason": "history_unreadable"}
        assert world.fake(session_id).submitted == []
        store.read_error = None
        assert await client.prompt(session_id, "hello", KEY) == derive_message_id(session_id, KEY)
        assert len(store.ids(session_id)) == 1


@rule("KEY-12")
async def test_a_session_in_use_elsewhere_takes_no_prompt_but_is_replayed() -> None:
    store = FakeStore()
    async with serving(store) as world, serving(store) as elsewhere:
        owner = await elsewhere.connect()
        session_id = await elsewhere.stored(owner, "hello", key=KEY)
        client = await world.connect()
        await client.resume(session_id, replay=True)
        assert list(entities(client.updates(session_id)).values()) == ["hello", "answer to hello"]
        for key in ("an absent key", None):
            with pytest.raises(WireError) as caught:
                await client.prompt(session_id, "hello", key)
            assert caught.value.data == {"reason": SessionInUse.reason}
        await owner.prompt(session_id, "more", "second key")
        await owner.idle(session_id, 2)
        await owner.request("session/close", {"sessionId": session_id})
        # What was read while another process owned the session proves nothing.
        assert await client.prompt(session_id, "more", "second key") == derive_message_id(session_id, "second key")
        assert len(store.ids(session_id)) == 2


@rule("RES-14", "PRM-4")
async def test_a_retry_before_the_resume_is_refused_and_harmless() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "hello", key=KEY)
    async with serving(store) as world:
        client = await world.connect()
        with pytest.raises(WireError) as caught:
            await client.prompt(session_id, "hello", KEY)
        assert (caught.value.code, caught.value.data) == (-32002, {"sessionId": session_id})
        await client.resume(session_id)
        assert await client.prompt(session_id, "hello", KEY) == derive_message_id(session_id, KEY)


@rule("KEY-10", "LST-6")
async def test_keys_are_never_echoed_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = FakeStore()
    clients = []
    for _ in range(2):
        async with serving(store) as world:
            client = await world.connect()
            clients.append(client)
            if len(clients) == 1:
                session_id = await client.new()
            else:
                await client.resume(session_id, replay=True)
            await client.prompt(session_id, "hello", KEY)
            await client.request("session/list", {})
            await code_of(client, "session/prompt", prompt_params(session_id, "other", KEY))
            await code_of(client, "session/prompt", prompt_params(session_id, "other", KEY * 100))
            await code_of(client, "session/prompt", prompt_params("unknown", "other", KEY))
            request = await client.begin("session/prompt", prompt_params(session_id, "late", KEY + "2"))
            await client.cancel(request)
            await settle()
    assert KEY not in str([client.lines for client in clients])
    assert KEY not in caplog.text


@rule("PRM-3", "INI-7")
@pytest.mark.parametrize(
    "block",
    [{"type": "audio", "data": "", "mimeType": "audio/wav"}, {"type": "_custom"}, {"type": "hologram"}],
)
async def test_an_unsupported_block_is_refused_and_the_key_unused(
    world: World, client: Client, block: dict[str, Any]
) -> None:
    session_id = await client.new()
    params = {"sessionId": session_id, "prompt": [text("hello"), block], "idempotencyKey": KEY}
    with pytest.raises(WireError) as caught:
        await client.request("session/prompt", params)
    assert (caught.value.code, caught.value.data["field"]) == (-32602, "prompt.1.type")
    assert await code_of(client, "session/prompt", {"sessionId": session_id, "prompt": []}) == -32602
    assert world.store.ids(session_id) == []
    await client.prompt(session_id, "hello", KEY)


@rule("PRM-5", "PRM-6")
async def test_a_prompt_during_work_is_held_and_its_response_tells_the_truth(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    held = [await client.begin("session/prompt", prompt_params(session_id, f"held {n}")) for n in range(3)]
    await settle()
    assert len(fake.submitted) == 1
    for count, request in enumerate(held, 2):
        fake.finish()
        await submitted(fake, count)
        await settle()
        assert len(fake.submitted) == count, "one unstored prompt at the runtime at most"
        assert not client.answered(request)
        fake.run()
        fake.store(fake.submitted[-1])
        await client.answer(request)
    shown = [u["content"][0]["text"] for u in client.updates(session_id, "user_message")]
    assert shown == ["work", "held 0", "held 1", "held 2"]


@rule("PRM-2")
async def test_a_lost_answer_leaves_the_message_visible_under_its_id(world: World, client: Client) -> None:
    session_id = await client.new()
    stop = Stop()
    world.fake(session_id).before_submit = stop
    await client.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    await stop.reached.wait()
    await client.close()
    stop.go()
    await settle()
    other = await world.connect()
    await other.resume(session_id, replay=True)
    assert await other.prompt(session_id, "hello", KEY) in entities(other.updates(session_id))
    assert len(world.store.ids(session_id)) == 1


async def test_a_flood_of_prompts_is_bounded(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    messages = [client.prompt_message(session_id, "x", f"key {n}") for n in range(300)]
    await client.post(*messages)
    refused = [await code_of_answer(client, message["id"]) for message in messages[256:]]
    assert set(refused) == {-32603}
    await client.notify("session/cancel", {"sessionId": session_id})
    assert {await code_of_answer(client, message["id"]) for message in messages[:256]} == {-32800}
    fake.finish("cancelled")
    fake.manual = False
    await client.prompt(session_id, "x", "key 299")


async def code_of_answer(client: Client, request_id: int) -> int:
    try:
        await client.answer(request_id)
    except WireError as error:
        return error.code
    return 0


@rule("PRM-5", "UPD-6")
async def test_a_prompt_is_held_behind_work_that_nobody_prompted(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    fake.run()
    await client.until(lambda: client.states(session_id) == ["running"])
    request = await client.begin("session/prompt", prompt_params(session_id, "hello", KEY))
    await settle()
    assert fake.submitted == []
    fake.finish()
    await submitted(fake)
    fake.store(fake.submitted[0])
    await client.answer(request)


@rule("KEY-5", "RPC-6")
async def test_null_and_absent_fields_are_the_same_prompt(world: World, client: Client) -> None:
    session_id = await client.new()
    message_id = await client.prompt(session_id, "hello", KEY)
    block = {"type": "text", "text": "hello", "annotations": None, "_meta": {"trace": "1"}}
    params = {"sessionId": session_id, "prompt": [block], "idempotencyKey": KEY}
    assert await client.request("session/prompt", params) == {"messageId": message_id}
