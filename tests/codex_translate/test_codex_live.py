"""Notifications of a session as events: streams, terminals, children, notices."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sayagain.runtime.events import ChildAnnounced, Foreground, RuntimeEvent, Update
from sayagain_codex.translate.live import LiveTranslator

ROOT = "root"
ABOUT = {"threadId": ROOT, "turnId": "t1"}


class World:
    def __init__(self) -> None:
        self.translator = LiveTranslator(ROOT, "/w")

    def say(self, method: str, thread: str = ROOT, **params: Any) -> list[RuntimeEvent]:
        return self.translator.notification(method, {"threadId": thread, "turnId": "t1", **params})

    def started(self, kind: str, thread: str = ROOT, /, **item: Any) -> list[RuntimeEvent]:
        return self.say("item/started", thread, item={"type": kind, "id": "i", **item})

    def completed(self, kind: str, thread: str = ROOT, /, **item: Any) -> list[RuntimeEvent]:
        return self.say("item/completed", thread, item={"type": kind, "id": "i", **item})

    def turn_over(self, status: str = "completed", thread: str = ROOT, **turn: Any) -> list[RuntimeEvent]:
        return self.say("turn/completed", thread, turn={"id": "t1", "status": status, **turn})


@pytest.fixture
def world() -> World:
    return World()


def updates(events: list[RuntimeEvent]) -> list[dict[str, Any]]:
    return [dict(event.update) for event in events if isinstance(event, Update)]


def texts(events: list[RuntimeEvent]) -> list[str]:
    return [update["content"]["text"] for update in updates(events) if update["sessionUpdate"].endswith("_chunk")]


COMMAND: dict[str, Any] = {
    "command": "bash -lc 'make'",
    "cwd": "/w",
    "processId": "7",
    "status": "inProgress",
    "commandActions": [],
}
DONE = {**COMMAND, "status": "completed", "exitCode": 0}


# Texts


def test_what_was_streamed_is_not_sent_again(world: World) -> None:
    world.started("agentMessage", text="")
    assert texts(world.say("item/agentMessage/delta", itemId="i", delta="Hel")) == ["Hel"]
    assert texts(world.say("item/agentMessage/delta", itemId="i", delta="lo")) == ["lo"]
    assert world.completed("agentMessage", text="Hello") == []


def test_a_message_that_ends_otherwise_is_sent_whole(world: World) -> None:
    world.started("agentMessage", text="")
    world.say("item/agentMessage/delta", itemId="i", delta="Hel")
    assert updates(world.completed("agentMessage", text="Other"))[0]["content"] == [{"type": "text", "text": "Other"}]


def test_a_message_without_deltas_is_sent_whole(world: World) -> None:
    assert updates(world.completed("agentMessage", text="Whole"))[0]["sessionUpdate"] == "agent_message"


def test_parts_of_a_thought_have_a_blank_line_between(world: World) -> None:
    world.started("reasoning", summary=[], content=[])
    said = world.say("item/reasoning/summaryPartAdded", itemId="i", summaryIndex=0)
    said += world.say("item/reasoning/summaryTextDelta", itemId="i", summaryIndex=0, delta="a")
    said += world.say("item/reasoning/summaryTextDelta", itemId="i", summaryIndex=1, delta="b")
    said += world.say("item/reasoning/textDelta", itemId="i", contentIndex=0, delta="c")
    assert texts(said) == ["a", "\n\nb", "\n\nc"]
    assert world.completed("reasoning", summary=["a", "b"], content=["c"]) == []


def test_what_is_said_anew_is_taken_back(world: World) -> None:
    world.started("agentMessage", text="")
    world.say("item/agentMessage/delta", itemId="i", delta="Half")
    taken, notice = updates(world.say("error", error={"message": "Reconnecting"}, willRetry=True))
    assert taken == {"sessionUpdate": "agent_message", "messageId": "i.t1", "content": []}
    assert notice["sessionUpdate"] == "notice"
    assert updates(world.completed("agentMessage", text="Half and more"))[0]["content"][0]["text"] == "Half and more"


def test_deltas_of_items_that_nobody_started_are_left_out(world: World) -> None:
    assert world.say("item/agentMessage/delta", itemId="i", delta="x") == []
    assert world.say("item/commandExecution/outputDelta", itemId="i", delta="x") == []


def test_a_proposed_plan_grows_by_lines(world: World) -> None:
    world.started("plan", text="")
    assert world.say("item/plan/delta", itemId="i", delta="# P") == []
    grown = updates(world.say("item/plan/delta", itemId="i", delta="lan\n1."))
    assert grown[0]["plan"] == {"type": "markdown", "planId": "i.t1", "content": "# Plan\n1."}
    assert updates(world.completed("plan", text="# Plan\n1. x"))[0]["plan"]["content"] == "# Plan\n1. x"


def test_the_root_prompts_are_the_sessions_own(world: World) -> None:
    content = [{"type": "text", "text": "x"}]
    assert world.completed("userMessage", clientId="ours", content=content) == []
    assert updates(world.completed("userMessage", clientId=None, content=content))[0]["messageId"] == "i"


# Terminals


def test_output_is_complete_from_its_first_byte(world: World) -> None:
    world.started("commandExecution", **COMMAND)
    chunk = updates(world.say("item/commandExecution/outputDelta", itemId="i", delta="two\n"))[0]
    assert base64.b64decode(chunk["data"]) == b"two\n"
    terminal = updates(world.completed("commandExecution", **DONE, aggregatedOutput="one\ntwo\n"))[0]
    assert base64.b64decode(terminal["output"]["data"]) == b"one\ntwo\n"


def test_output_that_was_streamed_whole_is_not_sent_again(world: World) -> None:
    world.started("commandExecution", **COMMAND)
    world.say("item/commandExecution/outputDelta", itemId="i", delta="one\n")
    world.say("item/commandExecution/outputDelta", itemId="i", delta="zwöi\n")
    terminal = updates(world.completed("commandExecution", **DONE, aggregatedOutput="one\nzwöi\n"))[0]
    assert terminal == {
        "sessionUpdate": "terminal_update",
        "terminalId": "i.t1",
        "exitStatus": {"exitCode": 0},
        "capabilities": None,
    }


def test_an_aggregate_that_was_cut_replaces_nothing(world: World) -> None:
    world.started("commandExecution", **COMMAND)
    world.say("item/commandExecution/outputDelta", itemId="i", delta="0123456789")
    assert "output" not in updates(world.completed("commandExecution", **DONE, aggregatedOutput="01…89"))[0]


def test_a_call_tells_only_what_changed(world: World) -> None:
    world.started("commandExecution", **COMMAND)
    call = updates(world.completed("commandExecution", **DONE))[-1]
    assert call == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "i.t1",
        "status": "completed",
        "rawOutput": {"exitCode": 0},
    }


def test_a_command_runs_on_in_the_background(world: World) -> None:
    world.started("commandExecution", **COMMAND)
    assert world.translator.background(ROOT) == []
    assert world.turn_over("interrupted") == []
    assert world.translator.background(ROOT) == [{"type": "terminal", "terminalId": "i.t1"}]
    terminal = world.translator.terminals()[0]
    assert (terminal.thread_id, terminal.process_id, terminal.background) == (ROOT, "7", True)
    assert updates(world.completed("commandExecution", **DONE))[-1]["status"] == "completed"
    assert world.translator.terminals() == []


def test_a_terminal_can_be_cancelled_while_it_runs(world: World) -> None:
    assert updates(world.started("commandExecution", **COMMAND))[0]["capabilities"] == {"cancel": {}}
    assert updates(world.translator.close_calls("failed"))[0]["capabilities"] is None


def test_a_command_that_waited_for_the_user_ends_with_its_turn(world: World) -> None:
    world.started("commandExecution", **{**COMMAND, "processId": None})
    assert world.translator.terminals() == []
    terminal, call = updates(world.turn_over("interrupted"))
    assert terminal["exitStatus"] == {}
    assert call["status"] == "cancelled"


def test_a_command_that_was_allowed_runs_on(world: World) -> None:
    world.started("commandExecution", **{**COMMAND, "processId": None})
    assert updates(world.translator.permitted({**ABOUT, "itemId": "i"}))[0]["status"] == "in_progress"
    assert world.turn_over("interrupted") == []
    assert world.translator.permitted({**ABOUT, "itemId": "unknown"}) == []


# Other items


def test_other_calls_end_with_their_turn(world: World) -> None:
    world.started("mcpToolCall", server="s", tool="t", status="inProgress")
    assert updates(world.turn_over("interrupted"))[0]["status"] == "cancelled"
    world.started("mcpToolCall", server="s", tool="t", status="inProgress")
    assert updates(world.turn_over("failed"))[0]["status"] == "failed"


def test_progress_gives_way_to_the_result(world: World) -> None:
    world.started("mcpToolCall", server="s", tool="t", status="inProgress")
    assert updates(world.say("item/mcpToolCall/progress", itemId="i", message="half"))[0]["content"]
    ended = updates(world.completed("mcpToolCall", server="s", tool="t", status="completed"))[0]
    assert ended["content"] is None


def test_a_patch_that_grows_is_shown(world: World) -> None:
    world.started("fileChange", changes=[], status="inProgress")
    change = {"path": "/w/a", "kind": {"type": "add"}, "diff": "x"}
    call = updates(world.say("item/fileChange/patchUpdated", itemId="i", changes=[change]))[0]
    assert call["title"] == "Write a"
    assert "status" not in call
    item = world.translator.item_of({**ABOUT, "itemId": "i"})
    assert item is not None
    assert item["changes"] == [change]


def test_a_compaction_begins_and_ends(world: World) -> None:
    assert updates(world.started("contextCompaction"))[0]["status"] == "in_progress"
    assert updates(world.completed("contextCompaction"))[0]["status"] == "completed"
    world.started("contextCompaction")
    assert updates(world.turn_over("failed"))[0]["status"] == "failed"


def test_steps_are_a_plan(world: World) -> None:
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "inProgress"}, {"step": "c"}]
    plan = updates(world.say("turn/plan/updated", plan=steps))[0]["plan"]
    assert [entry["status"] for entry in plan["entries"]] == ["completed", "in_progress", "pending"]


def test_usage_is_told_once_for_each_change(world: World) -> None:
    def usage(total: int) -> dict[str, Any]:
        return {"total": {"totalTokens": total}, "last": {"totalTokens": 5}, "modelContextWindow": 100}

    assert updates(world.say("thread/tokenUsage/updated", tokenUsage=usage(5)))[0] == {
        "sessionUpdate": "usage_update",
        "used": 5,
        "size": 100,
    }
    world.say("turn/started", turn={"id": "t1"})
    assert world.say("thread/tokenUsage/updated", tokenUsage=usage(12)) == []
    used = world.translator.turn_usage()
    assert used is not None
    assert used["totalTokens"] == 7


def test_a_name_is_the_title(world: World) -> None:
    assert updates(world.say("thread/name/updated", threadName="N")) == [
        {"sessionUpdate": "session_info_update", "title": "N"}
    ]


# Notices


def test_each_notice_is_given_once(world: World) -> None:
    assert updates(world.say("warning", message="Careful"))[0]["title"] == "Careful"
    assert world.say("warning", message="Careful") == []
    assert world.translator.notification("configWarning", {"summary": "Bad", "details": None, "path": "/c"})
    assert world.translator.notification("configWarning", {"summary": "Bad", "details": None, "path": "/c"}) == []
    assert updates(world.say("model/rerouted", fromModel="a", toModel="b"))[0]["title"] == "Switched from a to b"


def test_the_same_news_is_given_once_whoever_brings_it(world: World) -> None:
    """Codex tells what it ignores of the configuration to its client, and again to each thread (measured)."""
    text = "Codex is ignoring 1 unrecognized configuration setting.\n  user (/c): `x` is ignored."
    told = world.translator.notification("configWarning", {"summary": text, "details": None})
    assert updates(told)[0]["description"] == "user (/c): `x` is ignored."
    assert world.say("warning", message=text) == []
    assert world.say("warning", message=text.replace("`x`", "`y`"))


def test_notices_about_the_configuration_have_no_value_of_it(world: World) -> None:
    mistyped, cut = (f'invalid type: string "{value}", expected a map' for value in ("sk-1", "…"))
    told = world.translator.notification("configWarning", {"summary": "Bad", "details": mistyped, "path": "/c"})
    assert updates(told)[0]["description"] == f"{cut}\nIn /c"
    told = world.translator.notification("deprecationNotice", {"summary": mistyped, "details": mistyped})
    assert (updates(told)[0]["title"], updates(told)[0]["description"]) == (cut, cut)
    assert updates(world.say("warning", message=mistyped))[0]["title"] == cut


def test_notices_about_servers_have_their_words_and_the_host_alone(world: World) -> None:
    error = '401 {"error": "expired"} for url (https://host/sk-1?key=sk-1)'
    cut = '401 {"error": "expired"} for url (https://host/…)'
    told = world.say("mcpServer/startupStatus/updated", name="s", status="failed", error=error)
    assert updates(told)[0]["description"] == cut
    told = world.say("error", error={"message": "Reconnecting", "additionalDetails": error}, willRetry=True)
    assert updates(told)[0]["description"] == cut


def test_a_retry_is_told_once_a_turn_and_a_last_error_by_the_turn(world: World) -> None:
    error = {"message": "Reconnecting… 1/5", "additionalDetails": None}
    assert updates(world.say("error", error=error, willRetry=True))[0]["severity"] == "warning"
    assert world.say("error", error={"message": "Reconnecting… 2/5"}, willRetry=True) == []
    assert world.say("error", error=error, willRetry=True, turnId="t2")
    assert world.say("error", error=error, willRetry=False) == []


def test_a_server_that_does_not_start_is_told(world: World) -> None:
    notice = updates(world.say("mcpServer/startupStatus/updated", name="s", status="failed", error="no"))[0]
    assert (notice["title"], notice["description"]) == ("MCP server s failed to start", "no")
    assert world.say("mcpServer/startupStatus/updated", name="s", status="ready") == []


def test_a_limit_that_is_nearly_reached_is_told_until_it_begins_anew(world: World) -> None:
    def limits(used: float, resets: int) -> list[str]:
        primary = {"usedPercent": used, "windowDurationMins": 300, "resetsAt": resets}
        params = {"rateLimits": {"primary": primary, "secondary": None}}
        events = world.translator.notification("account/rateLimits/updated", params)
        return [update["title"] for update in updates(events)]

    assert limits(50, 1) == []
    assert limits(91, 1) == ["The 5-hour limit is nearly reached"]
    assert limits(95, 1) == []
    assert limits(100, 1) == ["The 5-hour limit is reached"]
    assert limits(92, 2) == ["The 5-hour limit is nearly reached"]


# Children

SPAWN = {"tool": "spawnAgent", "status": "completed", "receiverThreadIds": ["kid"], "prompt": "Help."}


def test_a_child_is_announced_before_what_came_of_it_earlier(world: World) -> None:
    assert world.say("thread/status/changed", "kid", status={"type": "active", "activeFlags": []}) == []
    assert world.say("item/completed", "kid", item={"type": "agentMessage", "id": "m", "text": "Early"}) == []
    assert world.translator.session_of("kid") is None
    announced, running, early, call = world.completed("collabAgentToolCall", **SPAWN)
    assert isinstance(announced, ChildAnnounced)
    assert (announced.parent_id, announced.child_id) == (ROOT, "root.kid")
    assert running == Foreground("root.kid", "running")
    assert isinstance(early, Update)
    assert early.session_id == "root.kid"
    assert isinstance(call, Update)
    assert call.update["content"] == [{"type": "session", "sessionId": "root.kid"}]
    assert world.translator.session_of("kid") == "root.kid"


def test_a_grandchild_belongs_to_its_parent(world: World) -> None:
    world.say(
        "item/completed",
        "kid",
        item={"type": "collabAgentToolCall", "id": "s", **SPAWN, "receiverThreadIds": ["grandkid"]},
    )
    world.say("item/completed", "grandkid", item={"type": "agentMessage", "id": "m", "text": "Deep"})
    events = world.completed("collabAgentToolCall", **SPAWN)
    announced = [(e.parent_id, e.child_id) for e in events if isinstance(e, ChildAnnounced)]
    assert announced == [(ROOT, "root.kid"), ("root.kid", "root.grandkid")]


def test_the_second_generation_is_announced_by_its_activity(world: World) -> None:
    activity = {"kind": "started", "agentThreadId": "kid", "agentPath": "/root/helper", "model": "m"}
    announced = world.started("subAgentActivity", **activity)[0]
    assert isinstance(announced, ChildAnnounced)
    assert announced.update["title"] == "helper"
    assert all(not isinstance(event, ChildAnnounced) for event in world.completed("subAgentActivity", **activity))


def test_a_sibling_is_not_taken_for_a_child(world: World) -> None:
    world.started("subAgentActivity", kind="started", agentThreadId="a", agentPath="/root/a")
    message = {"kind": "interacted", "agentThreadId": "b", "agentPath": "/root/b"}
    assert all(
        not isinstance(event, ChildAnnounced)
        for event in world.say("item/completed", "a", item={"type": "subAgentActivity", "id": "x", **message})
    )
    # After a restart, the parent gives it more to do.
    events = world.completed("subAgentActivity", **message)
    assert isinstance(events[0], ChildAnnounced)
    assert events[0].parent_id == ROOT


def test_a_child_of_an_earlier_process_is_announced_when_it_gets_more_to_do(world: World) -> None:
    assert world.say("turn/started", "kid", turn={"id": "t1"}) == []
    waits = {**SPAWN, "tool": "wait", "prompt": None, "receiverThreadIds": ["stranger"]}
    assert all(not isinstance(event, ChildAnnounced) for event in world.started("collabAgentToolCall", **waits))
    more = {**SPAWN, "id": "j", "tool": "sendInput", "status": "inProgress"}
    announced = world.started("collabAgentToolCall", **more)[0]
    assert isinstance(announced, ChildAnnounced)
    assert "title" not in announced.update  # the client knows it from the replay


def test_a_childs_state_is_told(world: World) -> None:
    world.completed("collabAgentToolCall", **SPAWN)
    waits = world.say("thread/status/changed", "kid", status={"type": "active", "activeFlags": ["waitingOnApproval"]})
    assert waits == [Foreground("root.kid", "requires_action")]
    runs = world.say("thread/status/changed", "kid", status={"type": "active", "activeFlags": []})
    assert runs == [Foreground("root.kid", "running")]
    assert world.translator.background(ROOT) == [{"type": "subagent", "sessionId": "root.kid"}]
    failed = world.turn_over("failed", "kid", error={"message": "broken"})
    assert failed == [Foreground("root.kid", "idle", "error", {"code": -32603, "message": "broken"})]
    assert world.turn_over("completed", "kid") == []
    assert world.say("turn/started", "kid", turn={"id": "t2"}) == [Foreground("root.kid", "running")]
    assert world.say("thread/closed", "kid") == [Foreground("root.kid", "idle", "cancelled")]


def test_a_childs_prompt_is_shown_and_its_terminals_cannot_be_cancelled(world: World) -> None:
    world.completed("collabAgentToolCall", **SPAWN)
    content = [{"type": "text", "text": "Help."}]
    assert updates(world.completed("userMessage", "kid", clientId="x", content=content))[0]["messageId"] == "x"
    assert "capabilities" not in updates(world.started("commandExecution", "kid", **COMMAND))[0]


def test_a_thread_can_be_adopted(world: World) -> None:
    world.say("item/completed", "kid", item={"type": "agentMessage", "id": "m", "text": "Early"})
    thread = {"id": "kid", "parentThreadId": ROOT, "source": {"subAgent": {"thread_spawn": {}}}, "agentNickname": "Ada"}
    announced, _, early = world.translator.adopt(thread)
    assert isinstance(announced, ChildAnnounced)
    assert announced.update["title"] == "Ada"
    assert isinstance(early, Update)
    assert world.translator.adopt(thread) == []
    assert world.translator.adopt({"id": "x", "parentThreadId": "unknown"}) == []
    assert world.translator.adopt({"id": ROOT}) == []


def test_what_waits_for_a_name_is_bounded(world: World) -> None:
    for number in range(5000):
        world.say("item/completed", "kid", item={"type": "agentMessage", "id": f"m{number}", "text": "x"})
    assert len(world.completed("collabAgentToolCall", **SPAWN)) < 4096


def test_a_thread_that_nobody_names_makes_room(world: World) -> None:
    for number in range(4096):
        world.say("item/completed", "stranger", item={"type": "agentMessage", "id": f"m{number}", "text": "x"})
    world.say("item/completed", "kid", item={"type": "agentMessage", "id": "m", "text": "Early"})
    assert any(update.get("messageId") == "m.t1" for update in updates(world.completed("collabAgentToolCall", **SPAWN)))


def test_the_end_of_the_process_ends_everything(world: World) -> None:
    world.completed("collabAgentToolCall", **SPAWN)
    world.started("commandExecution", **COMMAND)
    world.started("commandExecution", "kid", **COMMAND)
    events = world.translator.close_calls("cancelled")
    assert [update.get("status") for update in updates(events)] == [None, "cancelled", None, "cancelled"]
    assert events[-1] == Foreground("root.kid", "idle", "cancelled")
    assert world.translator.close_calls("failed") == []


def test_an_mcp_question_finds_its_call(world: World) -> None:
    world.started("mcpToolCall", id="one", server="s", tool="t", arguments={"x": 1})
    world.started("mcpToolCall", id="two", server="s", tool="t", arguments={"x": 2})
    asked = {"threadId": ROOT, "serverName": "s", "_meta": {"tool_params": {"x": 1}}}
    item = world.translator.item_of(asked)
    assert item is not None
    assert item["id"] == "one.t1"
    assert world.translator.item_of({"threadId": ROOT, "serverName": "other"}) is None
