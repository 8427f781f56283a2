"""Withdrawing prompts and cancelling work (KEY-6, KEY-7, CAN-*)."""

from __future__ import annotations

import anyio
import pytest

from sayagain.identity import derive_message_id
from sayagain.runtime.events import Foreground
from support_agent import Client, Stop, World, code_of, settle, submitted
from support_rules import rule
from support_wire import WireError, prompt_params

KEY = "cancel-key"


async def refusal(client: Client, request_id: int) -> int:
    with pytest.raises(WireError) as caught:
        await client.answer(request_id)
    return caught.value.code


async def is_unused(world: World, client: Client, session_id: str) -> None:
    """Nothing ran under the key, and the next well-formed prompt with it works (I12, I13)."""
    fake = world.fake(session_id)
    message_id = derive_message_id(session_id, KEY)
    assert message_id not in world.store.ids(session_id)
    fake.manual = False
    assert await client.prompt(session_id, "again", KEY) == message_id
    assert world.store.ids(session_id).count(message_id) == 1


@rule("KEY-6", "CAN-4", "CAN-3")
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1), (1, 0)])
async def test_cancelling_any_request_withdraws_a_held_prompt_for_all(
    world: World, client: Client, which: tuple[int, ...]
) -> None:
    session_id, fake = await world.work(client)
    requests = [await client.begin("session/prompt", prompt_params(session_id, "held", KEY)) for _ in range(2)]
    await client.post(*(client.cancel_message(requests[n]) for n in which))
    assert [await refusal(client, request) for request in requests] == [-32800, -32800]
    fake.finish()
    await settle()
    assert len(fake.submitted) == 1, "a withdrawn prompt never runs"
    await is_unused(world, client, session_id)


@rule("KEY-6")
async def test_cancelling_from_another_connection(world: World, client: Client) -> None:
    session_id, _ = await world.work(client)
    other = await world.connect()
    await other.resume(session_id)
    first = await client.begin("session/prompt", prompt_params(session_id, "held", KEY))
    second = await other.begin("session/prompt", prompt_params(session_id, "held", KEY))
    await settle()
    await other.cancel(second)
    assert await refusal(client, first) == await refusal(other, second) == -32800


