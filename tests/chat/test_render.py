"""What a session's events look like on a terminal."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from sayagain.chat.render import Renderer
from sayagain.chat.spans import clean
from sayagain.client import Disconnected, Moved, Reconnected, Update
from sayagain.protocol.v2.updates import SessionUpdate

FIXTURES = Path(__file__).parents[2] / "fixtures"


def shown(*updates: dict[str, Any], renderer: Renderer | None = None) -> str:
    renderer = renderer or Renderer()
    return "".join(text for update in updates for _, text in renderer.take(Update("s", update)))


def chunk(text: str, message_id: str = "m", kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": text}}


def whole(text: str, message_id: str = "m", kind: str = "agent_message") -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": message_id, "content": [{"type": "text", "text": text}]}


RUNNING = {"sessionUpdate": "state_update", "state": "running"}


def test_chunks_are_joined_and_a_full_message_adds_what_is_new() -> None:
    assert shown(chunk("Hel"), chunk("lo"), whole("Hello")) == "Hello\n"
    assert shown(chunk("Hel"), whole("Hello")) == "Hello\n"
    assert shown(chunk("Hullo"), whole("Hello")) == "Hullo\nHello\n"
    assert shown(chunk("a"), chunk("b", "m2")) == "a\nb"


def test_a_replayed_message_is_shown_once() -> None:
    renderer = Renderer()
    assert shown(whole("Hello"), renderer=renderer) == "Hello\n"
    assert shown(whole("Hello"), renderer=renderer) == ""


def test_what_was_typed_is_not_shown_again() -> None:
    renderer = Renderer()
    renderer.typed("mine")
    assert shown(whole("mine", kind="user_message"), renderer=renderer) == ""
    assert shown(whole("mine", "m2", kind="user_message"), renderer=renderer) == "> mine\n"


def test_tools_are_shown_when_they_begin_and_end() -> None:
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "t"}
    out = shown(
        {**call, "title": "ls", "status": "in_progress"},
        {**call, "status": "in_progress"},
        {**call, "status": "failed"},
    )
    assert out == "… ls\n✗ ls\n"


def test_ends_of_work() -> None:
    idle = {"sessionUpdate": "state_update", "state": "idle"}
    assert shown(RUNNING, chunk("a"), {**idle, "stopReason": "end_turn"}) == "a\n"
    assert shown(RUNNING, {**idle, "stopReason": "cancelled"}) == "(cancelled)\n"
    failed = {**idle, "stopReason": "error", "error": {"code": -32603, "message": "No model"}}
    assert shown(RUNNING, failed) == "The work failed: No model\n"
    # A snapshot after a resume tells of work that ended before.
    assert shown({**idle, "stopReason": "cancelled"}) == ""


def test_nothing_that_a_terminal_obeys() -> None:
    assert clean("a\x1b[2Jb\r\n\tc\x07\u202ed\x9b") == "a�[2Jb\n\tc��d�"
    assert clean("👩\u200d🚀 é") == "👩🚀 é"
    assert "\x1b" not in shown(chunk("\x1b]0;title\x07"), {"sessionUpdate": "notice", "title": "\x1b[31m"})


def test_whatever_an_agent_sends() -> None:
    for update in (
        {"sessionUpdate": "agent_message_chunk"},
        {"sessionUpdate": "agent_message", "content": 7},
        {"sessionUpdate": "agent_message", "content": [None, {"type": "image"}, {"text": 7}]},
        {"sessionUpdate": "tool_call_update", "title": None, "status": []},
        {"sessionUpdate": "plan_update", "plan": {"entries": [None, {}]}},
        {"sessionUpdate": "state_update", "state": "idle", "stopReason": 7},
        {"sessionUpdate": "_custom"},
        {},
    ):
        assert isinstance(shown(RUNNING, update), str)


def test_work_that_ended_with_the_agent() -> None:
    renderer = Renderer()
    idle = {"sessionUpdate": "state_update", "state": "idle"}
    child = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "a child"}
    told = [
        "".join(text for _, text in renderer.take(event))
        for event in (
            Update("s", RUNNING),
            Update("s", child),
            Update("child", RUNNING),
            Disconnected("s"),
            Update("child", idle),
            Update("s", idle),
            Reconnected("s"),
        )
    ]
    assert told[3:] == [
        "The agent was lost.\n",
        "",
        "The work that was under way ended with it.\n",
        "The agent is back; what was not confirmed is sent again.\n",
    ]
    assert renderer.failed


@pytest.mark.parametrize(
    ("last", "failed"),
    [({"stopReason": "error"}, True), ({"stopReason": "cancelled"}, False), ({}, False)],
)
def test_work_that_failed(last: dict[str, Any], failed: bool) -> None:
    renderer = Renderer()
    for update in (RUNNING, {**RUNNING, "state": "idle", **last}):
        list(renderer.take(Update("s", update)))
    assert renderer.failed is failed


def test_work_that_went_on_without_us() -> None:
    renderer = Renderer()
    for event in (Update("s", RUNNING), Disconnected("s"), Update("s", RUNNING), Reconnected("s")):
        list(renderer.take(event))
    idle = {"sessionUpdate": "state_update", "state": "idle"}
    assert "".join(text for _, text in renderer.take(Update("s", idle))) == ""
    assert not renderer.failed


def test_the_clients_own_events() -> None:
    renderer = Renderer()
    assert "is back" in "".join(text for _, text in renderer.take(Reconnected("s")))
    assert "2 unconfirmed" in "".join(text for _, text in renderer.take(Moved("s", "t", ["a", "b"])))


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CALL = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Edit"}
OPTIONS = {"name": "Mode", "configId": "m", "options": [{"value": "a", "name": "Ask"}, {"value": "p", "name": "Plan"}]}

RENDERINGS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "user_message_chunk": ([chunk("mine", kind="user_message_chunk")], "> mine"),
    "agent_message_chunk": ([chunk("a")], "a"),
    "agent_thought_chunk": ([chunk("hm", kind="agent_thought_chunk")], "hm"),
    "user_message": ([whole("mine", kind="user_message")], "> mine\n"),
    "agent_message": ([whole("a")], "a\n"),
    "agent_thought": ([whole("hm", kind="agent_thought")], "hm\n"),
    "state_update": (
        [RUNNING, {"sessionUpdate": "state_update", "state": "idle", "stopReason": "refusal"}],
        "(refusal)\n",
    ),
    "tool_call_update": (
        [
            {**CALL, "status": "paused"},
            {**CALL, "status": "completed", "content": [{"type": "content", "content": block("one\ntwo")}]},
            {**CALL, "content": [{"type": "content", "content": block("one\ntwo")}, {"type": "_new"}]},
        ],
        "‖ Edit\n✓ Edit\n  one\n  two\n  [_new]\n",
    ),
    "tool_call_content_chunk": (
        [
            {**CALL, "status": "completed"},
            {
                "sessionUpdate": "tool_call_content_chunk",
                "toolCallId": "t",
                "content": {
                    "type": "diff",
                    "changes": [
                        {"operation": "move", "oldPath": "/a", "path": "/b"},
                        {"operation": "add", "path": "/c", "fileType": "binary"},
                    ],
                    "patch": {
                        "format": "git_patch",
                        "text": "diff --git /a /b\n--- /a\n+++ /b\n@@ -1 +1 @@\n-old\n+new\n",
                    },
                },
            },
        ],
        "✓ Edit\n  move /a → /b\n  add /c (binary)\n  @@ -1 +1 @@\n  -old\n  +new\n",
    ),
    "terminal_update": (
        [
            {"sessionUpdate": "terminal_update", "terminalId": "x", "command": "ls", "cwd": "/"},
            {"sessionUpdate": "terminal_update", "terminalId": "x", "output": {"data": data("a\nb")}},
            {"sessionUpdate": "terminal_update", "terminalId": "x", "output": {"data": data("a\nb\nc")}},
            {"sessionUpdate": "terminal_update", "terminalId": "x", "exitStatus": {"exitCode": 2}},
        ],
        "  $ ls\n  a\n  b\n  c\n  exit code 2\n",
    ),
    "terminal_output_chunk": (
        [
            {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": data("10%\r20%\r\n\x1b[31mr")},
            {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": data("ed\x1b[0m\nrest")},
            {
                "sessionUpdate": "terminal_update",
                "terminalId": "x",
                "output": {"data": data("10%\r20%\r\n\x1b[31mred\x1b[0m\nrest")},
            },
            {"sessionUpdate": "terminal_update", "terminalId": "x", "exitStatus": {"signal": "SIGTERM"}},
        ],
        "  20%\n  red\n  rest\n  ended by SIGTERM\n",
    ),
    "plan_update": (
        [
            {
                "sessionUpdate": "plan_update",
                "plan": {
                    "type": "items",
                    "planId": "p",
                    "entries": [{"content": "one", "status": done}, {"content": "two", "status": "pending"}],
                },
            }
            if done
            else RUNNING
            for done in ("in_progress", None, "completed", None)
        ],
        "  … one\n  … two\n  ✓ one\n",
    ),
    "plan_removed": ([{"sessionUpdate": "plan_removed", "planId": "p"}], "The plan was dropped.\n"),
    "available_commands_update": (
        [{"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "go", "description": "Go"}]}],
        "fact: /go  Go",
    ),
    "config_option_update": (
        [
            {"sessionUpdate": "config_option_update", "configOptions": [{**OPTIONS, "currentValue": "a"}]},
            {"sessionUpdate": "config_option_update", "configOptions": [{**OPTIONS, "currentValue": "p"}]},
        ],
        "Mode: Plan\nfact: Mode: Plan",
    ),
    "session_info_update": ([{"sessionUpdate": "session_info_update", "title": "T"}], "fact: Title: T"),
    "usage_update": (
        [{"sessionUpdate": "usage_update", "used": 1200, "size": 200000, "cost": {"amount": 0.5, "currency": "USD"}}],
        "fact: Context: 1,200 of 200,000 tokens, 0.5000 USD",
    ),
    "notice": (
        [
            {"sessionUpdate": "notice", "severity": "warning", "title": "Slow", "description": "very"},
            {"sessionUpdate": "notice", "severity": "info", "title": "Hello"},
        ],
        "Warning: Slow\n  very\nHello\n",
    ),
    "compaction_update": (
        [
            {"sessionUpdate": "compaction_update", "compactionId": "c", "status": status, **more}
            for status, more in (
                ("in_progress", {}),
                ("completed", {}),
                ("completed", {"summary": [block("Short.")]}),
            )
        ]
        + [{"sessionUpdate": "compaction_update", "compactionId": "d", "status": "failed", "error": "too long"}],
        "The context is being compacted…\nThe context was compacted.\n  Short.\nThe compaction failed: too long\n",
    ),
    "compaction_summary_chunk": (
        [
            {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": block("Sho")},
            {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": block("rt.")},
            {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},
        ],
        "The context was compacted.\n  Short.\n",
    ),
    "subagent_update": (
        [
            {"sessionUpdate": "subagent_update", "sessionId": "kid", "title": "Search", "description": "the web"},
            {"sessionUpdate": "subagent_update", "sessionId": "kid", "state": {"state": "running"}},
            {
                "sessionUpdate": "subagent_update",
                "sessionId": "kid",
                "state": {"state": "idle", "stopReason": "cancelled"},
            },
        ],
        "↳ subagent: Search (the web)\n[Search] (cancelled)\n",
    ),
    "session_message": (
        [
            {"sessionUpdate": "subagent_update", "sessionId": "kid", "title": "Search"},
            {
                "sessionUpdate": "session_message",
                "messageId": "x",
                "recipientSessionId": "kid",
                "content": [block("Go")],
            },
        ],
        "↳ subagent: Search\n✉ here → Search\nGo\n",
    ),
    "session_message_chunk": (
        [{"sessionUpdate": "session_message_chunk", "messageId": "x", "content": block("Go")}],
        "Go",
    ),
    "replay_complete": ([{"sessionUpdate": "replay_complete"}], "That is the history.\n"),
}


def protocol_kinds() -> set[str]:
    """The kinds of updates that the protocol has."""
    found: set[str] = set()
    members = list(get_args(get_args(SessionUpdate)[0]))
    while members:
        member = members.pop()
        if isinstance(member, type):
            found |= {each for each in get_args(get_type_hints(member)["sessionUpdate"]) if isinstance(each, str)}
        else:
            members += get_args(get_args(member)[0]) if hasattr(member, "__metadata__") else get_args(member)
    return found


def test_every_kind_of_the_protocol_is_here() -> None:
    assert set(RENDERINGS) == protocol_kinds()


@pytest.mark.parametrize("kind", RENDERINGS)
def test_what_each_kind_looks_like(kind: str) -> None:
    updates, expected = RENDERINGS[kind]
    renderer = Renderer()
    out = shown(*updates, renderer=renderer)
    facts = "\n".join(f"fact: {line}" for line in renderer.facts.lines())
    assert out + facts == expected


def test_an_unknown_kind_is_told_once() -> None:
    renderer = Renderer()
    assert (
        shown({"sessionUpdate": "_new"}, {"sessionUpdate": "_new"}, renderer=renderer).count("unknown kind: _new") == 1
    )


def test_children_speak_under_their_names() -> None:
    renderer = Renderer()
    shown(RUNNING, {"sessionUpdate": "subagent_update", "sessionId": "kid", "title": "Search"}, renderer=renderer)
    renderer.typed("Look")
    updates = [
        ("kid", whole("Look", kind="user_message")),
        ("kid", chunk("Found", "m2")),
        ("s", chunk("Meanwhile", "m3")),
        ("kid", {"sessionUpdate": "tool_call_update", "toolCallId": "k", "title": "ls", "status": "failed"}),
        ("kid", {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}),
        ("s", {"sessionUpdate": "state_update", "state": "idle", "stopReason": "cancelled"}),
    ]
    out = "".join(text for session, update in updates for _, text in renderer.take(Update(session, update)))
    assert out == "[Search] > Look\n[Search] Found\nMeanwhile\n[Search] ✗ ls\n(cancelled)\n"


def test_background_work_is_told_when_it_changes() -> None:
    work = [{"type": "terminal", "terminalId": "a"}, {"type": "terminal", "terminalId": "b"}, {"type": "tool_call"}]
    out = shown(
        {**RUNNING, "background": work}, {**RUNNING, "background": work}, RUNNING, {**RUNNING, "background": []}
    )
    assert out == "In the background: 2 terminals, 1 tool call\nNothing runs in the background any more.\n"


def test_what_is_long_is_cut() -> None:
    call = {**CALL, "status": "completed", "content": [{"type": "content", "content": block("x\n" * 11)}]}
    assert shown(call).endswith("  x\n  … 1 more line\n")
    terminal = {"sessionUpdate": "terminal_update", "terminalId": "x", "exitStatus": {}}
    assert shown({**terminal, "output": {"data": data("x\n" * 30)}}).endswith("  x\n  … 10 more lines\n")


def test_a_growing_plan_is_shown_when_something_else_follows() -> None:
    def plan(content: str) -> dict[str, Any]:
        return {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": content}}

    renderer = Renderer()
    assert shown(plan("# Pl"), plan("# Plan\n1. Lo"), plan("# Plan\n1. Look"), renderer=renderer) == ""
    assert "".join(text for _, text in renderer.end_line()) == "  # Plan\n  1. Look\n"


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/*/golden/live.jsonl")), ids=lambda path: path.parts[-3])
def test_what_the_runtimes_really_send(path: Path) -> None:
    """Nothing of it is strange to the chat."""
    renderer = Renderer()
    out = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("update"):
            out += "".join(text for _, text in renderer.take(Update(row["session"], row["update"])))
    assert "unknown kind" not in out
    assert "\x1b" not in out
