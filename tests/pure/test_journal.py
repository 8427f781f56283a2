"""The journal: what a live session said, folded (RPL-5, UPD-2, UPD-3)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.agent.journal import APPENDING, ENTITIES, OUTPUT, SETTLED, Journal, entity_of


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def chunk(message_id: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": content}


def folded(*updates: dict[str, Any]) -> list[Any]:
    journal = Journal()
    for update in updates:
        journal.note(update)
    return journal.updates()


@pytest.mark.parametrize("kind", sorted(ENTITIES))
def test_an_entity_is_named_by_its_upsert(kind: str) -> None:
    field = ENTITIES[kind]
    value = {"planId": "x"} if field == "plan" else "x"
    upsert = APPENDING[kind][0] if kind in APPENDING else kind.replace("_output_chunk", "_update")
    assert entity_of({"sessionUpdate": kind, field: value}) == (upsert, "x")


@pytest.mark.parametrize(
    "kind",
    [
        "state_update",
        "notice",
        "usage_update",
        "available_commands_update",
        "config_option_update",
        "_custom",
        "future",
    ],
)
def test_what_is_no_history_has_no_entity(kind: str) -> None:
    assert entity_of({"sessionUpdate": kind}) is None
    assert folded({"sessionUpdate": kind}) == []


def test_chunks_become_one_upsert_with_joined_text() -> None:
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    blocks = [text("a"), text("b"), image, text("c"), {**text("d"), "annotations": {}}, text("e")]
    assert folded(*(chunk("m", block) for block in blocks)) == [
        {
            "sessionUpdate": "agent_message",
            "messageId": "m",
            "content": [text("ab"), image, text("c"), {**text("d"), "annotations": {}}, text("e")],
        }
    ]


def test_an_upsert_with_content_replaces_and_one_without_leaves() -> None:
    whole = {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("new")]}
    assert folded(chunk("m", text("old")), whole) == [whole]
    assert folded(chunk("m", text("old")), whole, chunk("m", text(" and more"))) == [
        {**whole, "content": [text("new"), text(" and more")]}
    ]
    left = {"sessionUpdate": "agent_message", "messageId": "m", "_meta": {"a": 1}}
    assert folded(chunk("m", text("old")), left) == [{**left, "content": [text("old")]}]
    cleared = {**whole, "content": []}
    assert folded(chunk("m", text("old")), cleared) == [cleared]


def test_a_tool_call_is_patched() -> None:
    begun = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Run", "status": "in_progress"}
    output = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": {"type": "content"}}
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed", "rawInput": None}
    assert folded(begun, output, output, ended) == [{**begun, **ended, "content": [{"type": "content"}] * 2}]


def test_terminal_output_is_told_as_what_there_is() -> None:
    begun = {"sessionUpdate": "terminal_update", "terminalId": "t", "cwd": "/"}
    output = [{"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": data} for data in ("YQ==", "Yg==")]
    ended = {"sessionUpdate": "terminal_update", "terminalId": "t", "exitStatus": {"exitCode": 0}}
    assert folded(begun, *output, ended) == [{**begun, **ended, "output": {"data": "YWI="}}]
    snapshot = {"sessionUpdate": "terminal_update", "terminalId": "t", "output": {"data": "eA=="}}
    assert folded(begun, *output, snapshot) == [{**begun, **snapshot}]
    assert folded(begun, *output, snapshot, output[0]) == [{**begun, "output": {"data": "eGE="}}]
    cleared = {"sessionUpdate": "terminal_update", "terminalId": "t", "output": None}
    assert folded(begun, *output, cleared, output[1]) == [{**begun, "output": {"data": "Yg=="}}]


def test_a_compaction_summary_grows_in_its_own_field() -> None:
    begun = {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"}
    summary = {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": text("short")}
    assert folded(begun, summary, summary) == [{**begun, "summary": [text("shortshort")]}]


def test_plans_are_named_by_their_plan() -> None:
    plans = [{"sessionUpdate": "plan_update", "plan": {"planId": "p", "items": [n]}} for n in range(3)]
    assert folded(*plans) == [plans[-1]]


def test_what_settles_leaves_and_what_works_stays() -> None:
    journal = Journal()
    journal.note(chunk("m", text("done")))
    for status in ("pending", "in_progress", "completed", "failed", "cancelled"):
        journal.note({"sessionUpdate": "tool_call_update", "toolCallId": status, "status": status})
    for state in ("running", "requires_action", "idle"):
        journal.note({"sessionUpdate": "subagent_update", "sessionId": state, "title": state})
        journal.note({"sessionUpdate": "subagent_update", "sessionId": state, "state": {"state": state}})
    journal.settle()
    left = {name for _, name in journal.entities()}
    assert left == {"pending", "in_progress", "running", "requires_action"}


def output(terminal_id: str, data: bytes) -> dict[str, Any]:
    return {
        "sessionUpdate": "terminal_output_chunk",
        "terminalId": terminal_id,
        "data": base64.b64encode(data).decode(),
    }


def test_a_terminal_stays_until_it_has_ended() -> None:
    journal = Journal()
    for name, end in (("quiet", {}), ("null", {"exitStatus": None}), ("ended", {"exitStatus": {}})):
        journal.note({"sessionUpdate": "terminal_update", "terminalId": name, "command": "serve", **end})
    journal.note(output("only output", b"x"))
    journal.settle()
    assert {name for _, name in journal.entities()} == {"quiet", "null", "only output"}
    for n in range(SETTLED * 2):
        journal.note(chunk(f"m{n}", text("x")))
    assert ("terminal_update", "quiet") in journal
    journal.note({"sessionUpdate": "terminal_update", "terminalId": "quiet", "exitStatus": {"exitCode": 0}})
    journal.settle()
    assert ("terminal_update", "quiet") not in journal


def test_of_what_a_running_terminal_says_the_end_is_kept() -> None:
    journal = Journal()
    journal.note({"sessionUpdate": "terminal_update", "terminalId": "t", "command": "serve"})
    for n in range(3 * OUTPUT // 4000):
        journal.note(output("t", b"%03000d" % n))
    (update,) = journal.updates()
    data = base64.b64decode(update["output"]["data"])
    assert OUTPUT // 2 - 4000 < len(update["output"]["data"]) <= OUTPUT
    numbers = [int(data[position : position + 3000]) for position in range(0, len(data), 3000)]
    assert numbers == list(range(numbers[0], 3 * OUTPUT // 4000))


def test_the_order_is_that_of_the_first_appearance() -> None:
    names = [update["messageId"] for update in folded(*(chunk(name, text("x")) for name in "abacab"))]
    assert names == ["a", "b", "c"]


def test_what_is_kept_is_bounded_and_work_in_progress_is_kept_first() -> None:
    journal = Journal()
    journal.note({"sessionUpdate": "tool_call_update", "toolCallId": "long", "status": "in_progress"})
    for n in range(SETTLED * 2):
        journal.note(chunk(f"m{n}", text("x")))
    assert len(journal.entities()) <= SETTLED + 1
    assert ("tool_call_update", "long") in journal
    assert ("agent_message", f"m{SETTLED * 2 - 1}") in journal


def test_a_copy_does_not_change_with_the_journal() -> None:
    journal = Journal()
    journal.note(chunk("m", text("a")))
    copy = journal.updates()
    journal.note(chunk("m", text("b")))
    assert copy == [{"sessionUpdate": "agent_message", "messageId": "m", "content": [text("a")]}]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3)), max_size=30), st.integers(0, 30))
def test_the_copy_and_what_follows_are_the_whole(said: list[tuple[str, str]], cut: int) -> None:
    journal = Journal()
    for name, part in said[:cut]:
        journal.note(chunk(name, text(part)))
    shown = {update["messageId"]: "".join(b["text"] for b in update["content"]) for update in journal.updates()}
    for name, part in said[cut:]:
        shown[name] = shown.get(name, "") + part
    assert shown == {name: "".join(p for n, p in said if n == name) for name, _ in said}
