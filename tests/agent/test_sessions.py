"""``session/new``, ``session/list``, options and sign-in (NEW-*, LST-*, CFG-*, AUT-*, TC-4)."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.errors import AuthRequired
from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession
from support_agent import Client, World, code_of, serving, settle
from support_rules import rule
from support_wire import WireError, prompt_params, text

STDIO = {"type": "stdio", "name": "s", "command": "/bin/true", "args": []}


@rule("NEW-1")
@pytest.mark.parametrize("params", [{}, {"cwd": "relative"}, {"cwd": ""}, {"cwd": 5}, {"cwd": None}, {"cwd": "./x"}])
async def test_cwd_must_be_absolute(world: World, client: Client, params: dict[str, Any]) -> None:
    with pytest.raises(WireError) as caught:
        await client.request("session/new", params)
    assert (caught.value.code, caught.value.data["field"]) == (-32602, "cwd")
    assert await code_of(client, "session/resume", {"sessionId": "x", **params}) == -32602
    assert world.runtime.sessions == {}


@rule("NEW-1")
async def test_cwd_reaches_the_runtime_as_it_is(world: World, client: Client) -> None:
    session_id = await client.new("/some/where")
    assert world.fake(session_id).setup.cwd == "/some/where"


@rule("NEW-2", "NEW-4", "NEW-6")
async def test_a_new_session_is_unique_and_idle(world: World, client: Client) -> None:
    ids = [await client.new() for _ in range(5)]
    await settle()
    assert len(set(ids)) == 5
    assert client.updates() == []


@rule("NEW-4")
async def test_what_a_new_session_says_waits_for_its_response(world: World) -> None:
    new = world.runtime.new

    async def talkative(setup: SessionSetup) -> FakeSession:
        session = await new(setup)
        session.update({"sessionUpdate": "available_commands_update", "availableCommands": []})
        return session

    world.runtime.new = talkative  # type: ignore[method-assign]
    client = await world.connect()
    request = await client.begin("session/new", {"cwd": "/"})
    session_id = (await client.answer(request))["sessionId"]
    await client.until(lambda: client.updates(session_id, "available_commands_update"))
    assert client.update_index(session_id, "available_commands_update") > client.answer_index(request)


@rule("NEW-3", "INI-8")
@pytest.mark.parametrize(
    "servers",
    [
        [{"type": "http", "name": "h", "url": "https://x.invalid", "headers": []}],
        [{"type": "_custom", "name": "c"}],
        [STDIO, STDIO],
        [{"type": "stdio", "name": "s"}],
    ],
    ids=["http", "custom", "same name", "no command"],
)
async def test_unusable_servers_are_refused_without_a_session(
    world: World, client: Client, servers: list[dict[str, Any]]
) -> None:
    assert await code_of(client, "session/new", {"cwd": "/", "mcpServers": servers}) == -32602
    assert world.runtime.sessions == {}


@rule("NEW-5")
async def test_additional_directories(world: World, client: Client) -> None:
    session_id = await client.new(additionalDirectories=["/a", "/b"])
    assert world.fake(session_id).setup.additional_directories == ("/a", "/b")
    assert await code_of(client, "session/new", {"cwd": "/", "additionalDirectories": ["b"]}) == -32602
    async with serving(runtime=FakeRuntime(capabilities=RuntimeCapabilities())) as plain:
        other = await plain.connect()
        assert await code_of(other, "session/new", {"cwd": "/", "additionalDirectories": ["/a"]}) == -32602
        assert await code_of(other, "session/new", {"cwd": "/", "additionalDirectories": []}) == 0


@rule("NEW-8")
async def test_system_prompts(world: World, client: Client) -> None:
    await client.new(systemPrompt={"mode": "append", "content": [text("be brief")]})
    for prompt in (
        {"mode": "replace", "content": [text("x")]},
        {"mode": "_other", "content": [text("x")]},
        {"mode": "append", "content": [{"type": "image", "data": "", "mimeType": "image/png"}]},
    ):
        assert await code_of(client, "session/new", {"cwd": "/", "systemPrompt": prompt}) == -32602
    assert len(world.runtime.sessions) == 1


@rule("NEW-7")
async def test_sign_in_needed(world: World, client: Client) -> None:
    async def refuse(setup: SessionSetup) -> FakeSession:
        raise AuthRequired

    world.runtime.new = refuse  # type: ignore[method-assign]
    with pytest.raises(WireError) as caught:
        await client.new()
    assert caught.value.code == -32000


@rule("LST-1", "LST-2")
async def test_list_filters_by_the_exact_directory(world: World, client: Client) -> None:
    ids = {}
    for cwd in ("/a", "/a/b", "/ab"):
        session_id = ids[cwd] = await client.new(cwd, additionalDirectories=["/a"])
        await client.prompt(session_id, "x")
    for cwd, session_id in ids.items():
        rows = (await client.request("session/list", {"cwd": cwd}))["sessions"]
        assert [row["sessionId"] for row in rows] == [session_id]
    assert len((await client.request("session/list", {}))["sessions"]) == 3
    assert len((await client.request("session/list", {"cwd": None, "cursor": None}))["sessions"]) == 3
    assert await client.request("session/list", {"cwd": "/none"}) == {"sessions": []}
    assert await code_of(client, "session/list", {"cwd": "a"}) == -32602


@rule("LST-3")
async def test_cursors_are_opaque(client: Client) -> None:
    assert await code_of(client, "session/list", {"cursor": "not ours"}) == -32602
    assert await code_of(client, "session/list", {"cursor": 3}) == -32602
    assert await client.request("session/list", {"cursor": ""}) == {"sessions": []}


@rule("CFG-2")
@pytest.mark.parametrize("value", ["x", True, {"a": 1}, 3])
async def test_an_unknown_option_is_refused(world: World, client: Client, value: object) -> None:
    session_id = await client.new()
    params = {"sessionId": session_id, "configId": "nothing", "type": "id", "value": value}
    assert await code_of(client, "session/set_config_option", params) == -32602
    params = {"sessionId": "unknown", "configId": "nothing", "type": "id", "value": "x"}
    assert await code_of(client, "session/set_config_option", params) in (-32002, -32602)


@rule("TC-4")
async def test_what_cannot_be_cancelled_is_refused_without_touching_the_work(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    call = {"sessionId": session_id, "toolCallId": "t"}
    terminal = {"sessionId": session_id, "terminalId": "t"}
    assert await code_of(client, "tool_call/cancel", call) == -32602
    assert await code_of(client, "terminal/cancel", terminal) == -32602
    assert await code_of(client, "tool_call/cancel", {**call, "sessionId": "x"}) == -32002
    assert await code_of(client, "terminal/cancel", {**terminal, "sessionId": "x"}) == -32002
    assert client.states(session_id) == ["running"]
    assert fake.interrupts == 0


@rule("AUT-1", "INI-6")
async def test_login_and_logout(world: World, client: Client) -> None:
    assert await client.request("auth/login", {"methodId": "fake-login"}) == {}
    assert world.runtime.logins == ["fake-login"]
    assert await code_of(client, "auth/login", {"methodId": "fake-terminal"}) == -32602
    assert await code_of(client, "auth/login", {"methodId": "unknown"}) == -32602
    assert await code_of(client, "auth/login", {}) == -32602
    assert await client.request("auth/logout", {}) == {}
    assert world.runtime.logins == []


@rule("AUT-3", "NEW-7")
async def test_after_a_logout_a_session_may_want_a_sign_in(world: World, client: Client) -> None:
    session_id = await client.new()
    await client.request("auth/logout", {})
    world.fake(session_id).submit_error = AuthRequired()
    assert await code_of(client, "session/prompt", prompt_params(session_id, "x", "k")) == -32000
    world.fake(session_id).submit_error = None
    await client.prompt(session_id, "x", "k")


@rule("UPD-7", "UPD-4")
async def test_a_runtime_error_ends_the_work_with_it(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    error = {"code": -32603, "message": "the model service is down"}
    fake.finish("error", error=error)
    await client.idle(session_id)
    assert client.updates(session_id, "state_update")[-1] == {
        "sessionUpdate": "state_update",
        "state": "idle",
        "stopReason": "error",
        "error": error,
    }


@rule("UPD-6")
async def test_work_that_nobody_asked_for_needs_no_user_message(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    fake.run()
    fake.say("I woke up")
    fake.finish()
    await client.idle(session_id)
    assert client.updates(session_id, "user_message") == []
    assert client.states(session_id) == ["running", "idle:end_turn"]


@rule("UPD-8")
async def test_the_background_list_is_on_every_state_update(world: World, client: Client) -> None:
    from sayagain.runtime.events import Foreground

    session_id, fake = await world.manual(client)
    item = {"type": "tool_call", "toolCallId": "t"}
    fake.emit(Foreground(session_id, "running", background=[]))
    fake.emit(Foreground(session_id, "running", background=[item]))
    fake.emit(Foreground(session_id, "running"))
    fake.emit(Foreground(session_id, "idle", stop_reason="end_turn"))
    fake.emit(Foreground(session_id, "idle", background=[]))
    await client.until(lambda: len(client.updates(session_id, "state_update")) == 4)
    updates = client.updates(session_id, "state_update")
    assert [u["background"] for u in updates] == [[], [item], [item], []]
    assert client.states(session_id) == ["running", "running", "idle:end_turn", "idle"]


@rule("RPC-5", "UPD-1")
async def test_updates_of_kinds_that_the_core_does_not_know_pass_unchanged(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    updates = [{"sessionUpdate": "_vendor", "x": [1, None]}, {"sessionUpdate": "of_the_future", "y": {}}]
    for update in updates:
        fake.update(update)
    await client.until(lambda: client.updates(session_id) == updates)


async def test_an_empty_text_is_not_shown(world: World, client: Client) -> None:
    """No runtime stores it, so no replay has it."""
    session_id = await client.new()
    blocks = [{"type": "text", "text": ""}, {"type": "text", "text": "x"}, {"type": "text", "text": " "}]
    await client.request("session/prompt", {"sessionId": session_id, "prompt": blocks})
    (told,) = client.updates(session_id, "user_message")
    assert told["content"] == blocks[1:]
