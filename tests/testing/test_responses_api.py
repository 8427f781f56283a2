from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

import anyio
import h11
import pytest

from sayagain.testing.responses_api import ResponsesService, serve_responses
from sayagain.testing.responses_script import (
    CONTEXT_OVERFLOW,
    ApiError,
    Cut,
    Hold,
    Item,
    Reasoning,
    Reply,
    Script,
    Step,
    Stop,
    Text,
    ToolUse,
    Usage,
    WebSearch,
    exec_command,
    in_code,
    mcp_tool,
    parse_script,
)
from support_http import Exchange, events, fetch, start

_NUMBERS = count(1)
ENVIRONMENT = "<environment_context>\n  <cwd>/somewhere</cwd>\n</environment_context>"
SUMMARY = "Another language model started to solve this problem and so on"


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    number = next(_NUMBERS)
    return {"type": "message", "id": f"msg_{number}", "role": role, "content": [{"type": kind, "text": text}]}


def user(text: str) -> dict[str, Any]:
    return said("user", text)


def called(call_id: str = "call_1") -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "exec_command", "arguments": "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": "hi"},
    ]


def ask(*items: dict[str, Any], thread: str = "t", kind: str = "turn", **more: Any) -> dict[str, Any]:
    metadata = {"x-codex-turn-metadata": json.dumps({"thread_id": thread, "request_kind": kind})}
    return {"model": "m", "stream": True, "input": list(items), "client_metadata": metadata, **more}


async def post(service: ResponsesService, body: object) -> tuple[int, bytes]:
    return await fetch(f"{service.url}/v1/responses", body)


async def begin(service: ResponsesService, body: object) -> Exchange:
    return await start(f"{service.url}/v1/responses", body)


async def stream(*reply: Any) -> list[dict[str, Any]]:
    async with serve_responses(Script(default=reply)) as service:
        status, data = await post(service, ask(user("hi")))
        assert status == 200
        return events(data)


def done(got: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["item"] for event in got if event["type"] == "response.output_item.done"]


def deltas(got: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["delta"] for event in got if event["type"] == f"response.{kind}.delta"]


async def test_streams_the_events_of_every_kind_of_item() -> None:
    got = await stream(
        Reasoning(["hmm", "so"], ["raw"], chunk=2),
        Text("Hello", chunk=2),
        exec_command("ls", id="call_a"),
        ToolUse("apply_patch", "*** Begin", chunk=5),
        mcp_tool("echo", "echo", {"text": "x"}),
        WebSearch("ants"),
        Item({"type": "custom"}),
    )
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert (got[0]["type"], got[-1]["type"]) == ("response.created", "response.completed")
    items = done(got)
    assert [item["type"] for item in items] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "function_call",
        "web_search_call",
        "custom",
    ]
    assert [event["output_index"] for event in got if event["type"] == "response.output_item.added"] == list(range(7))
    assert items[0]["summary"] == [{"type": "summary_text", "text": "hmm"}, {"type": "summary_text", "text": "so"}]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "raw"}]
    assert deltas(got, "reasoning_summary_text") == ["hm", "m", "so"]
    assert deltas(got, "reasoning_text") == ["ra", "w"]
    assert deltas(got, "output_text") == ["He", "ll", "o"]
    assert items[1]["content"][0]["text"] == "Hello"
    assert json.loads(items[2]["arguments"]) == {"cmd": "ls"}
    assert items[2]["call_id"] == "call_a"
    assert deltas(got, "custom_tool_call_input") == ["*** B", "egin"]
    assert items[3]["input"] == "*** Begin"
    assert items[4]["namespace"] == "mcp__echo"
    assert items[5]["action"] == {"type": "search", "query": "ants"}
    assert len({item["id"] for item in items}) == 7


