"""JSON-RPC on a whole connection: batches, ids, broken lines, hostile input (RPC-*, faults: hostile input)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sayagain.protocol.lines import MAX_LINE
from support_agent import Client, World, code_of, settle, submitted
from support_rules import rule
from support_wire import INFO, prompt_params


def errors(client: Client) -> list[int]:
    return [line["error"]["code"] for line in client.lines if isinstance(line, dict) and "error" in line]


async def alive(world: World, client: Client) -> None:
    """I12: after anything, the next well-formed prompt works."""
    session_id = await client.new()
    await client.prompt(session_id, "alive", "key")
    assert len(world.store.ids(session_id)) == 1


@rule("RPC-8")
async def test_a_batch_is_answered_by_one_array(world: World, client: Client) -> None:
    session_id = await client.new()
    listing = client.request_message("session/list", {})
    unknown = client.request_message("no/such", {})
    prompt = client.prompt_message(session_id, "x", "k")
    await client.batch(listing, {"jsonrpc": "2.0", "method": "_hello"}, unknown, prompt, {"bad": 1})  # type: ignore[dict-item]
    await client.answer(prompt["id"])
    await client.answer(listing["id"])
    arrays = [line for line in client.lines if isinstance(line, list)]
    assert len(arrays) == 1
    assert [item["id"] for item in arrays[0]] == [listing["id"], unknown["id"], prompt["id"], None]
    assert [item.get("error", {}).get("code") for item in arrays[0]] == [None, -32601, None, -32600]


@rule("RPC-8")
async def test_odd_batches(world: World, client: Client) -> None:
    await client.raw(b"[]\n")
    await client.raw(b'[{"jsonrpc":"2.0","method":"_one"},{"jsonrpc":"2.0","method":"_two"}]\n')
    await client.raw(b"[1,[],null]\n")
    await alive(world, client)
    assert errors(client) == [-32600]
    arrays = [line for line in client.lines if isinstance(line, list)]
    assert [[item["error"]["code"] for item in array] for array in arrays] == [[-32600] * 3]


@rule("RPC-8", "RPC-7")
async def test_initialize_and_more_in_one_batch(world: World) -> None:
    client = await world.connect(initialize=False)
    first = client.request_message("initialize", {"protocolVersion": 2, "info": INFO, "capabilities": {}})
    second = client.request_message("session/new", {"cwd": "/"})
    await client.batch(first, second)
    await client.prompt((await client.answer(second["id"]))["sessionId"], "x")


@rule("RPC-8", "KEY-6")
async def test_a_prompt_and_its_cancellation_in_one_batch(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    prompts = [client.prompt_message(session_id, "x", "k") for _ in range(2)]
    await client.batch(*prompts, client.cancel_message(prompts[0]["id"]))
    await client.until(lambda: any(isinstance(line, list) for line in client.lines))
    array = next(line for line in client.lines if isinstance(line, list))
    assert [item["error"]["code"] for item in array] == [-32800, -32800]
    fake.finish()
    await settle()
    assert len(fake.submitted) == 1


@rule("RPC-8")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"nonsense", -32700),
        (b'{"jsonrpc":"2.0","id":900,"method":"session/list","params":{"cwd":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":900,"method":"session/list","params":{"x":1e999}}', -32700),
        (b'\xff{"jsonrpc":"2.0"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"session/list"}', -32700),
        (b'{"jsonrpc":"1.0","id":900,"method":"session/list"}', -32600),
        (b'{"id":900,"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":[],"method":"session/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":900,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":900,"method":"session/list","params":[1]}', -32602),
        (b'{"jsonrpc":"2.0","id":900,"method":"session/list","params":"x"}', -32600),
        (b"1", -32600),
        (b'"text"', -32600),
        (b"null", -32600),
    ],
)
async def test_a_broken_line_is_answered_and_the_connection_lives(
    world: World, client: Client, line: bytes, code: int
) -> None:
    before = len(client.lines)
    await client.raw(line + b"\n")
    await client.until(lambda: len(client.lines) > before)
    assert client.lines[before]["error"]["code"] == code
    client._answers.pop(900, None)
    await alive(world, client)


async def test_a_line_without_an_end_is_refused_once(world: World, client: Client) -> None:
    before = len(client.lines)
    for _ in range(MAX_LINE // (1 << 20) + 2):
        await client.raw(b"x" * (1 << 20))
    await client.raw(b"\n")
    await client.until(lambda: len(client.lines) > before)
    assert errors(client) == [-32700]
    await alive(world, client)


@rule("RPC-2")
@pytest.mark.parametrize("request_id", [0, -1, 2**63, 10**30, "", "text", "é\u2028", "1"])
async def test_ids_are_echoed_as_they_came(client: Client, request_id: object) -> None:
    client._answers.clear()
    await client.post({"jsonrpc": "2.0", "id": request_id, "method": "session/list"})
    assert await client.answer(request_id) == {"sessions": []}
    assert type(client.lines[-1]["id"]) is type(request_id)


@rule("RPC-2")
async def test_the_id_of_a_pending_request_again(world: World, client: Client) -> None:
    session_id, fake = await world.manual(client)
    message = client.prompt_message(session_id, "x", "k")
    await client.post(message)
    await submitted(fake)
    await client.raw(json.dumps(client.prompt_message(session_id, "y", "k2") | {"id": message["id"]}).encode() + b"\n")
    await client.until(lambda: client.answered(message["id"]))
    assert errors(client) == [-32600]
    client._answers.pop(message["id"])
    fake.store(fake.submitted[0])
    assert await client.answer(message["id"]) == {"messageId": fake.submitted[0]}
    assert len(fake.submitted) == 1


@rule("RPC-3", "RPC-4")
async def test_unknown_methods_and_notifications(world: World, client: Client) -> None:
    for method in ("unknown", "session/unknown", "_custom", "x" * 10_000, "session/load", "", "session/update"):
        assert await code_of(client, method, {}) == -32601
    for method in ("unknown", "_custom", "session/update", "session/prompt", "$/unknown", "initialize"):
        await client.notify(method, {"sessionId": "x"})
    before = len(client.lines)
    await alive(world, client)
    assert all("error" not in line for line in client.lines[before:])


@rule("RPC-4", "RPC-5", "RPC-6")
async def test_meta_and_unknown_fields_are_let_through(world: World, client: Client) -> None:
    session_id = (await client.request("session/new", {"cwd": "/", "_meta": {"a": 1}, "future": True}))["sessionId"]
    params: dict[str, Any] = {
        "sessionId": session_id,
        "prompt": [{"type": "text", "text": "x", "_meta": {"b": 2}, "annotations": None}],
        "_meta": None,
    }
    await client.request("session/prompt", params)
    await client.idle(session_id)
    stored = client.updates(session_id, "user_message")[0]["content"][0]
    assert stored["_meta"] == {"b": 2}


@rule("RPC-6")
async def test_lists_are_arrays_and_nothing_is_null(world: World, client: Client) -> None:
    session_id = await world.stored(client, "x")
    await client.resume(session_id, replay=True)
    await client.request("session/list", {})
    assert "null" not in json.dumps(client.lines)


@rule("RPC-1")
async def test_texts_with_line_ends_and_control_characters_stay_on_one_line(world: World, client: Client) -> None:
    session_id = await client.new()
    content = "a\nb\r\n\x1b[2J\u2028\u2029\x85\0\U0001f511"
    await client.prompt(session_id, content)
    await client.idle(session_id)
    assert client.updates(session_id, "user_message")[0]["content"][0]["text"] == content
    await client.resume(session_id, replay=True)
    await alive(world, client)


async def test_a_flood_of_notifications_and_cancellations(world: World, client: Client) -> None:
    session_id = await client.new()
    await client.post(*[{"jsonrpc": "2.0", "method": "_noise", "params": {"n": n}} for n in range(3000)])
    await client.post(*[client.cancel_message(n) for n in range(3000)])
    await client.post(
        *[{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session_id}} for _ in range(300)]
    )
    await alive(world, client)


@pytest.mark.parametrize("params", [None, [], "x", {"sessionId": None}, {"sessionId": []}, {"sessionId": "x"}])
@pytest.mark.parametrize("method", ["session/prompt", "session/resume", "session/close", "session/fork"])
async def test_malformed_params(client: Client, method: str, params: Any) -> None:
    await client.post(message := {"jsonrpc": "2.0", "id": "p", "method": method, "params": params})
    await client.until(lambda: client.answered("p"))
    answer = client._answers["p"]
    if method == "session/close" and params == {"sessionId": "x"}:
        assert answer["result"] == {}
    else:
        assert answer["error"]["code"] in (-32602, -32600, -32002), message


async def test_huge_and_strange_session_ids(world: World, client: Client) -> None:
    for session_id in ("x" * 1_000_000, "\0", "../../../etc/passwd", "\ud800", "\u202e", "a/b", "C:\\x"):
        assert await code_of(client, "session/prompt", prompt_params(session_id, "x")) in (-32002, -32602)
        assert await code_of(client, "session/resume", {"sessionId": session_id, "cwd": "/"}) in (-32002, -32602)
    assert max(len(json.dumps(line)) for line in client.lines) < 2000, "what was sent is not sent back whole"
    await alive(world, client)
