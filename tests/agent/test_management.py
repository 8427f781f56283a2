"""Titles, the archive, status and options over the fake runtime (ARC-1, TTL-1, STS-1, LST-5, CFG-*, AUT-2, TC-4)."""

from __future__ import annotations

from typing import Any

import pytest

from support_agent import Client, Stop, World, code_of, settle
from support_rules import rule
from support_wire import WireError, prompt_params


@rule("ARC-1", "LST-5")
async def test_an_archived_session_keeps_its_id_and_history_and_is_hidden(world: World, client: Client) -> None:
    session_id, fake = await world.work(client, key="k")
    for _ in range(2):
        assert await client.request("session/archive", {"sessionId": session_id}) == {}
    assert fake.closed, "an active session closes first"
    assert client.states(session_id)[-1] == "idle:cancelled"
    listed = {
        name: [row["sessionId"] for row in (await client.request("session/list", {"archived": name}))["sessions"]]
        for name in ("exclude", "include", "only")
    }
    assert listed == {"exclude": [], "include": [session_id], "only": [session_id]}
    assert await client.request("session/list", {}) == {"sessions": []}
    assert await code_of(client, "session/list", {"archived": "sometimes"}) == -32602
    assert await client.request("session/unarchive", {"sessionId": session_id}) == {}
    assert await code_of(client, "session/prompt", prompt_params(session_id, "x")) == -32002, (
        "unarchiving loads nothing"
    )
    await client.resume(session_id, replay=True)
    assert await client.prompt(session_id, "work", "k") == fake.submitted[0]


