"""Results of tools that speak to the model: what a user reads of them; and that the table knows every tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recorded.recordings import recordings
from sayagain_claude.translate import results, tools
from sayagain_claude.translate.outcomes import OUTCOMES
from translate.rows import call, result

FOR_THE_MODEL = "Words for the model, which must not be shown."


def finish(name: str, input_: dict[str, Any], structured: Any, text: str = FOR_THE_MODEL) -> dict[str, Any]:
    [found] = results.tool_results(result("t1", text, structured))
    return results.finished(call("t1", name, **input_), found, "/project")


def words(update: dict[str, Any]) -> str:
    return "\n".join(item["content"]["text"] for item in update["content"])


CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "CronCreate",
        {"prompt": "Look"},
        {"id": "e", "humanSchedule": "Every day at 9:00 AM"},
        "Every day at 9:00 AM\nLook",
    ),
    ("CronList", {}, {"jobs": [{"humanSchedule": "Every day", "prompt": "Look"}]}, "- Every day: Look"),
    ("CronDelete", {"id": "e"}, {"id": "e"}, ""),
    ("ScheduleWakeup", {"prompt": "Look"}, {"clampedDelaySeconds": 600, "scheduledFor": 1}, "In 600 seconds\nLook"),
    ("ScheduleWakeup", {}, {"stopped": True, "clampedDelaySeconds": 0}, ""),
    ("ListAgents", {}, {"listing": "This session is x\n\nNo reachable agents"}, "No reachable agents"),
    ("SendMessage", {"message": "Hi"}, {"success": True, "message": FOR_THE_MODEL, "display": "Sent"}, "Hi\nSent"),
    ("EnterWorktree", {}, {"worktreePath": "/w", "worktreeBranch": "b", "message": FOR_THE_MODEL}, "/w (b)"),
    ("ExitWorktree", {}, {"message": FOR_THE_MODEL}, ""),
    ("TaskStop", {"task_id": "b1"}, {"message": FOR_THE_MODEL, "task_id": "b1"}, ""),
    ("ToolSearch", {"query": "x"}, {"matches": ["NotebookEdit"], "query": "x"}, "NotebookEdit"),
    ("TaskOutput", {}, {"retrieval_status": "success", "task": {"output": "one\n"}}, "```console\none\n```"),
    (
        "WebSearch",
        {"query": "x"},
        {"query": "x", "results": ["Found.", {"content": [{"title": "T", "url": "https://t.example/"}]}]},
        "Found.\n- [T](https://t.example/)",
    ),
    (
        "ReportFindings",
        {"findings": [{"file": "a.py", "line": 3, "summary": "Bad", "failure_scenario": "It fails"}]},
        {"count": 1},
        "- **Bad** (a.py:3): It fails",
    ),
]


@pytest.mark.parametrize(("name", "input_", "structured", "shown"), CASES)
def test_a_user_reads_what_it_says_and_not_what_the_model_is_told(
    name: str, input_: dict[str, Any], structured: dict[str, Any], shown: str
) -> None:
    update = finish(name, input_, structured)
    assert (update["status"], words(update)) == ("completed", shown)
    assert FOR_THE_MODEL not in json.dumps(update)


@pytest.mark.parametrize("name", sorted(OUTCOMES))
@pytest.mark.parametrize("structured", [None, [], "x", {"jobs": 3, "results": [3, {"content": 3}], "task": 3}])
def test_another_shape_breaks_nothing(name: str, structured: Any) -> None:
    assert finish(name, {"findings": [3], "prompt": 3}, structured)["status"] == "completed"


@pytest.mark.parametrize(
    ("input_", "structured", "places"),
    [
        (
            {},
            {"mode": "content", "content": "a.txt:1:x\nb/c.txt:20:y: 3:z\nb/c.txt-21-w"},
            [("a.txt", 1), ("b/c.txt", 20)],
        ),
        ({"path": "a.txt"}, {"mode": "content", "content": "3:x\n7:y"}, [("a.txt", 3), ("a.txt", 7)]),
        ({}, {"mode": "content", "content": "a.txt:1:x\na.txt:1:x"}, [("a.txt", 1)]),
        ({}, {"mode": "count", "content": "a.txt:4"}, [("a.txt", None)]),
        ({}, {"mode": "files_with_matches", "filenames": ["a.txt"]}, [("a.txt", None)]),
    ],
)
def test_what_a_search_found_can_be_jumped_to(
    input_: dict[str, Any], structured: dict[str, Any], places: list[tuple[str, int | None]]
) -> None:
    locations = finish("Grep", {"pattern": "x", **input_}, structured).get("locations", [])
    assert [(place["path"], place.get("line")) for place in locations] == [
        (f"/project/{p}", line) for p, line in places
    ]


def test_findings_can_be_jumped_to() -> None:
    update = tools.started(
        call("t1", "ReportFindings", findings=[{"file": "a.py", "line": 3}, {"file": "b.py"}]), "/project"
    )
    assert update["locations"] == [{"path": "/project/a.py", "line": 3}, {"path": "/project/b.py"}]


def test_every_tool_of_the_runtime_is_in_the_table() -> None:
    offered = {
        name
        for recording in recordings()
        for record in recording.records()
        if record["frame"].get("subtype") == "init"
        for name in record["frame"]["tools"]
        if tools.mcp_name(name) is None
    }
    assert len(offered) > 25
    unknown = {
        name for name in offered if tools.tool_title(name, {}, "/project") == name and name not in OF_THEIR_OWN_NAME
    }
    assert unknown == set()


OF_THEIR_OWN_NAME = {"Read", "Write", "Edit", "Monitor", "Workflow"}
"""Tools whose title begins with the word that they are called by; without an input, it is all of it."""
