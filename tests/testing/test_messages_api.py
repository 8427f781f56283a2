from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import h11
import pytest

import support_http
from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import ApiError, Cut, Hold, Reply, Script, Step, Stop, Text, Thinking, ToolUse
from support_http import Exchange, events

TOOLS = [{"name": "Bash"}]


def ask(*messages: dict[str, Any], stream: bool = True, **more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": stream, "tools": TOOLS, "messages": list(messages), **more}


def user(*blocks: str | dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"role": "user", "content": content}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def tool_result(text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": text, "is_error": False}


async def start(
    service: MessagesService, body: object, method: str = "POST", target: str = "/v1/messages?beta=true"
) -> Exchange:
    return await support_http.start(service.url + target, body, method)


async def fetch(
    service: MessagesService, body: object, method: str = "POST", target: str = "/v1/messages?beta=true"
) -> tuple[int, bytes]:
    return await support_http.fetch(service.url + target, body, method)


async def stream(reply: Reply) -> list[dict[str, Any]]:
    async with serve_messages(Script(default=reply)) as service:
        status, data = await fetch(service, ask(user("hi")))
        assert status == 200
        return events(data)


async def test_streams_the_events_of_every_kind_of_block() -> None:
    got = await stream([Thinking("hmm"), Text("Hello", chunk=2), ToolUse("Bash", {"command": "ls"}), ToolUse("Read")])
    kinds = [event["type"] for event in got]
    assert kinds[:2] == ["message_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    starts = [event["content_block"]["type"] for event in got if event["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use", "tool_use"]
    assert [e["index"] for e in got if e["type"] == "content_block_stop"] == [0, 1, 2, 3]
    deltas = [event["delta"] for event in got if event["type"] == "content_block_delta"]
    assert [d["text"] for d in deltas if d["type"] == "text_delta"] == ["He", "ll", "o"]
    assert any(d["type"] == "signature_delta" for d in deltas)
    assert [d["partial_json"] for d in deltas if d["type"] == "input_json_delta"] == ['{"command": "ls"}', "{}"]
    assert got[-2]["delta"]["stop_reason"] == "tool_use"
    assert got[0]["message"]["id"].startswith("msg_")


async def test_texts_around_a_hold_are_one_block() -> None:
    async with serve_messages(Script(default=[Text("a"), Hold("h"), Text("b"), Stop("max_tokens")])) as service:
        exchange = await start(service, ask(user("hi")))
        with anyio.fail_after(5):
            await exchange.send()
            await service.held("h")
            service.release("h")
            got = events(await exchange.body())
        await exchange.hang_up()
    assert [event["type"] for event in got].count("content_block_start") == 1
    assert got[-2]["delta"]["stop_reason"] == "max_tokens"


async def test_a_gated_text_goes_on_by_single_steps() -> None:
    async with serve_messages(Script(default=[Text("abcd", chunk=1, gate="slow")])) as service:
        exchange = await start(service, ask(user("hi")))
        with anyio.fail_after(5):
            await exchange.send()
            received = b""
            chunks = exchange.chunks()
            await service.held("slow")
            service.step("slow", 2)
            while b'"b"' not in received:
                received += await anext(chunks)
            assert b'"c"' not in received
            service.release("slow")
            received += b"".join([chunk async for chunk in chunks])
        await exchange.hang_up()
    assert [e["delta"].get("text") for e in events(received) if e["type"] == "content_block_delta"] == list("abcd")


async def test_a_cut_ends_the_connection_inside_a_block() -> None:
    async with serve_messages(Script(default=[Text("a"), Cut()])) as service:
        exchange = await start(service, ask(user("hi")))
        with anyio.fail_after(5):
            await exchange.send()
            with pytest.raises(h11.RemoteProtocolError):
                await exchange.body()
        await exchange.hang_up()


async def test_an_error_is_a_status_first_and_an_event_later() -> None:
    script = Script(
        [Step("first", [[ApiError(529, "overloaded_error", headers={"retry-after": "7"})]], times=1)],
        default=[Text("a"), ApiError(500, "api_error", "broke")],
    )
    async with serve_messages(script) as service:
        exchange = await start(service, ask(user("first")))
        response = await exchange.send()
        assert (response.status_code, dict(response.headers)[b"retry-after"]) == (529, b"7")
        assert json.loads(await exchange.body())["error"]["type"] == "overloaded_error"
        await exchange.hang_up()
        exchange = await start(service, ask(user("first")))
        await exchange.send()
        with pytest.raises(h11.RemoteProtocolError):
            await exchange.body()
        await exchange.hang_up()


async def test_a_hang_up_ends_a_held_reply_and_the_service_lives_on() -> None:
    async with serve_messages(Script([Step("one", [[Text("a"), Hold("never")]])])) as service:
        exchange = await start(service, ask(user("one")))
        with anyio.fail_after(5):
            await exchange.send()
            await service.held("never")
            await exchange.hang_up()
            await service.hung_up()
            status, _ = await fetch(service, ask(user("two")))
        assert status == 200


async def test_steps_follow_the_rounds_of_a_tool_loop() -> None:
    script = Script([Step("list", [[ToolUse("Bash", {"command": "ls"}, id="toolu_1")], [Text("Two files.")]])])
    async with serve_messages(script) as service:
        _, first = await fetch(service, ask(user("list"), stream=False))
        _, second = await fetch(
            service,
            ask(
                user("list"), assistant("x"), user(tool_result("a b")), {"role": "system", "content": "s"}, stream=False
            ),
        )
        _, third = await fetch(service, ask(user("list"), assistant("x"), assistant("y"), stream=False))
    assert json.loads(first)["content"][0]["id"] == "toolu_1"
    assert json.loads(second)["content"] == [{"type": "text", "text": "Two files."}]
    assert json.loads(third)["content"] == [{"type": "text", "text": "Done."}]
    assert [asked.kind for asked in service.requests] == ["turn", "continuation", "continuation"]


async def test_counts_new_input_only() -> None:
    async with serve_messages() as service:
        metadata = {"user_id": json.dumps({"session_id": "s1"})}

        async def say(*messages: dict[str, Any], **more: Any) -> None:
            await fetch(service, ask(*messages, metadata=metadata, **more))

        await say(user("<system-reminder>alpha</system-reminder>\n", "alpha"))
        await say(user("alpha", "beta"))  # alpha failed, beta was merged into its message
        await say(user("beta"), assistant("x"), user(tool_result("alpha")))
        await say(user(tool_result("no"), "[Request interrupted by user for tool use]", "gamma"))
        await say(user("alpha"), tools=[])  # a title
    assert {text: service.count(text) for text in ("alpha", "beta", "gamma")} == {"alpha": 1, "beta": 1, "gamma": 1}
    assert service.requests[1].session_id == "s1"
    assert service.requests[-1].kind == "side"


NOTIFICATION = "<task-notification>\n<task-id>b1</task-id>\n</task-notification>"


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (
            [
                tool_result("x"),
                "The user sent a new message while you were working:\nnew\n\nThis is how Claude Code surfaces it.",
            ],
            "turn",
            "new",
        ),
        ([f"<system-reminder>\nNot the user.\n{NOTIFICATION}\n</system-reminder>"], "notification", NOTIFICATION),
        (["Text only.\n\nYour task is to create a detailed summary of it all."], "summary", None),
        (
            [
                "<local-command-caveat>c</local-command-caveat>",
                "<command-name>/x</command-name>",
                "<local-command-stdout>o</local-command-stdout>",
                "new",
            ],
            "turn",
            "new",
        ),
        ([tool_result("x")], "continuation", "old"),
        ([tool_result("x"), "Tool loaded."], "continuation", "old"),
    ],
    ids=["folded", "notification", "summary", "after a command", "tool result", "tool search"],
)
async def test_tells_the_kinds_of_requests_apart(content: list[Any], kind: str, text: str | None) -> None:
    async with serve_messages() as service:
        await fetch(service, ask(user("old"), assistant("a"), user(*content)))
    asked = service.requests[0]
    assert asked.kind == kind
    assert text is None or asked.newest_text == text


async def test_a_step_can_answer_a_notification() -> None:
    script = Script([Step("old", [[Text("a")], [Text("b")]]), Step("<task-notification>", [[Text("It ended.")]])])
    async with serve_messages(script) as service:
        reminder = f"<system-reminder>{NOTIFICATION}</system-reminder>"
        _, data = await fetch(service, ask(user("old"), assistant("a"), user(reminder), stream=False))
    assert json.loads(data)["content"][0]["text"] == "It ended."


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with serve_messages():
            raise ValueError("mine")


async def test_keeps_messages_only_when_told() -> None:
    async with serve_messages(keep_messages=True) as keeping, serve_messages() as forgetting:
        for service in (keeping, forgetting):
            await fetch(service, ask(user("hi")))
    assert len(keeping.requests[0].messages) == 1
    assert forgetting.requests[0].messages == ()


async def test_waits_for_a_request() -> None:
    async with serve_messages() as service, anyio.create_task_group() as tasks:
        tasks.start_soon(fetch, service, ask(user("later")))
        with anyio.fail_after(5):
            assert (await service.asked("later")).newest_text == "later"
            assert (await service.arrived(1)).model == "m"


async def test_counts_tokens_and_answers_the_rest() -> None:
    async with serve_messages() as service:
        status, data = await fetch(service, ask(user("hi")), target="/v1/messages/count_tokens")
        assert (status, json.loads(data)["input_tokens"] > 0) == (200, True)
        assert await fetch(service, {}, method="HEAD", target="/") == (200, b"")
        status, data = await fetch(service, {}, method="GET", target="/nothing")
        assert (status, json.loads(data)["type"]) == (404, "error")


async def test_runs_as_a_process(tmp_path: Any) -> None:
    script = tmp_path / "script.json"
    parts = [
        {"thinking": "t"},
        {"text": "From a file", "chunk": 2},
        {"tool_use": "Bash", "input": {}},
        {"stop": "refusal"},
    ]
    script.write_text(json.dumps({"steps": [{"when": "hi", "replies": [parts]}]}), encoding="utf-8")
    command = [sys.executable, "-m", "sayagain.testing.messages_api", "--script", str(script)]
    async with await anyio.open_process(command) as process:
        assert process.stdout is not None
        with anyio.fail_after(20):
            url = json.loads(await process.stdout.receive())["url"]
            service = MessagesService(url, Script())
            _, data = await fetch(service, ask(user("hi"), stream=False))
            assert json.loads(data)["stop_reason"] == "refusal"
            _, data = await fetch(service, {}, method="GET", target="/stand-in/count?text=hi")
            assert json.loads(data) == {"count": 1}
            _, data = await fetch(service, {}, method="GET", target="/stand-in/requests")
            assert json.loads(data)[0]["newest_text"] == "hi"
        process.terminate()
