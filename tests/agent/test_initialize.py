"""``initialize`` and what comes before it (INI-*, RPC-7)."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.testing.fake_runtime import FakeRuntime
from support_agent import Client, World, code_of, serving
from support_rules import rule
from support_wire import INFO, WireError


@pytest.fixture
async def fresh(world: World) -> Client:
    return await world.connect(initialize=False)


def params(version: object = 2, **more: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "info": INFO, "capabilities": {}, **more}


@rule("INI-1", "INI-2")
@pytest.mark.parametrize("version", [2, 3, 99, 65535])
async def test_the_highest_version_that_both_know(fresh: Client, version: int) -> None:
    answer = await fresh.request("initialize", params(version))
    assert answer["protocolVersion"] == 2
    assert answer["info"]["name"] == "sayagain-fake"
    assert answer["info"]["version"]


@rule("INI-1")
@pytest.mark.parametrize("version", [0, 1])
async def test_no_common_version(fresh: Client, version: int) -> None:
    with pytest.raises(WireError) as caught:
        await fresh.request("initialize", params(version))
    assert caught.value.code == -32022
    assert caught.value.data == {"requested": version, "supported": [2]}
    assert (await fresh.request("initialize", params()))["protocolVersion"] == 2


@rule("INI-1", "INI-2")
@pytest.mark.parametrize(
    "bad",
    [
        params(-1),
        params("2"),
        params(2.5),
        params(None),
        params(10**400),
        {"protocolVersion": 2},
        params(info={"name": "x"}),
        params(capabilities=[]),
        {},
    ],
)
async def test_malformed_initialize(fresh: Client, bad: dict[str, Any]) -> None:
    assert await code_of(fresh, "initialize", bad) == -32602


@rule("RPC-7")
@pytest.mark.parametrize("method", ["session/new", "session/prompt", "session/list", "auth/login", "unknown", "_x"])
async def test_anything_before_initialize_is_an_error(fresh: Client, method: str) -> None:
    assert await code_of(fresh, method, {"cwd": "/"}) == -32600
    await fresh.notify("session/cancel", {"sessionId": "x"})
    await fresh.initialize()


@rule("RPC-7")
async def test_a_second_initialize(fresh: Client) -> None:
    await fresh.initialize()
    await fresh.initialize()
    await fresh.request("session/list", {})
    assert await code_of(fresh, "initialize", params()) == -32600
    await fresh.request("session/list", {})


@rule("INI-3")
@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"auth": {}},
        {"auth": {"terminal": {}}},
        {"elicitation": {"form": {}}},
        {"_custom": {"x": 1}, "session": {}},
        {"auth": None, "elicitation": None},
    ],
)
async def test_every_combination_of_client_capabilities_works(
    world: World, fresh: Client, capabilities: dict[str, Any]
) -> None:
    await fresh.initialize(**capabilities)
    session_id = await fresh.new()
    assert world.fake(session_id).setup.client_capabilities == capabilities
    await fresh.prompt(session_id, "x")


@rule("INI-3", "RPC-6")
@pytest.mark.parametrize("capabilities", [{}, {"capabilities": {}}])
async def test_capabilities_may_be_left_out(fresh: Client, capabilities: dict[str, Any]) -> None:
    await fresh.request("initialize", {"protocolVersion": 2, "info": INFO, **capabilities})
    await fresh.new()


@rule("INI-4", "INI-5", "INI-7", "INI-8")
async def test_what_is_advertised_is_what_the_runtime_can_do(fresh: Client) -> None:
    session = (await fresh.initialize())["capabilities"]["session"]
    expected: dict[str, Any] = {
        "prompt": {"image": {}, "embeddedContext": {}},
        "mcp": {"stdio": {}},
        "fork": {},
        "delete": {},
        "additionalDirectories": {},
        "systemPrompt": {},
    }
    assert {name: session[name] for name in expected} == expected
    everything = RuntimeCapabilities(
        image=True,
        audio=True,
        embedded_context=True,
        mcp_http=True,
        system_prompt_modes=frozenset({"append", "override"}),
    )
    async with serving(runtime=FakeRuntime(capabilities=everything)) as world:
        client = await world.connect(initialize=False)
        session = (await client.initialize())["capabilities"]["session"]
        assert set(session["prompt"]) == {"image", "audio", "embeddedContext"}
        assert set(session["mcp"]) == {"http"}
        assert session["systemPrompt"] == {"mode": {"override": {}}}
        assert "fork" not in session


@rule("INI-6")
async def test_terminal_sign_in_is_offered_only_where_it_can_run(world: World) -> None:
    plain = await world.connect(initialize=False)
    methods = (await plain.initialize())["authMethods"]
    assert [method["type"] for method in methods] == ["agent"]
    terminal = await world.connect(initialize=False)
    methods = (await terminal.initialize(auth={"terminal": {}}))["authMethods"]
    assert [method["type"] for method in methods] == ["agent", "terminal"]
    assert len({method["methodId"] for method in methods}) == 2


@rule("INI-1")
async def test_a_client_of_an_older_protocol_learns_which_versions_there_are() -> None:
    async with serving() as world:
        client = await world.connect(initialize=False)
        # As a client of protocol 1 says it: none of the fields but the version are the same.
        params = {"protocolVersion": 1, "clientInfo": {"name": "old"}, "clientCapabilities": {"fs": {}}}
        with pytest.raises(WireError) as caught:
            await client.request("initialize", params)
        assert (caught.value.code, caught.value.data) == (-32022, {"requested": 1, "supported": [2]})