async def test_reports_usage_and_an_end_before_the_end() -> None:
    got = await stream(Text("a"), Usage(10, 5, cached_tokens=4, reasoning_tokens=2), Stop("max_output_tokens"))
    assert got[-1]["type"] == "response.incomplete"
    ended = got[-1]["response"]
    assert ended["incomplete_details"] == {"reason": "max_output_tokens"}
    assert ended["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }


async def test_another_phase_is_another_message() -> None:
    got = await stream(Text("a", phase="commentary"), Text("b", phase="commentary"), Text("c", phase="final_answer"))
    assert [(item["phase"], item["content"][0]["text"]) for item in done(got)] == [
        ("commentary", "ab"),
        ("final_answer", "c"),
    ]


async def test_texts_around_a_hold_are_one_message() -> None:
    async with serve_responses(Script(default=[Text("a"), Hold("h"), Text("b")])) as service:
        exchange = await begin(service, ask(user("hi")))
        with anyio.fail_after(5):
            await exchange.send()
            await service.held("h")
            service.release("h")
            got = events(await exchange.body())
        await exchange.hang_up()
    assert [item["content"][0]["text"] for item in done(got)] == ["ab"]


async def test_a_gated_text_goes_on_by_single_steps() -> None:
    async with serve_responses(Script(default=[Text("abc", chunk=1, gate="slow")])) as service:
        exchange = await begin(service, ask(user("hi")))
        with anyio.fail_after(5):
            await exchange.send()
            await service.held("slow")
            service.step("slow", 2)
            seen = b""
            chunks = exchange.chunks()
            while seen.count(b"output_text.delta\n") < 2:
                seen += await anext(chunks)
            service.step("slow")
            seen += b"".join([chunk async for chunk in chunks])
        await exchange.hang_up()
    assert deltas(events(seen), "output_text") == ["a", "b", "c"]


async def test_a_cut_ends_the_connection_inside_a_message() -> None:
    async with serve_responses(Script(default=[Text("half"), Cut()])) as service:
        exchange = await begin(service, ask(user("hi")))
        await exchange.send()
        with pytest.raises(h11.RemoteProtocolError):
            await exchange.body()
        await exchange.hang_up()


async def test_an_error_is_a_status_first_and_an_event_later() -> None:
    replies: list[Reply] = [[ApiError(429, "usage_limit_reached", "no", {"retry-after": "7"})], [CONTEXT_OVERFLOW]]
    async with serve_responses(Script([Step(f"{n}", [reply]) for n, reply in enumerate(replies)])) as service:
        exchange = await begin(service, ask(user("0")))
        response = await exchange.send()
        assert (response.status_code, dict(response.headers)[b"retry-after"]) == (429, b"7")
        assert json.loads(await exchange.body())["error"] == {
            "type": "usage_limit_reached",
            "code": "usage_limit_reached",
            "message": "no",
        }
        await exchange.hang_up()
        status, data = await post(service, ask(user("1")))
        assert status == 200
        last = events(data)[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "context_length_exceeded")
    with_text = await stream(Text("a"), ApiError(500, "server_error"))
    assert [event["type"] for event in with_text][-2:] == ["response.output_item.done", "response.failed"]


async def test_a_hang_up_ends_a_held_reply_and_the_service_lives_on() -> None:
    async with serve_responses(Script([Step("first", [[Hold("h")]])])) as service:
        exchange = await begin(service, ask(user("first")))
        with anyio.fail_after(5):
            await exchange.send()
            await service.held("h")
            await exchange.hang_up()
            await service.hung_up()
            assert (await post(service, ask(user("second"))))[0] == 200


async def test_steps_follow_the_rounds_of_a_tool_loop() -> None:
    script = Script([Step("go", [[exec_command("a")], [exec_command("b")], [Text("end")]])])
    async with serve_responses(script) as service:
        prompt = user("go")
        await post(service, ask(prompt))
        await post(service, ask(prompt, *called()))
        await post(service, ask(prompt, *called(), *called("call_2")))
        assert [asked.round for asked in service.requests] == [0, 1, 2]
        assert [asked.kind for asked in service.requests] == ["turn", "continuation", "continuation"]
        assert service.requests[2].tool_results[0].text == "hi"


async def test_counts_new_input_only() -> None:
    async with serve_responses() as service:
        first, failed, second = user("first"), user("failed"), user("second")
        opening = [said("developer", "instructions"), user(ENVIRONMENT)]
        await post(service, ask(*opening, first))
        await post(service, ask(*opening, first))  # the runtime asks again after an error
        await post(service, ask(*opening, first, said("assistant", "yes"), failed))
        await post(service, ask(*opening, first, said("assistant", "yes"), failed, second))
        assert [asked.newest_text for asked in service.requests] == ["first", "first", "failed", "second"]
        assert [service.count(text) for text in ("first", "failed", "second")] == [2, 1, 1]
        assert service.requests[-1].inputs == ("first", "failed", "second")


async def test_a_steered_prompt_starts_and_a_ghost_is_seen() -> None:
    async with serve_responses() as service:
        prompt, ghost, again = user("go"), user("told twice"), user("told twice")
        await post(service, ask(prompt))
        await post(service, ask(prompt, *called(), ghost))
        assert (service.count("told twice"), service.occurrences("told twice")) == (1, 1)
        await post(service, ask(prompt, *called(), ghost, again))
        assert (service.count("told twice"), service.occurrences("told twice")) == (2, 2)
        assert service.occurrences("never told") == 0


async def test_a_compaction_is_told_from_a_turn() -> None:
    async with serve_responses() as service:
        prompt, later = user("go"), user("later")
        await post(service, ask(prompt))
        await post(service, ask(prompt, *called(), user("Make a summary"), kind="compaction"))
        await post(service, ask(prompt, user(SUMMARY)))
        await post(service, ask(prompt, user(SUMMARY), *called()))
        await post(service, ask(prompt, user(SUMMARY), later))
        assert [(asked.kind, asked.round) for asked in service.requests] == [
            ("turn", 0),
            ("summary", 0),
            ("continuation", 1),
            ("continuation", 2),
            ("turn", 0),
        ]
        assert (service.count("go"), service.count("later")) == (1, 1)


def told(kind: str, *content: dict[str, Any]) -> dict[str, Any]:
    header = {"type": "input_text", "text": f"Message Type: {kind}\nSender: /root\n"}
    return {"type": "agent_message", "id": f"amsg_{next(_NUMBERS)}", "content": [header, *content]}


async def test_a_subagents_task_is_its_turn_and_its_answer_a_notification() -> None:
    async with serve_responses() as service:
        task = told("NEW_TASK", {"type": "encrypted_content", "encrypted_content": "do your part"})
        prompt, answer = user("delegate"), told("FINAL_ANSWER")
        await post(service, ask(prompt, thread="parent"))
        await post(service, ask(prompt, task, thread="child"))
        await post(service, ask(prompt, *called(), answer, thread="parent"))
        await post(service, ask(prompt, *called(), said("assistant", "done"), answer, thread="parent"))
        assert [(asked.kind, asked.newest_text) for asked in service.requests[:3]] == [
            ("turn", "delegate"),
            ("turn", "do your part"),
            ("continuation", "delegate"),
        ]
        assert service.requests[3].kind == "notification"
        assert service.requests[3].newest_text.startswith("Message Type: FINAL_ANSWER")
        assert service.requests[1].thread_id == "child"


async def test_names_the_tools_on_offer() -> None:
    async with serve_responses() as service:
        space = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
        offer = {"type": "additional_tools", "role": "developer", "tools": [space]}
        await post(service, ask(offer, user("hi"), tools=[{"type": "web_search"}, {"type": "function", "name": "f"}]))
        assert service.requests[0].tools == ("web_search", "f", "functions.exec")


async def test_side_requests_never_reach_the_steps() -> None:
    async with serve_responses(Script([Step(None, [[Text("a step")]])])) as service:
        _, data = await post(service, ask(user("hi"), kind="title"))
        assert service.requests[0].kind == "side"
        assert b"a step" not in data


def test_a_call_in_code_names_the_tool_and_its_input() -> None:
    call = in_code(mcp_tool("echo", "echo", {"text": "x"}))
    assert call.name == "exec"
    assert 'tools.mcp__echo__echo({"text": "x"})' in str(call.input)


async def test_refuses_web_sockets_and_other_paths() -> None:
    async with serve_responses() as service:
        assert (await fetch(f"{service.url}/v1/responses", {}, "GET"))[0] == 426
        assert (await fetch(f"{service.url}/v1/else", {}))[0] == 404
        assert (await fetch(f"{service.url}/stand-in/else", {}))[0] == 404


async def test_keeps_items_only_when_told() -> None:
    async with serve_responses() as short, serve_responses(keep_items=True) as whole:
        for service in (short, whole):
            await post(service, ask(user("hi")))
        assert (len(short.requests[0].items), len(whole.requests[0].items)) == (0, 1)


async def test_runs_as_a_process(tmp_path: Any) -> None:
    script = tmp_path / "script.json"
    parts: list[dict[str, Any]] = [
        {"reasoning": ["t"], "chunk": 1},
        {"text": "From a file", "chunk": 2, "phase": "commentary"},
        {"tool_use": "exec_command", "input": {"cmd": "ls"}},
        {"web_search": "ants"},
        {"item": {"type": "custom"}},
        {"usage": {"input_tokens": 1, "output_tokens": 2}},
        {"stop": "content_filter"},
    ]
    document = {"steps": [{"when": "hi", "replies": [parts]}], "default": [{"error": "x", "status": 500}]}
    script.write_text(json.dumps(document), encoding="utf-8")
    command = [sys.executable, "-m", "sayagain.testing.responses_api", "--script", str(script)]
    async with await anyio.open_process(command) as process:
        assert process.stdout is not None
        with anyio.fail_after(20):
            url = json.loads(await process.stdout.receive())["url"]
            _, data = await fetch(f"{url}/v1/responses", ask(user("hi")))
            assert len(done(events(data))) == 5
            assert events(data)[-1]["type"] == "response.incomplete"
            status, _ = await fetch(f"{url}/v1/responses", ask(user("other")))
            assert status == 500
            for target, answer in {
                "count?text=hi": {"count": 1},
                "occurrences?text=hi": {"occurrences": 1},
                "release?name=h": {},
            }.items():
                assert json.loads((await fetch(f"{url}/stand-in/{target}", {}, "GET"))[1]) == answer
            _, data = await fetch(f"{url}/stand-in/requests", {}, "GET")
            assert json.loads(data)[0]["newest_text"] == "hi"
        process.terminate()


def test_refuses_parts_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="none of the known names"):
        parse_script({"default": [{"nonsense": 1}]})