@rule("KEY-6", "CAN-4")
async def test_cancelling_a_submitted_prompt_that_the_runtime_gives_back(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    requests = [await client.begin("session/prompt", prompt_params(session_id, "x", KEY)) for _ in range(2)]
    await submitted(fake)
    await client.cancel(requests[1])
    assert [await refusal(client, request) for request in requests] == [-32800, -32800]
    await is_unused(world, client, session_id)


@rule("CAN-4")
async def test_cancelling_a_submitted_prompt_that_gets_stored_all_the_same(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    fake.can_withdraw = False
    request = await client.begin("session/prompt", prompt_params(session_id, "x", KEY))
    await submitted(fake)
    await client.cancel(request)
    await settle()
    assert not client.answered(request)
    fake.run()
    fake.store(fake.submitted[0])
    assert await client.answer(request) == {"messageId": fake.submitted[0]}


@rule("CAN-4")
@pytest.mark.parametrize("place", ["own", "submit"])
async def test_a_prompt_withdrawn_on_its_way_to_the_runtime_never_runs(
    world: World, client: Client, place: str
) -> None:
    session_id = await client.new()
    fake, stop = world.fake(session_id), Stop()
    if place == "own":
        fake.before_own = stop
    else:

        async def before_submit(_: str) -> None:
            await stop()

        fake.before_submit = before_submit
    request = await client.begin("session/prompt", prompt_params(session_id, "x", KEY))
    await stop.reached.wait()
    await client.cancel(request)
    assert await refusal(client, request) == -32800
    stop.go()
    await settle()
    assert (fake.submitted, world.store.ids(session_id)) == ([], [])
    await is_unused(world, client, session_id)


@rule("CAN-4")
async def test_withdrawn_while_the_history_is_read(world: World, client: Client) -> None:
    session_id = await world.stored(client, "first")
    fork = (await client.request("session/fork", {"sessionId": session_id, "cwd": "/"}))["sessionId"]
    fake, stop = world.fake(fork), Stop()
    fake.before_own = stop
    requests = [await client.begin("session/prompt", prompt_params(fork, "x", KEY)) for _ in range(2)]
    await stop.reached.wait()
    await client.cancel(requests[0])
    await settle()
    assert not any(map(client.answered, requests)), "nobody knows yet whether it is stored"
    stop.go()
    assert [await refusal(client, request) for request in requests] == [-32800, -32800]
    assert fake.submitted == []
    await is_unused(world, client, fork)


@rule("CAN-4")
async def test_prompt_and_cancel_in_one_write_and_the_other_way_round(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    message = client.prompt_message(session_id, "x", KEY)
    await client.post(message, client.cancel_message(message["id"]))
    assert await refusal(client, message["id"]) == -32800
    late = client.prompt_message(session_id, "x", KEY)
    await client.post(client.cancel_message(late["id"]), late)
    fake.finish()
    await submitted(fake, 2)
    fake.store(fake.submitted[1])
    assert await client.answer(late["id"]) == {"messageId": fake.submitted[1]}


@rule("CAN-4", "KEY-6")
async def test_cancelling_what_is_inserted_changes_nothing(world: World, client: Client) -> None:
    session_id, fake = await world.work(client, key=KEY)
    request = await client.begin("session/prompt", prompt_params(session_id, "work", KEY))
    await client.cancel(request)
    assert await client.answer(request) == {"messageId": fake.submitted[0]}
    await settle()
    assert fake.interrupts == 0
    assert client.states(session_id) == ["running"]


@rule("CAN-4")
async def test_cancelling_one_prompt_leaves_the_others(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    first = await client.begin("session/prompt", prompt_params(session_id, "one", "key one"))
    second = await client.begin("session/prompt", prompt_params(session_id, "two", "key two"))
    await client.cancel(first)
    assert await refusal(client, first) == -32800
    fake.finish()
    await submitted(fake, 2)
    assert fake.submitted[1] == derive_message_id(session_id, "key two")
    fake.store(fake.submitted[1])
    await client.answer(second)


@rule("CAN-5")
@pytest.mark.parametrize("request_id", [12345, "never", None, 1.5, True, [], {}])
async def test_cancelling_an_unknown_id_is_ignored(world: World, client: Client, request_id: object) -> None:
    session_id = await client.new()
    await client.cancel(request_id)
    await client.notify("$/cancel_request", {})
    await client.prompt(session_id, "x")


@rule("CAN-5")
async def test_a_cancelled_request_is_answered_exactly_once(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    message = client.prompt_message(session_id, "x", KEY)
    await client.post(message, *[client.cancel_message(message["id"])] * 10)
    assert await refusal(client, message["id"]) == -32800
    fake.finish()
    await settle()
    assert sum(line.get("id") == message["id"] and "method" not in line for line in client.lines) == 1


@rule("CAN-1", "CAN-3", "KEY-7")
async def test_session_cancel_covers_work_and_held_prompts(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    held = [await client.begin("session/prompt", prompt_params(session_id, f"{n}", f"k{n}")) for n in range(3)]
    await client.notify("session/cancel", {"sessionId": session_id})
    assert [await refusal(client, request) for request in held] == [-32800] * 3
    await fake.until(lambda: fake.interrupts == 1)
    fake.finish("cancelled")
    await client.idle(session_id)
    assert client.states(session_id) == ["running", "idle:cancelled"]
    assert len(fake.submitted) == 1


@rule("CAN-1", "CAN-4")
async def test_prompt_then_session_cancel_in_one_write(world: World, client: Client) -> None:
    session_id = await client.new()
    message = client.prompt_message(session_id, "x", KEY)
    await client.post(message, {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}})
    assert await refusal(client, message["id"]) == -32800
    await is_unused(world, client, session_id)


@rule("CAN-1")
async def test_session_cancel_between_insertion_and_running_stops_the_work(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    request = await client.begin("session/prompt", prompt_params(session_id, "x"))
    await submitted(fake)
    fake.store(fake.submitted[0])
    await client.answer(request)
    await client.notify("session/cancel", {"sessionId": session_id})
    await fake.until(lambda: fake.interrupts == 1)


@rule("CAN-3")
async def test_session_cancel_of_a_submitted_prompt_answers_what_became_of_it(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    fake.can_withdraw = False
    request = await client.begin("session/prompt", prompt_params(session_id, "x"))
    await submitted(fake)
    await client.notify("session/cancel", {"sessionId": session_id})
    await fake.until(lambda: fake.interrupts == 1)
    fake.run()
    fake.store(fake.submitted[0])
    assert await client.answer(request) == {"messageId": fake.submitted[0]}
    fake.finish("cancelled")
    await client.idle(session_id)
    assert client.states(session_id)[-1] == "idle:cancelled"


@rule("CAN-2", "UPD-4")
async def test_one_idle_for_each_piece_of_work(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    await client.notify("session/cancel", {"sessionId": session_id})
    await fake.until(lambda: fake.interrupts == 1)
    fake.finish("cancelled")
    fake.finish("cancelled")
    fake.manual = False
    await client.prompt(session_id, "next")
    await client.idle(session_id, 2)
    fake.finish()
    await settle()
    assert client.states(session_id) == ["running", "idle:cancelled", "running", "idle:end_turn"]


@rule("CAN-8", "CAN-2")
async def test_idle_comes_from_the_runtime_not_from_the_interrupt(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    await client.notify("session/cancel", {"sessionId": session_id})
    await fake.until(lambda: fake.interrupts == 1)
    await settle()
    assert client.states(session_id) == ["running"]
    fake.say("last words")
    fake.finish("cancelled")
    await client.idle(session_id)
    kinds = [update["sessionUpdate"] for update in client.updates(session_id)]
    assert kinds[-2:] == ["agent_message_chunk", "state_update"]


@rule("CAN-7", "CAN-1")
async def test_a_cancel_that_comes_too_late_rewrites_nothing(world: World, client: Client) -> None:
    session_id = await world.stored(client, "x")
    await client.notify("session/cancel", {"sessionId": session_id})
    await settle()
    assert world.fake(session_id).interrupts == 0
    assert client.states(session_id) == ["running", "idle:end_turn"]


@rule("CAN-1")
async def test_session_cancel_of_unknown_sessions_is_dropped(world: World, client: Client) -> None:
    session_id, _ = await world.work(client)
    other = await world.connect()
    for params in ({"sessionId": "../../etc"}, {"sessionId": session_id}, {}, {"sessionId": 5}):
        await other.notify("session/cancel", params)
    assert await code_of(other, "session/list", {}) == 0
    assert world.fake(session_id).interrupts == 0


@rule("CAN-5", "RES-15", "RPL-3")
@pytest.mark.parametrize("record", [0, 1, 3])
async def test_a_resume_is_cancelled_at_a_record(world: World, client: Client, record: int) -> None:
    session_id = await world.stored(client, "one", "two")
    stop = world.store.before_entry = Stop(at=record)
    other = await world.connect()
    request = await other.begin(
        "session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    )
    await stop.reached.wait()
    await other.cancel(request)
    assert await refusal(other, request) == -32800
    assert other.updates(session_id, "replay_complete") == []
    assert await code_of(other, "session/prompt", prompt_params(session_id, "x")) == -32002
    world.store.before_entry = None
    await other.resume(session_id, replay=True)
    assert len(other.updates(session_id, "replay_complete")) == 1


@rule("RES-15", "CAN-5")
async def test_a_resume_is_cancelled_in_the_write_that_asks_for_it(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    params = {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    message = other.request_message("session/resume", params)
    await other.post(message, other.cancel_message(message["id"]))
    assert await refusal(other, message["id"]) == -32800
    assert not stop.reached.is_set()


async def test_a_cancelled_replay_of_an_active_session_keeps_what_waited(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    params = {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    request = await client.begin("session/resume", params)
    await stop.reached.wait()
    before = len(client.lines)
    fake.say("meanwhile")
    fake.finish()
    await settle()
    assert len(client.lines) == before
    await client.cancel(request)
    assert await refusal(client, request) == -32800
    await client.idle(session_id)
    answered = client.answer_index(request)
    assert client.update_index(session_id, "agent_message_chunk") > answered
    assert client.updates(session_id, "replay_complete") == []
    world.store.before_entry = None
    fake.manual = False
    await client.prompt(session_id, "still active")


async def test_an_agent_ends_with_a_prompt_on_its_way(world: World, client: Client) -> None:
    session_id = await client.new()
    fake, stop = world.fake(session_id), Stop()
    fake.before_own = stop
    request = await client.begin("session/prompt", prompt_params(session_id, "x", KEY))
    await stop.reached.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.request, "session/close", {"sessionId": session_id})
        assert await refusal(client, request) == -32800
        stop.go()
    assert world.store.ids(session_id) == []


@rule("CAN-1", "CAN-4")
async def test_a_cancel_stops_what_the_runtime_does_besides_the_withdrawn_prompt(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    request = await client.begin("session/prompt", prompt_params(session_id, "x", KEY))
    await submitted(fake)
    # A turn of the runtime's own.
    fake.run()
    await client.until(lambda: client.states(session_id))
    await client.notify("session/cancel", {"sessionId": session_id})
    assert await refusal(client, request) == -32800
    await fake.until(lambda: fake.interrupts == 1)
    fake.finish("cancelled")
    await client.idle(session_id)
    await is_unused(world, client, session_id)


@rule("CAN-4", "PRM-5")
async def test_after_a_withdrawal_the_next_prompt_waits_for_the_work_that_goes_on(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    first = await client.begin("session/prompt", prompt_params(session_id, "A", "a"))
    await submitted(fake)
    fake.run()
    second = await client.begin("session/prompt", prompt_params(session_id, "B", "b"))
    await client.until(lambda: client.states(session_id))
    await client.cancel(first)
    assert await refusal(client, first) == -32800
    await settle()
    assert len(fake.submitted) == 1
    fake.finish()
    await submitted(fake, 2)
    fake.store(fake.submitted[-1])
    assert await client.answer(second) == {"messageId": fake.submitted[-1]}


@rule("SUB-7", "CAN-1")
@pytest.mark.parametrize("kind", ["subagent", "terminal"])
async def test_behind_an_idle_session_subagents_are_stopped_and_nothing_else(
    world: World, client: Client, kind: str
) -> None:
    session_id, fake = await world.work(client)
    child_id = fake.spawn("helper")
    items = {"subagent": {"type": kind, "sessionId": child_id}, "terminal": {"type": kind, "terminalId": "t"}}
    fake.emit(Foreground(session_id, "idle", stop_reason="end_turn", background=[items[kind]]))
    await client.idle(session_id)
    await client.notify("session/cancel", {"sessionId": session_id})
    await settle()
    assert fake.interrupts == (1 if kind == "subagent" else 0)
