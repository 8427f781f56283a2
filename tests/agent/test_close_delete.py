"""Ending sessions: close, delete, and what waits then (CLS-*, DEL-1)."""

from __future__ import annotations

import anyio
import pytest

from sayagain.errors import HistoryUnreadable, RuntimeFault
from sayagain.identity import derive_message_id
from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.testing.fake_runtime import FakeRuntime
from support_agent import Client, Stop, World, code_of, settle, submitted
from support_rules import rule
from support_wire import WireError, prompt_params


@rule("CLS-1", "CLS-2", "CLS-3", "KEY-7")
async def test_close_ends_work_answers_what_waits_and_says_nothing_more(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.say("in the middle", stored=False)
    held = [await client.begin("session/prompt", prompt_params(session_id, "x", f"k{n}")) for n in range(2)]
    await settle()
    close = await client.begin("session/close", {"sessionId": session_id})
    assert await client.answer(close) == {}
    for request in held:
        with pytest.raises(WireError) as caught:
            await client.answer(request)
        assert caught.value.code == -32800
    assert client.states(session_id) == ["running", "idle:cancelled"]
    assert fake.closed
    await settle()
    assert client.answer_index(close) == len(client.lines) - 1
    assert client.lines[-2]["params"]["update"]["state"] == "idle", "the idle is the last before the response"
    assert len(fake.submitted) == 1
    assert await code_of(client, "session/prompt", prompt_params(session_id, "x", "k0")) == -32002
    await client.resume(session_id)
    assert await client.prompt(session_id, "x", "k0") == derive_message_id(session_id, "k0")


@rule("CLS-1")
async def test_closing_an_idle_session_needs_no_idle(world: World, client: Client) -> None:
    session_id = await world.stored(client, "x")
    await client.request("session/close", {"sessionId": session_id})
    assert client.states(session_id) == ["running", "idle:end_turn"]


@rule("CLS-4")
@pytest.mark.parametrize("session_id", ["unknown", "../..", "", "x" * 10_000])
async def test_closing_what_is_not_active_succeeds(client: Client, session_id: str) -> None:
    assert await client.request("session/close", {"sessionId": session_id}) == {}


@rule("CLS-4", "RES-14")
async def test_closing_a_session_of_another_connection_leaves_it_alone(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    other = await world.connect()
    assert await other.request("session/close", {"sessionId": session_id}) == {}
    assert not fake.closed


@rule("CLS-4")
async def test_closing_twice_in_one_write(world: World, client: Client) -> None:
    session_id, _ = await world.work(client)
    messages = [client.request_message("session/close", {"sessionId": session_id}) for _ in range(3)]
    await client.post(*messages)
    for message in messages:
        assert await client.answer(message["id"]) == {}
    assert client.states(session_id) == ["running", "idle:cancelled"]


@rule("CLS-2")
async def test_a_prompt_that_is_stored_while_the_session_closes_gets_its_id(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    fake.can_withdraw = False
    request = await client.begin("session/prompt", prompt_params(session_id, "x", "k"))
    await submitted(fake)
    fake.store(fake.submitted[0])
    close = await client.begin("session/close", {"sessionId": session_id})
    assert await client.answer(request) == {"messageId": fake.submitted[0]}
    await client.answer(close)


@rule("CLS-2")
async def test_a_prompt_that_is_never_stored_is_answered_as_withdrawn(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    fake.can_withdraw = False
    request = await client.begin("session/prompt", prompt_params(session_id, "x", "k"))
    await submitted(fake)
    await client.request("session/close", {"sessionId": session_id})
    with pytest.raises(WireError) as caught:
        await client.answer(request)
    assert caught.value.code == -32800


@rule("CLS-2", "KEY-7")
@pytest.mark.parametrize("method", ["session/close", "session/delete"])
@pytest.mark.parametrize("order", ["prompt first", "prompt last"])
async def test_a_prompt_and_an_end_in_one_write(world: World, client: Client, method: str, order: str) -> None:
    session_id = await world.stored(client, "x")
    prompt = client.prompt_message(session_id, "y", "k")
    end = client.request_message(method, {"sessionId": session_id})
    await client.post(*((prompt, end) if order == "prompt first" else (end, prompt)))
    assert await client.answer(end["id"]) == {}
    code, inserted = 0, None
    try:
        inserted = (await client.answer(prompt["id"]))["messageId"]
    except WireError as error:
        code = error.code
    assert code in (0, -32800, -32002)
    if method == "session/close":
        stored = [each for each in world.store.ids(session_id) if each == derive_message_id(session_id, "k")]
        assert stored == ([inserted] if inserted else [])


async def test_a_prompt_that_comes_while_the_session_closes_is_never_stored(world: World, client: Client) -> None:
    session_id = await client.new()
    fake, stop = world.fake(session_id), Stop()
    close_fake = fake.close

    async def slow() -> None:
        with anyio.CancelScope(shield=True):
            await stop()
        await close_fake()

    fake.close = slow  # type: ignore[method-assign]
    close = await client.begin("session/close", {"sessionId": session_id})
    await stop.reached.wait()
    assert await code_of(client, "session/prompt", prompt_params(session_id, "x", "k")) == -32002
    stop.go()
    await client.answer(close)
    assert fake.submitted == []


async def test_a_connection_that_ends_while_its_session_closes(world: World, client: Client) -> None:
    """A close that lost its sender is finished; nobody waits for it for ever."""
    session_id, fake = await world.work(client)
    stop = Stop()
    close_fake = fake.close

    async def slow() -> None:
        await stop()
        await close_fake()

    fake.close = slow  # type: ignore[method-assign]
    await client.begin("session/close", {"sessionId": session_id})
    await stop.reached.wait()
    await client.transport.aclose()
    await settle()
    stop.go()
    await client.over.wait()
    assert fake.closed
    other = await world.connect()
    await other.resume(session_id)
    await other.prompt(session_id, "works")


@rule("DEL-1")
async def test_delete(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    for _ in range(2):
        assert await client.request("session/delete", {"sessionId": session_id}) == {}
    assert await client.request("session/delete", {"sessionId": "never"}) == {}
    assert fake.closed
    assert await client.request("session/list", {}) == {"sessions": []}
    assert await code_of(client, "session/resume", {"sessionId": session_id, "cwd": "/"}) == -32002


REFUSED = pytest.mark.parametrize("method", ["archive", "delete"])


@rule("DEL-1", "ARC-1", "RES-14")
@REFUSED
async def test_a_session_that_cannot_be_ended_is_opened_again(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    session_id, fake = await world.work(client, key="k")
    other, unattached = await world.connect(), await world.connect()
    await other.resume(session_id)

    async def refuse(*_: object, **__: object) -> None:
        assert fake.closed
        raise RuntimeFault("No space left")

    monkeypatch.setattr(world.runtime, method, refuse)
    for _ in range(2):
        with pytest.raises(WireError, match="No space left"):
            await unattached.request(f"session/{method}", {"sessionId": session_id})
    assert world.fake(session_id) is not fake
    assert client.states(session_id) == ["running", "idle:cancelled", "idle", "idle"], "what ended stays so"
    status = await client.request("session/status", {"sessionId": session_id})
    assert status["status"] == "open"
    for each in (client, other):
        assert await each.prompt(session_id, "work", "k") == fake.submitted[0]
    assert await code_of(unattached, "session/prompt", prompt_params(session_id, "work", "k")) == -32002
    await other.prompt(session_id, "More")
    await client.until(lambda: client.states(session_id)[-2:] == ["running", "idle:end_turn"])
    monkeypatch.undo()
    assert await client.request(f"session/{method}", {"sessionId": session_id}) == {}
    assert await client.request("session/list", {}) == {"sessions": []}


@rule("DEL-1", "ARC-1")
@REFUSED
async def test_a_session_that_cannot_be_opened_again_stays_closed(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    session_id = await world.stored(client, "x")

    async def lose(*_: object, **__: object) -> None:
        world.store.sessions.pop(session_id)
        raise RuntimeFault("Half done")

    monkeypatch.setattr(world.runtime, method, lose)
    with pytest.raises(WireError, match="Half done"):
        await client.request(f"session/{method}", {"sessionId": session_id})
    assert await code_of(client, "session/status", {"sessionId": session_id}) == -32002
    assert await code_of(client, "session/prompt", prompt_params(session_id, "y")) == -32002


@rule("DEL-1", "ARC-1")
@REFUSED
async def test_what_cannot_be_loaded_can_be_ended(world: World, client: Client, method: str) -> None:
    session_id = await world.stored(client, "x")

    async def fail() -> None:
        raise HistoryUnreadable

    world.fake(session_id).before_own = fail
    assert await client.request(f"session/{method}", {"sessionId": session_id}) == {}
    assert world.fake(session_id).closed


@REFUSED
async def test_a_session_is_not_opened_again_for_nobody(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    session_id = await world.stored(client, "x")
    other, stop = await world.connect(), Stop()

    async def refuse(*_: object, **__: object) -> None:
        await stop()
        raise RuntimeFault

    monkeypatch.setattr(world.runtime, method, refuse)
    request = await other.begin(f"session/{method}", {"sessionId": session_id})
    await stop.reached.wait()
    await client.close()
    stop.go()
    with pytest.raises(WireError):
        await other.answer(request)
    assert world.fake(session_id).closed
    assert await other.request("session/status", {"sessionId": session_id}) == {"status": "saved"}


@rule("DEL-1", "SUB-5")
@pytest.mark.parametrize("active", [True, False])
async def test_a_child_is_not_deleted(world: World, client: Client, active: bool) -> None:
    session_id, fake = await world.work(client)
    child_id = fake.spawn("helper")
    await client.until(lambda: client.updates(child_id))
    if not active:
        await client.request("session/close", {"sessionId": session_id})
    with pytest.raises(WireError) as caught:
        await client.request("session/delete", {"sessionId": child_id})
    assert (caught.value.code, caught.value.data["field"]) == (-32602, "sessionId")
    assert await client.request("session/delete", {"sessionId": "never.child"}) == {}
    await client.request("session/delete", {"sessionId": session_id})
    assert await client.request("session/delete", {"sessionId": child_id}) == {}


@rule("DEL-1", "KEY-9")
async def test_a_session_id_that_is_used_again_knows_no_old_keys(world: World, client: Client) -> None:
    session_id = await client.new()
    message_id = await client.prompt(session_id, "x", "k")
    await client.request("session/delete", {"sessionId": session_id})
    world.store.sessions[session_id] = []
    await client.resume(session_id)
    assert await client.prompt(session_id, "y", "k") == message_id
    assert world.store.ids(session_id) == [message_id]


@rule("DEL-1", "INI-4", "RPC-3")
async def test_what_is_not_advertised_is_not_served() -> None:
    from support_agent import serving

    runtime = FakeRuntime(capabilities=RuntimeCapabilities())
    async with serving(runtime=runtime) as world:
        client = await world.connect(initialize=False)
        session = (await client.initialize())["capabilities"]["session"]
        assert not {"delete", "fork", "archive", "title", "additionalDirectories", "systemPrompt"} & set(session)
        session_id = await client.new()
        for method in ("session/delete", "session/fork", "session/archive", "session/set_title"):
            assert await code_of(client, method, {"sessionId": session_id, "cwd": "/", "title": "x"}) == -32601


@rule("RPL-11")
async def test_a_fork_has_no_replay_and_no_marker(world: World, client: Client) -> None:
    session_id = await world.stored(client, "x")
    fork = (await client.request("session/fork", {"sessionId": session_id, "cwd": "/"}))["sessionId"]
    await settle()
    assert client.updates(fork) == []
    assert await code_of(client, "session/fork", {"sessionId": "unknown", "cwd": "/"}) == -32002
    await client.prompt(fork, "y")


@rule("RPL-11")
async def test_a_fork_during_work(world: World, client: Client) -> None:
    session_id, fake = await world.work(client, key="k")
    fork = client.request_message("session/fork", {"sessionId": session_id, "cwd": "/"})
    retry = client.prompt_message(session_id, "work", "k")
    await client.post(retry, fork, client.prompt_message(session_id, "more", "k2"))
    fork_id = (await client.answer(fork["id"]))["sessionId"]
    assert await client.answer(retry["id"]) == {"messageId": derive_message_id(session_id, "k")}
    await client.prompt(fork_id, "work", "k")
    assert len(fake.submitted) == 1
