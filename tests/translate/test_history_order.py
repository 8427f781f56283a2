"""What of a transcript is replayed, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from sayagain.errors import HistoryUnreadable
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryUpdate, Unreadable, UserTurn
from sayagain_claude.history import history
from translate.rows import SESSION, answer, call, child, prompt, read, result, shown, store, text, thought


def updates(entries: list[object], name: str) -> list[dict[str, object]]:
    return [
        dict(entry.update)
        for entry in entries
        if isinstance(entry, HistoryUpdate) and name in (entry.update.get("toolCallId"), entry.update.get("messageId"))
    ]


def test_a_turn_is_replayed_as_full_upserts_in_its_order(tmp_path: Path) -> None:
    rows = [
        prompt("Hi", "u1"),
        answer("m1", thought("Hm")),
        answer("m1", text("Let me ")),
        answer("m1", text("see.")),
        answer("m1", call("t1")),
        result("t1"),
        answer("m2", text("Done.")),
    ]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["u1", "m1:thought", "m1", "t1", "m2"]
    [message] = updates(entries, "m1")
    assert message == {
        "sessionUpdate": "agent_message",
        "messageId": "m1",
        "content": [{"type": "text", "text": "Let me see."}],
    }


def test_parallel_calls_are_one_upsert_each_in_the_order_of_the_calls(tmp_path: Path) -> None:
    rows = [
        answer("m1", call("t1")),
        answer("m1", text("and")),
        answer("m1", call("t2")),
        result("t2", "two"),
        result("t1", "one"),
        answer("m2", text("Done.")),
    ]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["t1", "m1", "t2", "m2"]
    assert [update["status"] for update in updates(entries, "t1")] == ["completed"]


@pytest.mark.parametrize(("live", "status"), [(True, "in_progress"), (False, "failed")])
def test_a_call_without_a_result_is_running_only_when_the_session_lives(
    tmp_path: Path, live: bool, status: str
) -> None:
    path = store(tmp_path, [prompt("Hi", "u1"), answer("m1", call("t1"))])
    entries = read(path, live=live)
    assert updates(entries, "t1")[-1]["status"] == status


def test_a_result_that_comes_after_the_next_prompt_is_a_patch(tmp_path: Path) -> None:
    # A killed call gets its result from the next resume (measured).
    lost = "[Tool call interrupted: the session ended before this call's result was recorded.]"
    rows = [prompt("Hi", "u1"), answer("m1", call("t1")), prompt("Again", "u2"), result("t1", lost, is_error=True)]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["u1", "t1", "u2", "t1"]
    assert updates(entries, "t1")[-1] == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t1",
        "status": "failed",
        "content": [{"type": "terminal", "terminalId": "t1"}],
    }


def test_what_waits_for_a_result_is_bounded(tmp_path: Path) -> None:
    rows = [answer("m0", call("t0")), *(answer(f"m{n}", text("x")) for n in range(1, 500)), result("t0")]
    entries = read(store(tmp_path, rows))
    # The call is given before its result when too much waits behind it, and patched by the result.
    assert shown(entries)[0] == "t0"
    assert [update.get("status") for update in updates(entries, "t0")] == [None, "completed"]
    assert len(shown(entries)) == 501


def test_everything_before_a_compaction_is_replayed_and_its_summary_is_no_message(tmp_path: Path) -> None:
    summary = (
        "This session is being continued from a previous conversation that ran out of context. More.\n\n"
        "<system-reminder>\n<tools-used-before-summary>Bash</tools-used-before-summary>\n</system-reminder>\n"
        "Summary:\nWe talked.\n\nIf you need specific details from before compaction (like code), read: /somewhere"
    )
    rows = [
        prompt("One", "u1"),
        answer("m1", text("First.")),
        {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "parentUuid": None, "cwd": "/project"},
        prompt(summary, "s1", isCompactSummary=True, promptSource=None, turnAttributionKey=None),
        prompt("Two", "u2"),
    ]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["u1", "m1", "c1", "u2"]
    [compaction] = [e.update for e in entries if isinstance(e, HistoryUpdate) and "compactionId" in e.update]
    assert compaction == {
        "sessionUpdate": "compaction_update",
        "compactionId": "c1",
        "status": "completed",
        "summary": [{"type": "text", "text": "We talked."}],
    }


def test_merged_folded_and_unavailable_prompts_have_all_their_ids(tmp_path: Path) -> None:
    rows = [
        prompt("B\nC", "u3", mergedSendUuids=["u2"]),
        {"type": "attachment", "uuid": "a",
         "attachment": {"type": "queued_command", "source_uuid": "u4", "prompt": "D"}},
        {"type": "system", "subtype": "local_command", "uuid": "l", "submitUuid": "u5", "content": "/status"},
        {"type": "system", "subtype": "local_command", "uuid": "l2",
         "content": "<local-command-stdout>/status isn't available.</local-command-stdout>"},
    ]  # fmt: skip
    entries = read(store(tmp_path, rows))
    turns = [entry for entry in entries if isinstance(entry, UserTurn)]
    assert [turn.message_ids for turn in turns] == [("u3", "u2"), ("u4",), ("u5",)]
    assert shown(entries) == ["u3", "u4", "u5", "l2"]


def test_the_first_of_several_rows_with_one_id_counts(tmp_path: Path) -> None:
    # After a compaction and a restart the CLI inserts a known id again (measured).
    entries = read(store(tmp_path, [prompt("First", "u1"), prompt("Second", "u1")]))
    [turn] = entries
    assert isinstance(turn, UserTurn)
    assert turn.update is not None
    assert turn.update["content"] == [{"type": "text", "text": "First"}]


def test_a_prompt_that_looks_like_the_harness_stays(tmp_path: Path) -> None:
    words = ["[Request interrupted by user]", "<command-name>/x</command-name>", "<task-notification>", "<b>"]
    rows = [prompt(text, f"u{index}") for index, text in enumerate(words)]
    entries = read(store(tmp_path, rows))
    said = [entry.update["content"][0]["text"] for entry in entries if isinstance(entry, UserTurn) and entry.update]
    assert said == words


def test_what_the_harness_stored_as_a_user_is_not_shown(tmp_path: Path) -> None:
    def harness(words: str, message_id: str, **fields: object) -> dict[str, object]:
        return prompt(words, message_id, **({"promptSource": None, "turnAttributionKey": None} | fields))

    rows = [
        harness("[Request interrupted by user]", "h1", rowSource="harness"),
        harness("<local-command-caveat>x</local-command-caveat>", "h2", isMeta=True),
        harness("<task-notification>\n</task-notification>", "h3", origin={"kind": "task-notification"}),
        harness("<local-command-stdout>Compacted</local-command-stdout>", "h4"),
        harness("<command-name>/model</command-name>", "h5", rowSource="local", turnAttributionKey=None),
        answer("x", text("No response requested.")) | {"message": {
            "id": "x", "model": "<synthetic>", "content": [text("No response requested.")]}},
    ]  # fmt: skip
    assert shown(read(store(tmp_path, rows))) == []


def test_damaged_rows_are_counted_once_at_the_end(tmp_path: Path) -> None:
    entries = read(store(tmp_path, [b'{"type":"us', prompt("Hi", "u1"), b"\0\0\0"]))
    assert isinstance(entries[0], UserTurn)
    assert entries[1:] == [Unreadable("2 damaged entries")]


def agent(call_id: str, words: str = "go") -> dict[str, object]:
    return call(call_id, "Agent", description=words, prompt=words, subagent_type="helper")


def test_children_are_inline_at_their_call_and_nested(tmp_path: Path) -> None:
    path = store(
        tmp_path,
        [
            answer("m1", agent("t1", "outer")),
            result("t1", "Report", {"status": "completed", "agentId": "aa"}),
            answer("m2", text("Done")),
        ],
    )
    child(
        path,
        "aa",
        {"toolUseId": "t1", "description": "outer", "finished": True},
        [prompt("go", "p1"), answer("c1", agent("t2", "inner")), result("t2", "Inner report"), answer("c2", text("R"))],
    )
    child(path, "bb", {"toolUseId": "t2", "parentAgentId": "aa", "description": "inner"}, [answer("d1", text("I"))])
    entries = read(path)
    outer, inner = f"{SESSION}.aa", f"{SESSION}.bb"
    assert shown(entries) == [
        "ChildStarts", f"{outer}:prompt", "ChildStarts", "d1", "HistoryEnds", "t2", "c2", "HistoryEnds", "t1", "m2",
    ]  # fmt: skip
    starts = [entry for entry in entries if isinstance(entry, ChildStarts)]
    assert [(start.parent_id, start.child_id) for start in starts] == [(SESSION, outer), (outer, inner)]
    assert updates(entries, "t1")[0]["content"] == [
        {"type": "session", "sessionId": outer},
        {"type": "content", "content": {"type": "text", "text": "Report"}},
    ]


def test_children_that_no_row_refers_to_are_found_by_their_meta_files(tmp_path: Path) -> None:
    path = store(tmp_path, [prompt("Hi", "u1")])
    child(path, "aa", {"toolUseId": "gone", "description": "killed"}, [answer("c1", text("I"))])
    child(path, "bb", {"toolUseId": "gone2", "parentAgentId": "aa"}, [answer("d1", text("J"))])
    entries = read(path)
    starts = [entry for entry in entries if isinstance(entry, ChildStarts)]
    assert [start.parent_id for start in starts] == [SESSION, f"{SESSION}.aa"]
    assert shown(entries) == ["u1", "ChildStarts", "c1", "ChildStarts", "d1", "HistoryEnds", "HistoryEnds"]


def test_a_missing_child_is_announced_and_its_gap_is_known(tmp_path: Path) -> None:
    structured = {"status": "async_launched", "agentId": "zz", "isAsync": True}
    rows = [answer("m1", agent("t1", "lost")), result("t1", "Async agent launched successfully.", structured)]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["t1", "ChildStarts", "Unreadable", "HistoryEnds", "t1", "t1"]
    # Nothing tells how it ended, and it runs no more.
    assert [update.get("status") for update in updates(entries, "t1")] == [None, "in_progress", "failed"]
    assert isinstance(entries[1], ChildStarts)
    assert entries[1].update["title"] == "lost"
    assert entries[3] == HistoryEnds(f"{SESSION}.zz")


def test_an_unreadable_child_is_announced_and_its_gap_is_known(tmp_path: Path) -> None:
    path = store(tmp_path, [answer("m1", agent("t1")), result("t1", "R")])
    child(path, "aa", {"toolUseId": "t1"}, None)
    (path.with_suffix("") / "subagents" / "agent-aa.jsonl").mkdir()
    assert shown(read(path)) == ["ChildStarts", "Unreadable", "HistoryEnds", "t1"]


def test_children_in_a_circle_are_given_once(tmp_path: Path) -> None:
    path = store(tmp_path, [answer("m1", agent("t1")), result("t1", "R")])
    child(path, "aa", {"toolUseId": "t1", "parentAgentId": "bb"}, [answer("c1", agent("t2"))])
    child(path, "bb", {"toolUseId": "t2", "parentAgentId": "aa"}, [answer("d1", agent("t1"))])
    child(path, "cc", {"parentAgentId": "cc"}, [])
    starts = [entry.child_id for entry in read(path) if isinstance(entry, ChildStarts)]
    assert sorted(starts) == [f"{SESSION}.{name}" for name in ("aa", "bb", "cc")]


@pytest.mark.parametrize(("live", "state"), [(True, "running"), (False, "idle")])
def test_an_unfinished_child_runs_only_when_the_session_lives(tmp_path: Path, live: bool, state: str) -> None:
    path = store(tmp_path, [answer("m1", agent("t1"))])
    child(path, "aa", {"toolUseId": "t1"}, [])
    [start] = [entry for entry in read(path, live=live) if isinstance(entry, ChildStarts)]
    assert start.update["state"] == {"state": state}


def test_a_plan_ends_as_the_last_result_left_it(tmp_path: Path) -> None:
    def task(number: str) -> dict[str, object]:
        return {"task": {"id": number, "subject": f"Task {number}"}}

    rows = [
        answer("m1", call("t1", "TaskCreate", subject="Task 1")),
        answer("m1", call("t2", "TaskCreate", subject="Task 2")),
        result("t2", "ok", task("2")),
        result("t1", "ok", task("1")),
    ]
    entries = read(store(tmp_path, rows))
    plans = [e.update["plan"] for e in entries if isinstance(e, HistoryUpdate) and "plan" in e.update]
    assert [entry["content"] for entry in plans[-1]["entries"]] == ["Task 2", "Task 1"]


def test_a_store_that_cannot_be_read_is_an_error_and_no_empty_history(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnreadable):
        list(history(tmp_path, SESSION, live=False))


def test_a_message_goes_on_behind_a_result_that_came_early(tmp_path: Path) -> None:
    # Tools start while the answer still streams, so a result may stand between two blocks of it.
    rows = [
        answer("m1", call("t1")),
        answer("m1", text("One, ")),
        result("t1"),
        answer("m1", text("two.")),
        answer("m2", text("Three.")),
    ]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["t1", "m1", "m2"]
    assert updates(entries, "m1")[-1]["content"] == [{"type": "text", "text": "One, two."}]


def test_a_message_that_was_given_early_is_given_again_whole(tmp_path: Path) -> None:
    path = store(tmp_path, [answer("m1", call("t0")), answer("m1", text("One, ")), prompt("Hi", "u1"),
                            answer("m1", text("two."))])  # fmt: skip
    entries = read(path)
    assert shown(entries) == ["t0", "m1", "u1", "m1", "t0"]
    assert updates(entries, "m1")[-1]["content"] == [{"type": "text", "text": "One, two."}]


def test_a_compaction_without_a_summary_stays_in_its_place(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "cwd": "/project"}
    rows = [prompt("One", "u1"), boundary, answer("m1", text("On.")), boundary | {"uuid": "c2"}]
    assert shown(read(store(tmp_path, rows))) == ["u1", "c1", "m1", "c2"]


def test_subagents_rows_in_the_sessions_own_file_are_not_its_conversation(tmp_path: Path) -> None:
    rows = [prompt("Hi", "u1"), answer("s1", text("child"), isSidechain=True), prompt("task", "x", isSidechain=True)]
    entries = read(store(tmp_path, rows))
    assert shown(entries) == ["u1"]
    assert UserTurn(SESSION, ("x",), None) in entries


@pytest.mark.parametrize(("finished", "status"), [(True, "completed"), (False, "failed")])
def test_a_background_subagent_whose_end_was_not_stored(tmp_path: Path, finished: bool, status: str) -> None:
    structured = {"status": "async_launched", "agentId": "aa", "isAsync": True}
    rows = [answer("m1", agent("t1", "look")), result("t1", "Async agent launched successfully.", structured)]
    path = store(tmp_path, rows)
    child(path, "aa", {"toolUseId": "t1", "finished": finished}, [answer("c1", text("I"))])
    assert updates(read(path), "t1")[-1]["status"] == status
