"""What live frames report beyond messages: calls' states, children, usage, titles, notices."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.runtime.events import ChildAnnounced, Foreground, RuntimeEvent, Update
from sayagain_claude.translate.live import LiveTranslator
from translate.rows import SESSION, answer, call, result, text

CHILD = f"{SESSION}.a1"


def system(subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, "session_id": SESSION, "uuid": "x"} | fields


def started(agent_id: str = "a1", call_id: str = "t1", **fields: Any) -> dict[str, Any]:
    marks = {"task_id": agent_id, "tool_use_id": call_id, "task_type": "local_agent", "description": "Look"}
    return system("task_started", **(marks | fields))


def of_child(frame: dict[str, Any], agent_id: str = "a1", call_id: str = "t1") -> dict[str, Any]:
    return frame | {"agent_id": agent_id, "parent_tool_use_id": call_id}


@pytest.fixture
def translator() -> LiveTranslator:
    return LiveTranslator(SESSION, "/project")


def statuses(events: list[RuntimeEvent], call_id: str = "t1") -> list[str]:
    updates = [event.update for event in events if isinstance(event, Update)]
    return [u["status"] for u in updates if u.get("toolCallId") == call_id and "status" in u]


def updates(events: list[RuntimeEvent]) -> list[dict[str, Any]]:
    return [dict(event.update) for event in events if isinstance(event, Update)]


def test_a_call_is_pending_until_something_says_that_it_runs(translator: LiveTranslator) -> None:
    opened = {"type": "content_block_start", "index": 0, "content_block": call("t1") | {"input": {}}}
    events = translator.frame({"type": "stream_event", "event": opened})
    events += translator.frame(answer("m1", call("t1")))
    assert statuses(events) == ["pending"]
    assert statuses(translator.permitted("t1")) == ["in_progress"]
    assert translator.permitted("t1") == []
    assert statuses(translator.frame(result("t1"))) == ["completed"]
    assert translator.permitted("t1") == []


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "tool_progress", "tool_use_id": "t1", "elapsed_time_seconds": 3},
        system("task_started", task_id="b1", tool_use_id="t1", task_type="local_bash"),
    ],
)
def test_progress_and_tasks_say_that_a_call_runs(translator: LiveTranslator, frame: dict[str, Any]) -> None:
    translator.frame(answer("m1", call("t1")))
    assert statuses(translator.frame(frame)) == ["in_progress"]
    assert translator.frame(frame) == []


def test_where_nothing_is_asked_a_whole_call_runs(translator: LiveTranslator) -> None:
    translator.frame(system("init", permissionMode="bypassPermissions"))
    assert statuses(translator.frame(answer("m1", call("t1")))) == ["in_progress"]
    question = call("t2", "AskUserQuestion", questions=[])
    assert statuses(translator.frame(answer("m2", question)), "t2") == ["pending"]
    translator.frame(system("status", status=None, permissionMode="default"))
    assert statuses(translator.frame(answer("m3", call("t3"))), "t3") == ["pending"]


@pytest.mark.parametrize(("reason", "status"), [("aborted_streaming", "cancelled"), ("completed", "failed")])
def test_a_turn_leaves_no_call_open(translator: LiveTranslator, reason: str, status: str) -> None:
    translator.frame(answer("m1", call("t1")))
    events = translator.frame({"type": "result", "terminal_reason": reason})
    assert statuses(events) == [status]


def test_a_child_is_announced_on_its_parent_before_anything_of_it(translator: LiveTranslator) -> None:
    translator.frame(answer("m1", call("t1", "Agent", description="Look", prompt="go")))
    events = translator.frame(started(prompt="go"))
    assert isinstance(events[0], ChildAnnounced)
    assert (events[0].parent_id, events[0].child_id) == (SESSION, CHILD)
    assert events[0].update["title"] == "Look"
    assert events[1] == Foreground(CHILD, "running")
    [call_update, task, stoppable] = updates(events)
    assert stoppable["capabilities"] == {"cancel": {}}
    assert call_update["content"] == [{"type": "session", "sessionId": CHILD}]
    assert task["messageId"] == f"{CHILD}:prompt"
    # The task is forwarded for a foreground child only (measured), and said already.
    forwarded = {"type": "user", "uuid": "u", "message": {"role": "user", "content": [text("go")]}}
    assert translator.frame(of_child(forwarded)) == []


def test_a_nested_child_belongs_to_its_own_parent(translator: LiveTranslator) -> None:
    translator.frame(started())
    events = translator.frame(started("a2", "t2", parent_task_id="a1"))
    assert isinstance(events[0], ChildAnnounced)
    assert (events[0].parent_id, events[0].child_id) == (CHILD, f"{SESSION}.a2")
    assert translator.session_of("a2") == f"{SESSION}.a2"
    assert translator.session_of(None) == SESSION


def test_a_child_without_a_start_is_announced_by_its_first_frame(translator: LiveTranslator) -> None:
    translator.frame(answer("m1", call("t1", "Skill")))
    frame = of_child(answer("c1", text("Hi"))) | {"task_description": "Forked"}
    events = translator.frame(frame)
    assert isinstance(events[0], ChildAnnounced)
    assert events[0].update["title"] == "Forked"
    assert updates(events)[-1]["messageId"] == "c1"


@pytest.mark.parametrize(
    ("status", "reason"),
    [("completed", "end_turn"), ("failed", "error"), ("killed", "cancelled"), ("stopped", "cancelled")],
)
def test_a_child_ends_once_and_closes_its_calls(translator: LiveTranslator, status: str, reason: str) -> None:
    translator.frame(started())
    translator.frame(of_child(answer("c1", call("t9"))))
    events = translator.frame(system("task_updated", task_id="a1", patch={"status": status, "error": "No"}))
    events += translator.frame(system("task_notification", task_id="a1", status="completed"))
    ends = [event for event in events if isinstance(event, Foreground)]
    assert [(end.session_id, end.state, end.stop_reason) for end in ends] == [(CHILD, "idle", reason)]
    assert statuses(events, "t9") == ["failed" if reason == "error" else "cancelled"]


def test_a_resumed_child_runs_again_without_a_second_announcement(translator: LiveTranslator) -> None:
    translator.frame(started())
    translator.frame(system("task_notification", task_id="a1", status="completed"))
    events = translator.frame(started())
    assert events == [Foreground(CHILD, "running")]


def test_calls_with_one_id_in_two_sessions_are_kept_apart(translator: LiveTranslator) -> None:
    translator.frame(started())
    translator.frame(started("a2", "t2"))
    translator.frame(of_child(answer("c1", call("same"))))
    translator.frame(of_child(answer("c2", call("same")), "a2", "t2"))
    for event in translator.frame(of_child(result("same"), "a2", "t2")):
        assert isinstance(event, Update)
        assert event.session_id == f"{SESSION}.a2"


def test_the_end_of_the_process_closes_everything(translator: LiveTranslator) -> None:
    translator.frame(answer("m1", call("t1")))
    translator.frame(started())
    events = translator.close_calls("failed")
    assert statuses(events) == ["failed"]
    assert [event.state for event in events if isinstance(event, Foreground)] == ["idle"]
    assert translator.close_calls("failed") == []


def test_the_roots_own_prompts_and_notes_are_not_reported(translator: LiveTranslator) -> None:
    message = {"role": "user", "content": "Hi"}
    assert translator.frame({"type": "user", "uuid": "u1", "message": message, "isReplay": True}) == []
    note = {"role": "user", "content": [text("[Request interrupted by user]")]}
    assert translator.frame({"type": "user", "uuid": "u2", "message": note}) == []


def test_an_answer_that_did_not_stream_is_reported_whole(translator: LiveTranslator) -> None:
    events = translator.frame(answer("m1", text("Hi"))) + translator.frame(answer("m1", text(" there")))
    assert [update["content"]["text"] for update in updates(events)] == ["Hi", " there"]
    assert {update["messageId"] for update in updates(events)} == {"m1"}


def test_what_the_stream_lacked_of_a_block_is_added(translator: LiveTranslator) -> None:
    for event in (
        {"type": "message_start", "message": {"id": "m1"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    ):
        translator.frame({"type": "stream_event", "event": event})
    [update] = updates(translator.frame(answer("m1", text("Hi there"))))
    assert update["content"]["text"] == " there"


def test_a_local_commands_output_has_the_id_of_its_row(translator: LiveTranslator) -> None:
    frame = answer("made-up", text("Output\n"), uuid="row-id")
    frame["message"]["model"] = "<synthetic>"
    [update] = updates(translator.frame(frame))
    assert (update["messageId"], update["content"]["text"]) == ("row-id", "Output")


def test_usage_is_reported_once_the_windows_size_is_known(translator: LiveTranslator) -> None:
    start = {"id": "m1", "model": "claude-x", "usage": {"input_tokens": 100, "cache_read_input_tokens": 20}}
    turn = [
        {"type": "stream_event", "event": {"type": "message_start", "message": start}},
        {"type": "stream_event", "event": {"type": "message_delta", "usage": {"output_tokens": 5}}},
    ]
    assert [event for frame in turn for event in translator.frame(frame)] == []
    end = {"type": "result", "total_cost_usd": 0.5, "modelUsage": {"claude-x": {"contextWindow": 1000}}}
    expected = {"sessionUpdate": "usage_update", "used": 125, "size": 1000, "cost": {"amount": 0.5, "currency": "USD"}}
    assert updates(translator.frame(end)) == [expected]
    assert translator.frame(end) == []
    boundary = system("compact_boundary", uuid="c1", compact_metadata={"post_tokens": 7})
    assert updates(translator.frame(boundary))[-1]["used"] == 7


def test_a_title_is_reported(translator: LiveTranslator) -> None:
    assert updates(translator.frame(system("session_title_changed", title="New"))) == [
        {"sessionUpdate": "session_info_update", "title": "New"}
    ]


def test_a_compaction_has_the_boundarys_id_and_then_its_summary(translator: LiveTranslator) -> None:
    [notice] = updates(translator.frame(system("status", status="compacting")))
    assert notice["sessionUpdate"] == "notice"
    events = translator.frame(system("compact_boundary", uuid="c1"))
    message = {"role": "user", "content": "Summary of it"}
    events += translator.frame({"type": "user", "uuid": "s", "isSynthetic": True, "message": message})
    assert [(u["compactionId"], u["status"], u.get("summary")) for u in updates(events)] == [
        ("c1", "completed", None),
        ("c1", "completed", [{"type": "text", "text": "Summary of it"}]),
    ]


@pytest.mark.parametrize(
    ("frame", "severity", "title"),
    [
        (system("informational", level="warning", content="Careful\nnow"), "warning", "Careful"),
        (system("api_retry", attempt=1, error="overloaded", error_status=529), "warning", "The model service"),
        (system("mirror_error", error="x"), "error", "Some of"),
        (
            system("model_fallback", original_model="a", fallback_model="b", content="c"),
            "warning",
            "Switched from a to b",
        ),
        (system("model_refusal_no_fallback", original_model="a", content="No."), "warning", "No."),
        (system("init", mcp_servers=[{"name": "s", "status": "failed"}]), "warning", "MCP server s failed to start"),
        (system("status", status=None, compact_result="failed"), "warning", "The conversation could not"),
        (
            {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "rateLimitType": "five_hour"}},
            "error",
            "The five hour limit is reached",
        ),
    ],
)
def test_notices(translator: LiveTranslator, frame: dict[str, Any], severity: str, title: str) -> None:
    [notice] = updates(translator.frame(frame))
    assert (notice["sessionUpdate"], notice["severity"]) == ("notice", severity)
    assert notice["title"].startswith(title)


@pytest.mark.parametrize(
    ("resets_at", "words"),
    [
        (4102444800, "It resets at 2100-01-01 00:00 UTC."),
        (1e300, None),
        (float("nan"), None),
        (True, None),
        ("soon", None),
        (None, None),
    ],
)
def test_a_limit_says_when_it_ends(translator: LiveTranslator, resets_at: Any, words: str | None) -> None:
    info = {"status": "allowed_warning", "rateLimitType": "seven_day", "resetsAt": resets_at}
    frame = {"type": "rate_limit_event", "rate_limit_info": info}
    [notice] = updates(translator.frame(frame))
    assert (notice["title"], notice.get("description")) == ("The seven day limit is nearly reached", words)
    assert translator.frame(frame) == []


@pytest.mark.parametrize(
    "frame",
    [
        system("informational", level="info", content="quiet"),
        system("informational", level="warning", content="blocked", prompt_submit_outcome={"kind": "blocked_by_hook"}),
        system("api_retry", attempt=2),
        {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
        system("thinking_tokens", estimated_tokens=1),
        {"type": "command_lifecycle", "state": "started"},
        {"type": "from_the_future"},
        {},
    ],
)
def test_what_is_no_news_for_a_user_gives_nothing(translator: LiveTranslator, frame: dict[str, Any]) -> None:
    assert translator.frame(frame) == []


def test_the_same_news_is_given_once(translator: LiveTranslator) -> None:
    frame = system("init", mcp_servers=[{"name": "s", "status": "needs-auth"}])
    assert len(translator.frame(frame)) == 1
    assert translator.frame(frame) == []


def test_a_finished_turn_leaves_nothing_behind(translator: LiveTranslator) -> None:
    for number in range(50):
        translator.frame(answer(f"m{number}", call(f"t{number}")))
        translator.frame(result(f"t{number}"))
        translator.frame({"type": "result"})
    assert translator.tool_use("t49") is None
    assert translator.close_calls("failed") == []


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_tool_whose_name_is_no_text_is_some_tool(translator: LiveTranslator, mode: str) -> None:
    translator.frame(system("status", permissionMode=mode))
    nameless = call("t1") | {"name": {"a": 1}}
    assert statuses(translator.frame(answer("m1", nameless)) + translator.frame(result("t1")))[-1] == "completed"
