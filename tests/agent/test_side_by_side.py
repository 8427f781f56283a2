"""Several requests about one session at once: resumes, closes, disconnects (faults: replay, request shapes)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from sayagain.errors import HistoryUnreadable, SessionNotFound
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession, FakeStore
from support_agent import Client, Stop, World, code_of, serving, settle, updates_before
from support_rules import rule
from support_wire import WireError, entities, prompt_params


def resume(session_id: str, *, replay: bool = True) -> dict[str, Any]:
    params: dict[str, Any] = {"sessionId": session_id, "cwd": "/"}
    return {**params, "replayFrom": {"type": "start"}} if replay else params


def whole(client: Client, session_id: str) -> bool:
    return list(entities(client.updates(session_id)).values()) == ["one", "answer to one"]


@rule("RPL-1", "RES-13")
async def test_two_replays_on_one_connection_follow_each_other(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    first = other.request_message("session/resume", resume(session_id))
    second = other.request_message("session/resume", resume(session_id))
    await other.post(first, second)
    await stop.reached.wait()
    stop.go()
    await other.answer(first["id"])
    await other.answer(second["id"])
    kinds = [u["sessionUpdate"] for u in other.updates(session_id)]
    assert kinds == ["user_message", "agent_message", "replay_complete", "state_update"] * 2
    await other.prompt(session_id, "works")


@rule("RPL-3", "RES-15")
@pytest.mark.parametrize("cancelled", [0, 1])
@pytest.mark.parametrize("attached", [False, True])
async def test_cancelling_one_of_two_replays_leaves_the_other_whole(
    world: World, client: Client, cancelled: int, attached: bool
) -> None:
    session_id = await world.stored(client, "one")
    other = await world.connect()
    if attached:
        await other.resume(session_id)
    begun = len(other.lines)
    stop = world.store.before_entry = Stop(at=1)
    requests = [await other.begin("session/resume", resume(session_id)) for _ in range(2)]
    await stop.reached.wait()
    await other.cancel(requests[cancelled])
    with pytest.raises(WireError, match="cancelled"):
        await other.answer(requests[cancelled])
    world.store.before_entry = None
    stop.go()
    await other.answer(requests[1 - cancelled])
    assert len(other.updates(session_id, "replay_complete")) == 1
    assert whole(other, session_id)
    assert set(updates_before(other, session_id, start=begun)) == {"user_message", "agent_message"}
    await other.prompt(session_id, "works")


@rule("RPL-4")
async def test_a_resume_without_replay_waits_for_the_replay_before_it(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop(at=1)
    other = await world.connect()
    first = await other.begin("session/resume", resume(session_id))
    await stop.reached.wait()
    second = await other.begin("session/resume", resume(session_id, replay=False))
    await settle()
    assert other.updates(session_id, "state_update") == []
    stop.go()
    await other.answer(first)
    await other.answer(second)
    assert set(updates_before(other, session_id)) == {"user_message", "agent_message"}
    assert other.states(session_id) == ["idle:end_turn"] * 2


@rule("RES-2")
async def test_two_connections_replay_at_once(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop(at=1)
    others = [await world.connect() for _ in range(2)]
    requests = [await other.begin("session/resume", resume(session_id)) for other in others]
    await stop.reached.wait()
    stop.go()
    for other, request in zip(others, requests, strict=True):
        await other.answer(request)
        assert whole(other, session_id)
        assert len(other.updates(session_id, "replay_complete")) == 1


async def test_a_restarted_agent_opens_a_session_once_for_many_resumes() -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "one")
    runtime = FakeRuntime(store)
    opened: list[FakeSession] = []
    resume_fake = runtime.resume

    async def slow(session_id: str, setup: SessionSetup) -> FakeSession:
        await anyio.lowlevel.checkpoint()
        opened.append(await resume_fake(session_id, setup))
        return opened[-1]

    runtime.resume = slow  # type: ignore[method-assign]
    async with serving(runtime=runtime) as world:
        clients = [await world.connect() for _ in range(3)]
        requests = [(client, await client.begin("session/resume", resume(session_id))) for client in clients * 3]
        for client, request in requests:
            await client.answer(request)
        assert len(opened) == 1
        ids = {await client.prompt(session_id, "two", "key") for client in clients}
        assert len(ids) == 1
        assert len(store.ids(session_id)) == 2


@rule("CLS-3")
async def test_close_and_two_resumes_in_one_write(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    messages = [
        client.request_message("session/close", {"sessionId": session_id}),
        *(client.request_message("session/resume", resume(session_id)) for _ in range(2)),
        client.request_message("session/close", {"sessionId": session_id}),
        client.request_message("session/resume", resume(session_id)),
    ]
    await client.post(*messages)
    for message in messages:
        await client.answer(message["id"])
    assert await client.prompt(session_id, "two", "key") == await client.prompt(session_id, "two", "key")
    assert len(world.store.ids(session_id)) == 2


@rule("CLS-3")
async def test_a_close_waits_for_the_replay_of_its_connection(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop(at=1)
    other = await world.connect()
    replay = await other.begin("session/resume", resume(session_id))
    await stop.reached.wait()
    close = await other.begin("session/close", {"sessionId": session_id})
    await settle()
    assert not other.answered(close)
    stop.go()
    await other.answer(replay)
    await other.answer(close)
    assert other.answer_index(close) == len(other.lines) - 1, "nothing follows the close"


@rule("RPL-10")
async def test_a_session_that_is_closed_elsewhere_during_a_replay(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop(at=1)
    other = await world.connect()
    replay = await other.begin("session/resume", resume(session_id))
    await stop.reached.wait()
    await client.request("session/close", {"sessionId": session_id})
    stop.go()
    with pytest.raises(WireError) as caught:
        await other.answer(replay)
    assert caught.value.code == -32002
    assert whole(other, session_id), "the history before the marker is whole all the same"
    await other.resume(session_id)
    await other.prompt(session_id, "works")


@pytest.mark.parametrize("record", [0, 1])
async def test_a_connection_that_ends_during_its_replay(world: World, client: Client, record: int) -> None:
    session_id = await world.stored(client, "one")
    stop = world.store.before_entry = Stop(at=record)
    other = await world.connect()
    await other.begin("session/resume", resume(session_id))
    await stop.reached.wait()
    await other.close()
    world.store.before_entry = None
    third = await world.connect()
    await third.resume(session_id, replay=True)
    assert whole(third, session_id)
    await client.prompt(session_id, "works")
    await client.until(lambda: "answer to works" in entities(client.updates(session_id)).values())


@pytest.mark.parametrize("method", ["session/resume", "session/new", "session/fork"])
async def test_a_connection_that_ends_while_its_session_opens_leaves_nothing_half_open(method: str) -> None:
    store = FakeStore()
    async with serving(store) as world:
        session_id = await world.stored(await world.connect(), "one")
    runtime = FakeRuntime(store)
    stop = Stop()

    def held_up(function: Any) -> Any:
        async def opens(*args: Any) -> FakeSession:
            session: FakeSession = await function(*args)
            with anyio.CancelScope(shield=True):
                await stop()
            return session

        return opens

    name = method.removeprefix("session/")
    original = getattr(runtime, name)
    setattr(runtime, name, held_up(original))
    async with serving(runtime=runtime) as world:
        client = await world.connect()
        params = {"cwd": "/"} if method == "session/new" else {"cwd": "/", "sessionId": session_id}
        await client.begin(method, params)
        await stop.reached.wait()
        await client.transport.aclose()
        await settle()
        stop.go()
        await client.over.wait()
        setattr(runtime, name, original)
        other = await world.connect()
        await other.resume(session_id, replay=True)
        assert whole(other, session_id)
        await other.prompt(session_id, "works", "key")
        opened = list(runtime.sessions.values())
    assert all(session.closed for session in opened)


@rule("RPL-3", "RES-2", "RPL-10")
@pytest.mark.parametrize("record", [0, 1])
@pytest.mark.parametrize("attached", [False, True])
async def test_a_read_error_at_a_record(world: World, client: Client, record: int, attached: bool) -> None:
    session_id = await world.stored(client, "one")
    other = await world.connect()
    if attached:
        await other.resume(session_id)

    async def fail(index: int) -> None:
        if index == record:
            raise HistoryUnreadable("a damaged disk")

    world.store.before_entry = fail
    with pytest.raises(WireError) as caught:
        await other.resume(session_id, replay=True)
    assert (caught.value.code, caught.value.data) == (-32603, {"reason": "history_unreadable"})
    assert other.updates(session_id, "replay_complete") == []
    world.store.before_entry = None
    expected = 0 if attached else -32002
    assert await code_of(other, "session/prompt", prompt_params(session_id, "two")) == expected
    await client.idle(session_id, 2 if attached else 1)
    await other.resume(session_id, replay=True)
    assert len(other.updates(session_id, "replay_complete")) == 1


async def test_a_session_deleted_while_it_is_read(world: World, client: Client) -> None:
    session_id = await world.stored(client, "one")

    async def vanish(index: int) -> None:
        if index == 1:
            raise SessionNotFound(session_id)

    world.store.before_entry = vanish
    assert await code_of(client, "session/resume", resume(session_id)) == -32002
    assert client.updates(session_id, "replay_complete") == []


async def test_a_session_whose_runtime_fails_ends_alone(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    bystander = await world.stored(client, "fine")
    held = await client.begin("session/prompt", prompt_params(session_id, "held", "key"))
    await settle()
    fake.fail(RuntimeError("the stream broke"))
    with pytest.raises(WireError):
        await client.answer(held)
    await client.idle(session_id)
    assert client.states(session_id) == ["running", "idle:error"]
    error = client.updates(session_id, "state_update")[-1]["error"]
    assert error["data"] == {"reason": "runtime_died"}
    assert fake.closed
    assert await code_of(client, "session/prompt", prompt_params(session_id, "held", "key")) == -32002
    await client.resume(session_id)
    await client.prompt(session_id, "held", "key")
    await client.prompt(bystander, "still fine")


async def test_a_client_that_only_reads_gets_its_answers_before_the_end(world: World) -> None:
    client = await world.connect(initialize=False)
    message = client.request_message(
        "initialize", {"protocolVersion": 2, "info": {"name": "x", "version": "1"}, "capabilities": {}}
    )
    await client.post(message)
    client.transport.send_eof()
    await client.answer(message["id"])
    await client.over.wait()


@pytest.mark.parametrize("reads", [True, False])
async def test_after_its_end_a_client_gets_what_it_asked_for_as_long_as_it_reads(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """A silence of no length ends it: nothing here depends on a clock."""
    session_id = await world.stored(client, *(f"prompt {n}" for n in range(50)))
    world.store.before_entry = None if reads else Stop()
    monkeypatch.setattr("sayagain.connection.connection.LAST_WORDS", 30 if reads else 0)
    late = await world.connect()
    message = late.request_message(
        "session/resume", {"sessionId": session_id, "cwd": "/", "replayFrom": {"type": "start"}}
    )
    await late.post(message)
    late.transport.send_eof()
    if reads:
        await late.answer(message["id"])
        assert late.updates(session_id, "replay_complete")
    await late.over.wait()


async def test_the_end_of_the_agent_does_not_wait_for_what_is_got_ready_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    reached = anyio.Event()

    async def warm_up() -> None:
        reached.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(runtime, "warm_up", warm_up)
    async with serving(runtime=runtime) as world:
        client = await world.connect()
        await reached.wait()
        await client.close()


async def test_the_end_of_the_agent_closes_every_session() -> None:
    async with serving() as world:
        client = await world.connect()
        session_id, fake = await world.work(client)
        await client.close()
    assert fake.closed
    assert world.store.ids(session_id) == fake.submitted
