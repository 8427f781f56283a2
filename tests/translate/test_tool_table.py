"""The tool table: what each call looks like, and that nothing a model can send breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain_claude.translate import results, tools
from sayagain_claude.translate.harness import DECLINED
from support_schema import fault_in, needs_oracles
from translate.rows import call, result

CALLS: list[tuple[str, dict[str, Any], str, str]] = [
    ("Bash", {"command": "ls -l", "description": "List"}, "execute", "ls -l"),
    ("Bash", {"command": "cat <<E\nx\nE"}, "execute", "cat <<E …"),
    ("Read", {"file_path": "/project/a.txt"}, "read", "Read a.txt"),
    ("Read", {"file_path": "/project/a.txt", "offset": 5}, "read", "Read a.txt (from line 5)"),
    ("Read", {"file_path": "/other/a.txt", "offset": 5, "limit": 10}, "read", "Read /other/a.txt (5 - 14)"),
    ("Read", {"file_path": "/project/a.pdf", "pages": "1-3"}, "read", "Read a.pdf (pages 1-3)"),
    ("Write", {"file_path": "/project/sub/a.txt", "content": "x"}, "edit", "Write sub/a.txt"),
    ("Edit", {"file_path": "a.txt", "old_string": "a", "new_string": "b"}, "edit", "Edit a.txt"),
    ("NotebookEdit", {"notebook_path": "/project/n.ipynb", "new_source": ""}, "edit", "Edit n.ipynb"),
    ("Grep", {"pattern": "x+", "path": "/project/src"}, "search", "Search `x+` in src"),
    ("Glob", {"pattern": "*.py"}, "search", "Find `*.py`"),
    ("WebFetch", {"url": "https://x.org", "prompt": "What?"}, "fetch", "Fetch https://x.org"),
    ("WebSearch", {"query": "rust"}, "fetch", "Search the web: rust"),
    ("Agent", {"description": "Look", "prompt": "go"}, "think", "Look"),
    ("AskUserQuestion", {"questions": [{"question": "Which?", "options": []}]}, "other", "Which?"),
    ("ExitPlanMode", {"plan": "# Plan"}, "switch_mode", "Approve plan"),
    ("TodoWrite", {"todos": []}, "think", "Update todos"),
    ("TaskUpdate", {"taskId": "1", "status": "completed"}, "think", "Update task 1: completed"),
    ("mcp__git-hub__list_issues", {}, "other", "git-hub: list_issues"),
    ("Unheard", {"x": 1}, "other", "Unheard"),
]


@pytest.mark.parametrize(("name", "input_", "kind", "title"), CALLS)
def test_calls_have_a_kind_and_a_title_for_humans(name: str, input_: dict[str, Any], kind: str, title: str) -> None:
    update = tools.started(call("t1", name, **input_), "/project")
    assert (update["kind"], update["title"]) == (kind, title)
    assert update["name"] == name


def test_locations_are_absolute_and_have_the_line() -> None:
    update = tools.started(call("t1", "Read", file_path="sub/../a.txt", offset=7), "/project")
    assert update["locations"] == [{"path": "/project/a.txt", "line": 7}]
    for offset in (0, -1, 2.5, True, "7", 2**40):
        update = tools.started(call("t1", "Read", file_path="/a", offset=offset), "/project")
        assert update["locations"] == [{"path": "/a"}]


def finish(name: str, input_: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    [found] = results.tool_results(row)
    return results.finished(call("t1", name, **input_), found, "/project")


def words(update: dict[str, Any]) -> list[str]:
    return [item["content"]["text"] for item in update["content"]]


def test_output_that_quotes_the_harness_stays() -> None:
    quoted = "(Bash completed with no output)\n<system-reminder>x</system-reminder>"
    assert words(finish("WebFetch", {}, result("t1", quoted, {"result": quoted}))) == [quoted]
    refusal = "The user doesn't want to proceed with this tool use."
    assert finish("Bash", {}, result("t1", refusal, {"stdout": refusal, "stderr": ""}))["status"] == "completed"


def test_a_fence_cannot_be_closed_by_what_is_in_it() -> None:
    [shown] = words(finish("Grep", {}, result("t1", "x", {"content": "````\nx"})))
    assert shown == "`````\n````\nx\n`````"


@pytest.mark.parametrize(
    "note",
    [
        "(Bash completed with no output)",
        "Command running in background with ID: b1. Output is being written to: /tmp/x",
        "Command did not complete within its 2s timeout and was moved to the background (ID: b1).",
        "<system-reminder>be good</system-reminder>",
    ],
)
def test_words_for_the_model_are_no_output(note: str) -> None:
    # Without a structured result: so are the results of subagents' calls stored.
    assert finish("Unheard", {}, result("t1", note))["content"] == []


def test_reminders_behind_a_result_are_cut_off() -> None:
    reminder = "<system-reminder>\nsecret\n</system-reminder>"
    shown = finish("Read", {}, result("t1", f"     1\tone\n     2\ttwo\n\n{reminder}\n{reminder}"))
    assert words(shown) == ["```\none\ntwo\n```"]


def test_a_search_has_the_files_it_found_as_locations() -> None:
    structured = {"filenames": ["/project/a.py", "sub/b.py", 3], "numFiles": 2}
    shown = finish("Glob", {"pattern": "*.py"}, result("t1", "a.py\nsub/b.py", structured))
    assert shown["locations"] == [{"path": "/project/a.py"}, {"path": "/project/sub/b.py"}]
    many = {"filenames": [f"/project/{number}" for number in range(500)]}
    assert len(finish("Grep", {}, result("t1", "", many))["locations"]) == 50


def test_a_notebook_shows_its_cells() -> None:
    cells = [
        {"cellType": "markdown", "source": "# Title"},
        {"cellType": "code", "source": "print(1)\n", "language": "python", "cell_id": "c1"},
        {"cellType": "code", "source": ""},
        3,
    ]
    structured = {"type": "notebook", "file": {"filePath": "/project/n.ipynb", "cells": cells}}
    content = [{"type": "text", "text": '<cell id="c1">print(1)</cell id="c1">'}]
    shown = words(finish("Read", {}, result("t1", content, structured)))
    assert shown == ["```markdown\n# Title\n```", "```python\nprint(1)\n```"]


def test_a_large_output_shows_its_beginning() -> None:
    framed = (
        "<persisted-output>\nOutput too large (9KB). Full output saved to: /x/y.txt\n\n"
        "Preview (first 2KB):\n1\n2\n...\n</persisted-output>"
    )
    assert words(finish("Grep", {}, result("t1", framed))) == ["```\n1\n2\n```"]


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (result("t1", "The user doesn't want to proceed with this tool use. X", is_error=True), "cancelled"),
        (result("t1", DECLINED, is_error=True, toolDenialKind="permission-rule"), "cancelled"),
        (result("t1", "[Tool call skipped: the turn ended]", is_error=True), "cancelled"),
        (result("t1", "[Tool call interrupted: unknown]", is_error=True), "failed"),
        (result("t1", "x", "User rejected tool use", is_error=True, toolDenialKind="user-rejected"), "cancelled"),
    ],
)
def test_calls_that_were_stopped_show_nothing_of_the_reason_given_to_the_model(
    row: dict[str, Any], status: str
) -> None:
    assert finish("WebSearch", {}, row) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t1",
        "status": status,
        "content": [],
    }


def test_a_subagents_report_has_no_frame_and_no_trailer() -> None:
    report = (
        "  <tools-used-before-summary>Read</tools-used-before-summary>\n  \n"
        "[Subagent hand-back] The text below is model output. The report follows:\n"
        "  First line.\n  \n    indented\nagentId: a1 (use SendMessage with to: 'a1')\n<usage>tool_uses: 1</usage>"
    )
    shown = finish("Agent", {}, result("t1", [{"type": "text", "text": report}]))
    assert words(shown) == ["First line.\n\n  indented"]


def test_mcp_results_are_shown_as_their_server_gave_them() -> None:
    content = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "text", "text": "[Image: source: /home/x/blob.png]"},
        {"type": "text", "text": "[Resource from srv at note://1] words"},
    ]
    shown = finish("mcp__srv__get", {}, result("t1", content))
    assert [item["content"] for item in shown["content"]] == [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "note://1", "text": "words"}},
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(categories=("L", "Cs"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(sorted(tools._TOOLS)) | st.sampled_from(["mcp__a__b", "mcp__", "", "Unheard"])
fields = st.sampled_from(
    [
        *("file_path", "notebook_path", "path", "pattern", "command", "content", "old_string", "new_string"),
        *("offset", "limit", "questions", "todos", "findings", "plan", "url", "query", "taskId", "description"),
    ]
)
inputs = json_values | st.dictionaries(fields, json_values, max_size=5)
structures = json_values | st.dictionaries(
    st.sampled_from(["filePath", "structuredPatch", "originalFile", "stdout", "file", "type", "answers", "content"]),
    json_values,
    max_size=5,
)


@given(names, inputs, json_values, structures, st.booleans())
def test_nothing_that_a_model_or_a_file_holds_raises(
    name: Any, input_: Any, content: Any, structured: Any, is_error: bool
) -> None:
    block = {"type": "tool_use", "id": "t1", "name": name, "input": input_}
    started = tools.started(block, "/project")
    [found] = results.tool_results(result("t1", content, structured, is_error=is_error))
    for update in (started, results.finished(block, found, "/project"), results.finished(None, found, "")):
        json.dumps(update, allow_nan=False, ensure_ascii=False).encode()
        assert all(location["path"].startswith("/") for location in update.get("locations", ()))


@needs_oracles
@given(names, inputs, json_values, structures, st.booleans())
def test_whatever_comes_out_is_valid(name: Any, input_: Any, content: Any, structured: Any, is_error: bool) -> None:
    block = {"type": "tool_use", "id": "t1", "name": name, "input": input_}
    [found] = results.tool_results(result("t1", content, structured, is_error=is_error))
    for update in (tools.started(block, "/project"), results.finished(block, found, "/project")):
        assert fault_in("SessionUpdate", update) is None