@rule("ARC-1")
async def test_an_open_session_is_not_archived(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    assert await client.request("session/unarchive", {"sessionId": session_id}) == {}
    assert not fake.closed


@rule("ARC-1", "TTL-1", "STS-1")
@pytest.mark.parametrize("method", ["session/archive", "session/unarchive", "session/set_title", "session/status"])
async def test_an_unknown_session_is_not_found(client: Client, method: str) -> None:
    params = {"sessionId": "unknown"} | ({"title": "x"} if method == "session/set_title" else {})
    assert await code_of(client, method, params) == -32002


@rule("ARC-1", "CAN-5")
async def test_an_archive_request_that_is_cancelled_is_done_all_the_same(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await world.stored(client, "x")
    stop, close = Stop(), world.runtime.sessions[session_id].close

    async def slowly() -> None:
        await stop()
        await close()

    monkeypatch.setattr(world.runtime.sessions[session_id], "close", slowly)
    request = await client.begin("session/archive", {"sessionId": session_id})
    await stop.reached.wait()
    await client.cancel(request)
    await settle()
    stop.go()
    assert await client.answer(request) == {}
    assert (await client.request("session/list", {"archived": "only"}))["sessions"]


@rule("ARC-1")
async def test_what_cannot_be_archived_stays_open(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    assert await code_of(client, "session/archive", {"sessionId": session_id}) == -32002
    assert not fake.closed
    request = await client.begin("session/prompt", prompt_params(session_id, "goes on"))
    await fake.until(lambda: bool(fake.submitted))
    fake.store(fake.submitted[-1])
    await client.answer(request)


@rule("TTL-1")
@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("nul\0esc\x1b[31m del\x7f c1\x9b", "nul esc [31m del c1"),
        ("left\u202eright \u2066isolated\u2069", "left right isolated"),
        (
            "family \U0001f469\u200d\U0001f467 \u05e9\u05dc\u05d5\u05dd",
            "family \U0001f469\u200d\U0001f467 \u05e9\u05dc\u05d5\u05dd",
        ),
        ("\0\x1b", None),
    ],
)
async def test_a_title_has_only_what_a_list_can_show(
    world: World, client: Client, title: str, shown: str | None
) -> None:
    session_id = await world.stored(client, "x")
    params = {"sessionId": session_id, "title": title}
    if shown is None:
        assert await code_of(client, "session/set_title", params) == -32602
    else:
        assert await client.request("session/set_title", params) == {"title": shown}
        assert world.store.titles[session_id] == shown


@rule("TTL-1")
async def test_a_title_is_stored_before_the_answer(world: World, client: Client) -> None:
    session_id = await world.stored(client, "x")
    await client.request("session/set_title", {"sessionId": session_id, "title": "  My \n title "})
    assert world.store.titles[session_id] == "My title"
    assert (await client.request("session/list", {}))["sessions"][0]["title"] == "My title"
    assert await code_of(client, "session/set_title", {"sessionId": session_id, "title": " \n "}) == -32602
    await client.request("session/close", {"sessionId": session_id})
    await client.request("session/set_title", {"sessionId": session_id, "title": "Inactive"})
    assert world.store.titles[session_id] == "Inactive"


@rule("STS-1")
async def test_status_has_no_side_effects(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    other = await world.connect()
    answer = await other.request("session/status", {"sessionId": session_id})
    assert (answer["status"], answer["state"]["state"]) == ("open", "running")
    assert await code_of(other, "session/prompt", prompt_params(session_id, "x")) == -32002
    fake.finish()
    await client.request("session/close", {"sessionId": session_id})
    assert await client.request("session/status", {"sessionId": session_id}) == {"status": "saved"}
    assert await code_of(client, "session/prompt", prompt_params(session_id, "x")) == -32002
    assert other.updates() == []


@rule("CFG-1", "CFG-3", "CFG-4", "CFG-6")
async def test_an_option_is_set_and_the_whole_list_told(world: World, client: Client) -> None:
    answer = await client.request("session/new", {"cwd": "/"})
    session_id = answer["sessionId"]
    option = answer["configOptions"][0]
    assert option["currentValue"] in [value["value"] for value in option["options"]]
    params = {"sessionId": session_id, "configId": "pace", "type": "id", "value": "fast"}
    answer = await client.request("session/set_config_option", params)
    assert [each["currentValue"] for each in answer["configOptions"]] == ["fast"]
    await client.until(lambda: client.updates(session_id, "config_option_update"))
    assert client.updates(session_id, "config_option_update")[0]["configOptions"] == answer["configOptions"]


def pace(session_id: str, value: str) -> dict[str, Any]:
    return {"sessionId": session_id, "configId": "pace", "type": "id", "value": value}


async def test_options_are_set_in_the_order_of_the_wire_and_a_prompt_follows_them(world: World, client: Client) -> None:
    """Whoever does not wait for the answers must not run in another mode than the one that it asked for last."""
    session_id = await client.new()
    other = await world.connect()
    await other.request("session/resume", {"sessionId": session_id, "cwd": "/"})
    fake = world.fake(session_id)
    stop, paces = Stop("fast"), list[str]()

    async def note(_: str) -> None:
        paces.append(fake.pace)

    fake.before_option, fake.before_submit = stop, note
    first = await client.begin("session/set_config_option", pace(session_id, "fast"))
    second = await client.begin("session/set_config_option", pace(session_id, "slow"))
    prompt = await client.begin("session/prompt", prompt_params(session_id, "x"))
    await stop.reached.wait()
    await settle()
    assert not any(map(client.answered, (first, second, prompt)))
    third = await other.begin("session/set_config_option", pace(session_id, "fast"))
    await settle()
    stop.go()
    assert [option["currentValue"] for option in (await client.answer(first))["configOptions"]] == ["fast"]
    assert [option["currentValue"] for option in (await client.answer(second))["configOptions"]] == ["slow"]
    await other.answer(third)
    await client.answer(prompt)
    assert paces == ["slow"], "what came before it, not what came after it"
    assert fake.pace == "fast"


async def test_an_option_that_is_being_set_is_not_cancelled_and_one_that_waits_is(world: World, client: Client) -> None:
    session_id = await client.new()
    fake, stop = world.fake(session_id), Stop("fast")
    fake.before_option = stop
    first = await client.begin("session/set_config_option", pace(session_id, "fast"))
    second = await client.begin("session/set_config_option", pace(session_id, "slow"))
    await stop.reached.wait()
    for request_id in (first, second):
        await client.cancel(request_id)
    with pytest.raises(WireError) as cancelled:
        await client.answer(second)
    assert cancelled.value.code == -32800
    stop.go()
    await client.answer(first)
    assert fake.pace == "fast"


async def test_a_prompt_that_waits_for_an_option_can_be_withdrawn(world: World, client: Client) -> None:
    session_id = await client.new()
    fake, stop = world.fake(session_id), Stop("fast")
    fake.before_option = stop
    option = await client.begin("session/set_config_option", pace(session_id, "fast"))
    prompt = await client.begin("session/prompt", prompt_params(session_id, "x"))
    await stop.reached.wait()
    await settle()
    await client.cancel(prompt)
    with pytest.raises(WireError):
        await client.answer(prompt)
    stop.go()
    await client.answer(option)
    await settle()
    assert fake.submitted == []


@rule("TTL-1")
async def test_titles_are_set_in_the_order_of_the_wire(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await world.stored(client, "x")
    stop, set_title = Stop("A"), world.runtime.set_title

    async def later(session_id: str, title: str) -> None:
        await stop(title)
        await set_title(session_id, title)

    monkeypatch.setattr(world.runtime, "set_title", later)
    titles = [await client.begin("session/set_title", {"sessionId": session_id, "title": title}) for title in "ABC"]
    await stop.reached.wait()
    await settle()
    stop.go()
    for title in titles:
        await client.answer(title)
    assert world.store.titles[session_id] == "C"


@rule("CFG-2")
@pytest.mark.parametrize("value", ["warp", True])
async def test_an_invalid_value_changes_nothing(world: World, client: Client, value: object) -> None:
    session_id = await client.new()
    kind = "boolean" if value is True else "id"
    params = {"sessionId": session_id, "configId": "pace", "type": kind, "value": value}
    assert await code_of(client, "session/set_config_option", params) == -32602
    await settle()
    assert client.updates(session_id, "config_option_update") == []
    assert world.fake(session_id).pace == "slow"


@rule("CFG-2")
@pytest.mark.parametrize("kind", ["zz", "select", "boolean", "", "_x", 3, None])
@pytest.mark.parametrize("config_id", ["pace", "unknown"])
async def test_an_unsupported_type_of_value_changes_nothing(
    world: World, client: Client, config_id: str, kind: object
) -> None:
    session_id = await client.new()
    params = {"sessionId": session_id, "configId": config_id, "type": kind, "value": "fast"}
    assert await code_of(client, "session/set_config_option", params) == -32602
    assert world.fake(session_id).pace == "slow"


@rule("TC-4")
async def test_a_tool_call_and_a_terminal_are_cancelled_once(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.cancellable |= {"call", "term"}
    for method, name, value in (
        ("tool_call/cancel", "toolCallId", "call"),
        ("terminal/cancel", "terminalId", "term"),
    ):
        params = {"sessionId": session_id, name: value}
        assert await client.request(method, params) == {}
        assert await code_of(client, method, params) == -32602
    assert client.states(session_id) == ["running"]


@rule("AUT-2")
async def test_the_sign_in_can_be_looked_at_without_one(world: World, client: Client) -> None:
    before = await client.request("auth/status", {})
    await client.request("auth/login", {"methodId": "fake-login"})
    assert await client.request("auth/status", {}) != before
