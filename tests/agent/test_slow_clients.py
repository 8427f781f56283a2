"""Clients that read slowly or not at all: what waits is bounded, and nobody is forgotten (I11)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from sayagain.connection import HIGH_WATER, READ_WATER, Connection
from sayagain.runtime.history import HistoryUpdate
from sayagain.testing.fake_runtime import FakeStore
from support_agent import Client, World, serving, settle, submitted
from support_wire import entities, prompt_params, text

START = {"replayFrom": {"type": "start"}}
BIG = "x" * 100_000
MANY = 100


def big_session(store: FakeStore) -> str:
    store.directories["big"] = "/"
    store.sessions["big"] = [
        HistoryUpdate("big", {"sessionUpdate": "agent_message", "messageId": f"m{n}", "content": [text(BIG)]})
        for n in range(MANY)
    ]
    return "big"


def message(n: int) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message", "messageId": f"big{n}", "content": [text(BIG)]}


def connections(world: World) -> list[Connection]:
    return list(world.agent._peers)


def stop_reading(client: Client) -> None:
    client.paused = anyio.Event()


def read_on(client: Client) -> None:
    assert client.paused is not None
    client.paused.set()


async def test_a_replay_waits_for_a_client_that_does_not_read_and_goes_on() -> None:
    async with serving() as world:
        session_id = big_session(world.store)
        client = await world.connect()
        read: list[int] = []

        async def count(index: int) -> None:
            read.append(index)

        world.store.before_entry = count
        stop_reading(client)
        request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
        await settle()
        assert len(read) < 20, "the history is read as the client reads"
        assert connections(world)[0]._queued < HIGH_WATER + 2 * len(BIG)
        read_on(client)
        await client.answer(request)
        assert list(entities(client.updates(session_id)).values()) == [BIG] * MANY
        assert len(client.updates(session_id, "replay_complete")) == 1


async def test_two_replays_to_one_slow_client_go_on() -> None:
    """Two producers wait for one client; both are woken."""
    async with serving() as world:
        session_id = big_session(world.store)
        world.store.sessions["second"] = [
            HistoryUpdate("second", entry.update)
            for entry in world.store.sessions[session_id]
            if isinstance(entry, HistoryUpdate)
        ]
        world.store.directories["second"] = "/"
        client = await world.connect()
        stop_reading(client)
        requests = [
            await client.begin("session/resume", {"sessionId": each, "cwd": "/", **START})
            for each in (session_id, "second")
        ]
        await settle()
        read_on(client)
        for request in requests:
            await client.answer(request)
        for each in (session_id, "second"):
            assert len(entities(client.updates(each))) == MANY


async def test_live_updates_slow_the_runtime_down() -> None:
    async with serving() as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        stop_reading(client)
        for n in range(MANY):
            fake.say(BIG, message_id=f"m{n}", stored=False)
        fake.finish()
        await settle()
        assert connections(world)[0]._queued < HIGH_WATER + 2 * len(BIG)
        read_on(client)
        await client.idle(session_id)
        assert len(entities(client.updates(session_id))) == MANY + 1


async def test_a_client_that_asks_without_reading_is_read_no_further() -> None:
    async with serving() as world:
        client = await world.connect()
        stop_reading(client)
        method = "x" * 200
        messages = [client.request_message(method, {"n": n}) for n in range(200)]
        sent = 0
        with anyio.move_on_after(5) as scope:
            async with anyio.create_task_group() as tasks:

                async def flood() -> None:
                    nonlocal sent
                    while True:
                        await client.post(*[m | {"id": f"{sent}-{m['id']}"} for m in messages])
                        sent += 1

                tasks.start_soon(flood)
                await settle()
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        assert connections(world)[0]._queued < 2 * READ_WATER
        read_on(client)


async def test_a_replay_to_a_slow_client_can_be_cancelled() -> None:
    async with serving() as world:
        session_id = big_session(world.store)
        client = await world.connect()
        stop_reading(client)
        request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
        await settle()
        await client.cancel(request)
        await settle()
        read_on(client)
        await client.until(lambda: client.answered(request))
        assert client.updates(session_id, "replay_complete") == []
        assert len(entities(client.updates(session_id))) < MANY


async def test_a_session_closes_though_another_client_does_not_read() -> None:
    async with serving() as world:
        client, stuck = await world.connect(), await world.connect()
        session_id, fake = await world.work(client)
        await stuck.resume(session_id)
        stop_reading(stuck)
        for n in range(MANY):
            fake.say(BIG, message_id=f"m{n}", stored=False)
        await settle()
        await client.request("session/close", {"sessionId": session_id})
        assert client.states(session_id)[-1] == "idle:cancelled"
        read_on(stuck)


async def test_a_stuck_client_does_not_keep_the_agent_alive() -> None:
    async with serving() as world:
        stuck = await world.connect()
        _, fake = await world.work(stuck)
        stop_reading(stuck)
        for n in range(MANY):
            fake.say(BIG, message_id=f"m{n}", stored=False)
        await settle()
    assert fake.closed


async def test_what_waits_behind_the_gate_stays_small() -> None:
    """Text deltas of one message are joined while they wait."""
    async with serving() as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        other = await world.connect()
        from support_agent import Stop

        stop = world.store.before_entry = Stop()
        request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
        await stop.reached.wait()
        for n in range(5000):
            fake.say(f"{n} ", message_id="m", stored=False)
        await settle()
        attachment = next(
            attachment
            for attachment in world.sessions._sessions[session_id].attachments.values()
            if not attachment.active
        )
        assert attachment.gate(session_id).waiting == 1
        stop.go()
        await other.answer(request)
        assert entities(other.updates(session_id))["m"] == "".join(f"{n} " for n in range(5000))
        fake.finish()
        fake.manual = False
        assert await other.request("session/prompt", prompt_params(session_id, "alive"))


async def test_ids_that_clients_make_up_leave_nothing_behind() -> None:
    async with serving() as world:
        client = await world.connect()
        messages = [client.request_message("session/resume", {"sessionId": f"x{n}", "cwd": "/"}) for n in range(300)]
        messages += [client.request_message("session/close", {"sessionId": f"x{n}"}) for n in range(300)]
        await client.post(*messages)
        await client.until(lambda: all(client.answered(message["id"]) for message in messages))
        assert len(world.sessions._locks) == 0
        assert len(connections(world)[0]._incoming) == 0


async def test_messages_that_a_slow_client_holds_up_are_not_told_twice_to_another() -> None:
    """They are stored and replayed long before their chunks are taken from the runtime."""
    async with serving() as world:
        stuck, other = await world.connect(), await world.connect()
        session_id, fake = await world.work(stuck)
        stop_reading(stuck)
        for n in range(20):
            fake.say(BIG, message_id=f"big{n}")
        await settle()
        for n in range(MANY):
            fake.say(f"text {n}", message_id=f"m{n}")
        await settle()
        await other.resume(session_id, replay=True)
        read_on(stuck)
        fake.finish()
        await other.idle(session_id)
        shown = entities(other.updates(session_id))
        assert {name: shown[name] for name in shown if name.startswith("m")} == {
            f"m{n}": f"text {n}" for n in range(MANY)
        }
        # What the next prompt's work says is new.
        request = await other.begin("session/prompt", prompt_params(session_id, "next"))
        await submitted(fake, 2)
        fake.run()
        fake.store(fake.submitted[-1])
        await other.answer(request)
        fake.say(" and more", message_id="m0", stored=False)
        fake.finish()
        await other.idle(session_id, 2)
        assert entities(other.updates(session_id))["m0"] == "text 0 and more"


async def test_messages_that_a_slow_client_held_up_are_not_told_twice_to_itself() -> None:
    async with serving() as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        stop_reading(client)
        for n in range(20):
            fake.say(BIG, message_id=f"big{n}")
        for n in range(MANY):
            fake.say(f"text {n}", message_id=f"m{n}")
        fake.finish()
        await settle()
        request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
        await settle()
        read_on(client)
        await client.answer(request)
        await client.until(lambda: client.states(session_id)[-1:] == ["idle:end_turn"])
        shown = entities(client.updates(session_id))
        assert [name for name, said in shown.items() if name.startswith("m") and said != f"text {name[1:]}"] == []


async def test_a_key_is_looked_up_though_another_clients_replay_stands_still() -> None:
    store = FakeStore()
    async with serving(store) as world:
        client = await world.connect()
        session_id = await world.stored(client, "one", key="k")
    store.sessions[session_id] += [
        HistoryUpdate(session_id, {"sessionUpdate": "agent_message", "messageId": f"b{n}", "content": [text(BIG)]})
        for n in range(MANY)
    ]
    async with serving(store) as world:
        client, stuck = await world.connect(), await world.connect()
        await client.resume(session_id)
        stop_reading(stuck)
        await stuck.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
        await settle()
        request = await client.begin("session/prompt", prompt_params(session_id, "one", "k"))
        await settle()
        assert client.answered(request)
        read_on(stuck)


@pytest.mark.parametrize("replaying", [False, True])
async def test_a_client_that_others_wait_for_loses_its_connection(
    replaying: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as world:
        client, stuck = await world.connect(), await world.connect()
        session_id, fake = await world.work(client)
        if replaying:
            for n in range(MANY):
                fake.persist(HistoryUpdate(session_id, message(n)))
        else:
            await stuck.resume(session_id)
        stop_reading(stuck)
        monkeypatch.setattr("sayagain.agent.session.STALL", 0.01)
        if replaying:
            await stuck.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
            await settle()
            await client.resume(session_id, replay=True)
        for n in range(MANY):
            fake.say(BIG, message_id=f"m{n}", stored=False)
        fake.finish()
        await client.idle(session_id)
        await stuck.over.wait()
        assert len(connections(world)) == 1
        assert len(world.sessions._sessions[session_id].attachments) == 1
        read_on(stuck)


async def test_a_client_that_is_alone_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayagain.agent.session.STALL", 0.01)
    async with serving() as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        stop_reading(client)
        for n in range(MANY):
            fake.say(BIG, message_id=f"m{n}", stored=False)
        fake.finish()
        with anyio.move_on_after(0.1):
            await client.over.wait()
        assert not client.over.is_set()
        read_on(client)
        await client.idle(session_id)
