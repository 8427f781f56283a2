"""Requests of the agent to its client (PER-*, CAN-6, RPL-6, UPD-5)."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.runtime.events import Foreground
from support_agent import Client, Stop, World, settle, updates_before
from support_rules import rule

START = {"replayFrom": {"type": "start"}}


def answer(request_id: object, outcome: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": {"outcome": outcome}}


SELECTED = {"outcome": "selected", "optionId": "allow"}


async def asked(client: Client, count: int = 1) -> dict[str, Any]:
    await client.until(lambda: len(client.asked) >= count)
    return client.asked[count - 1]


@rule("PER-1")
async def test_a_permission_is_asked_and_answered(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.ask("p")
    request = await asked(client)
    assert request["method"] == "session/request_permission"
    assert request["params"]["sessionId"] == session_id
    await client.post(answer(request["id"], SELECTED))
    await fake.until(lambda: fake.answers.get("p") == {"outcome": SELECTED})


@rule("PER-1", "PER-2")
async def test_the_request_goes_out_as_the_runtime_made_it(world: World, client: Client) -> None:
    _, fake = await world.work(client)
    fake.ask("p", subject={"type": "command", "command": "ls", "cwd": "/"})
    request = await asked(client)
    assert request["params"]["subject"] == {"type": "command", "command": "ls", "cwd": "/"}


@rule("PER-3")
@pytest.mark.parametrize(
    "message",
    [{"error": {"code": -32603, "message": "no"}}, {"result": None}, {"result": [1]}, {"result": "yes"}, {"error": 5}],
)
async def test_an_answer_that_is_none_is_no_approval(world: World, client: Client, message: dict[str, Any]) -> None:
    _, fake = await world.work(client)
    fake.ask("p")
    request = await asked(client)
    await client.post({"jsonrpc": "2.0", "id": request["id"], **message})
    await fake.until(lambda: "p" in fake.answers)
    assert fake.answers["p"] is None


@rule("CAN-6", "PER-5")
async def test_a_withdrawn_request_is_cancelled_and_its_late_answer_ignored(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.ask("p")
    request = await asked(client)
    fake.withdraw_ask("p")
    await client.until(
        lambda: any(
            line.get("method") == "$/cancel_request" and line["params"] == {"requestId": request["id"]}
            for line in client.lines
        )
    )
    fake.finish("cancelled")
    await client.post(answer(request["id"], SELECTED))
    await client.post(answer(request["id"], SELECTED))
    await settle()
    assert fake.answers == {}
    assert client.states(session_id) == ["running", "idle:cancelled"]


@rule("CAN-6", "RPC-2")
@pytest.mark.parametrize("request_id", [1, 77, "77", None, 1.5, True, {}])
async def test_answers_to_nothing_are_ignored(world: World, client: Client, request_id: object) -> None:
    session_id = await client.new()
    await client.post({"jsonrpc": "2.0", "id": request_id, "result": {}})
    await client.post({"jsonrpc": "2.0", "id": request_id, "error": {"code": 1, "message": "x"}})
    await client.post({"jsonrpc": "2.0", "result": {}})
    await client.prompt(session_id, "x")
    assert all("error" not in line for line in client.lines)


@rule("RPC-2")
async def test_our_request_ids_are_never_used_twice(world: World, client: Client) -> None:
    _, fake = await world.work(client)
    for n in range(5):
        fake.ask(f"p{n}")
        request = await asked(client, n + 1)
        await client.post(answer(request["id"], SELECTED))
        await fake.until(lambda n=n: f"p{n}" in fake.answers)  # type: ignore[misc]
    assert len({request["id"] for request in client.asked}) == 5


@rule("UPD-5", "PER-5")
async def test_answering_one_of_several_requests_is_not_running(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.ask("one")
    fake.ask("two")
    fake.emit(Foreground(session_id, "requires_action"))
    await asked(client, 2)
    await client.post(answer(client.asked[0]["id"], SELECTED))
    await fake.until(lambda: "one" in fake.answers)
    await settle()
    assert client.states(session_id) == ["running", "requires_action"]
    await client.post(answer(client.asked[1]["id"], SELECTED))
    await fake.until(lambda: "two" in fake.answers)
    fake.run()
    fake.finish()
    await client.idle(session_id)
    assert client.states(session_id) == ["running", "requires_action", "running", "idle:end_turn"]


@rule("RPL-6", "RES-8", "PER-4")
async def test_a_permission_that_is_pending_at_the_cut_waits_for_the_marker(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.ask("p")
    first = await asked(client)
    await client.close()
    await settle()
    assert fake.answers == {}, "it stays open for the next client"
    stop = world.store.before_entry = Stop()
    other = await world.connect()
    request = await other.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    fake.ask("q")
    await settle()
    assert other.asked == []
    stop.go()
    await other.answer(request)
    await asked(other, 2)
    marker = other.update_index(session_id, "replay_complete")
    places = [other.lines.index(each) for each in other.asked]
    assert min(places) > marker
    assert {each["params"]["title"] for each in other.asked} == {"Allow p?", "Allow q?"}
    assert [first["params"]] == [each["params"] for each in other.asked if each["params"]["title"] == "Allow p?"]
    for each in other.asked:
        await other.post(answer(each["id"], SELECTED))
    await fake.until(lambda: set(fake.answers) == {"p", "q"})


@rule("RPL-6", "CAN-6")
async def test_a_permission_that_is_withdrawn_behind_the_gate_is_never_asked(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    fake.ask("p")
    await settle()
    fake.withdraw_ask("p")
    await settle()
    stop.go()
    await client.answer(request)
    await settle()
    assert client.asked == []
    assert "session/request_permission" not in str(client.lines)


@rule("RPL-6", "UPD-1")
async def test_what_waited_keeps_the_order_of_updates_and_requests(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    stop = world.store.before_entry = Stop()
    request = await client.begin("session/resume", {"sessionId": session_id, "cwd": "/", **START})
    await stop.reached.wait()
    fake.say("before", message_id="m", stored=False)
    fake.ask("p")
    fake.say("after", message_id="m", stored=False)
    await settle()
    stop.go()
    await client.answer(request)
    await asked(client)
    place = client.lines.index(client.asked[0])
    chunks = [n for n, line in enumerate(client.lines) if "agent_message_chunk" in str(line)]
    assert [n < place for n in chunks] == [True, False]
    assert "agent_message_chunk" not in updates_before(client, session_id, start=len(client.lines) - 8)


@rule("PER-5")
async def test_one_client_is_asked_and_another_after_it_left(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    other = await world.connect()
    await other.resume(session_id)
    fake.ask("p")
    await asked(client)
    await settle()
    assert other.asked == []
    await client.close()
    request = await asked(other)
    await other.post(answer(request["id"], SELECTED))
    await fake.until(lambda: "p" in fake.answers)


@rule("CAN-6", "CLS-1")
async def test_closing_a_session_cancels_its_requests(world: World, client: Client) -> None:
    session_id, fake = await world.work(client)
    fake.ask("p")
    request = await asked(client)
    close = await client.begin("session/close", {"sessionId": session_id})
    await client.answer(close)
    cancels = [n for n, line in enumerate(client.lines) if line.get("method") == "$/cancel_request"]
    assert len(cancels) == 1
    assert cancels[0] < client.answer_index(close)
    await client.post(answer(request["id"], SELECTED))
    await settle()
    assert fake.answers == {}
