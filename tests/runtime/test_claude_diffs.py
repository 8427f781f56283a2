"""Patches of edits before approval, after execution and in replay, in front of the real Claude Code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process
from support_wire import Wire

pytestmark = pytest.mark.real

CELL: dict[str, Any] = {"cell_type": "code", "execution_count": 7, "metadata": {}, "outputs": []}
NOTEBOOK = {
    "cells": [CELL | {"id": "one", "source": "1"}, CELL | {"id": "two", "source": ["é\n", "2"]}],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}

FILES: dict[str, bytes] = {
    "plain.txt": b"a\nb\nc\n",
    "crlf.txt": b"a\r\nb\r\nc\r\n",
    "mark.txt": b"\xef\xbb\xbfa\nb\nc\n",
    "wide.txt": "\ufeffa\nb\nc\n".encode("utf-16-le"),
    "cut.txt": b"a\nb\nc",
    "latin.txt": b"a\xe9\nb\nc\n",
    "book.ipynb": json.dumps(NOTEBOOK).encode(),
}


def edit(cwd: str, name: str, old: str = "b\nc", new: str = "B\nC", **more: Any) -> list[ToolUse]:
    path = f"{cwd}/{name}"
    change = {"file_path": path, "old_string": old, "new_string": new, **more}
    return [ToolUse("Read", {"file_path": path}), ToolUse("Edit", change)]


def write(cwd: str, name: str, content: str) -> list[ToolUse]:
    return [ToolUse("Write", {"file_path": f"{cwd}/{name}", "content": content})]


def cell(cwd: str, cell_id: str, mode: str, source: str = "3") -> ToolUse:
    change = {"notebook_path": f"{cwd}/book.ipynb", "cell_id": cell_id, "new_source": source, "edit_mode": mode}
    return ToolUse("NotebookEdit", change)


def last_content(wire: Wire, session_id: str) -> dict[str, list[Any]]:
    """What each edit's call shows in the end."""
    shown: dict[str, list[Any]] = {}
    names: dict[str, str] = {}
    for update in wire.updates(session_id, "tool_call_update"):
        names.setdefault(update["toolCallId"], update.get("name") or "")
        if names[update["toolCallId"]] != "Read" and "content" in update:
            shown[update["toolCallId"]] = update["content"]
    return shown


@pytest.fixture
def script(cwd: str, tmp_path: Path) -> Script:
    calls = [
        *edit(cwd, "plain.txt"),
        *edit(cwd, "crlf.txt"),
        *edit(cwd, "mark.txt"),
        *edit(cwd, "wide.txt"),
        *edit(cwd, "cut.txt"),
        *write(cwd, "new dir/ü.txt", "one\ntwo"),
        *write(cwd, "empty.txt", ""),
        *write(cwd, "plain.txt", "a\nB\nd\n"),
        *edit(cwd, "latin.txt"),
        ToolUse("Read", {"file_path": f"{cwd}/book.ipynb"}),
        cell(cwd, "two", "replace"),
        cell(cwd, "one", "delete", ""),
    ]
    return Script([Step("Go", [*([call] for call in calls), [Text("Went.")]])])


async def test_the_patch_is_the_same_before_approval_after_execution_and_in_replay(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    for name, data in FILES.items():
        Path(cwd, name).write_bytes(data)
    agent.wire.handle(
        "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
    )
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Go")
    await agent.wire.idle(session_id)
    live = last_content(agent.wire, session_id)
    *diffs, latin, replaced, deleted = live.values()
    asked = {a["params"]["subject"]["toolCall"]["toolCallId"]: a["params"] for a in agent.wire.asked}
    for call_id, content in live.items():
        if content is not latin:
            assert asked[call_id]["subject"]["toolCall"]["content"] == content
    texts = [content[0]["patch"]["text"] for content in (*diffs, replaced, deleted)]
    bodies = [text.split("\n", 3)[3] if "@@" in text else "" for text in texts]
    edited = "@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+C\n"
    assert bodies[:2] == [edited, edited]
    assert bodies[2:4] == [edited.replace(" a", " \ufeffa")] * 2
    assert (
        bodies[4] == "@@ -1,3 +1,3 @@\n a\n-b\n-c\n\\ No newline at end of file\n+B\n+C\n\\ No newline at end of file\n"
    )
    assert texts[5].splitlines()[1:] == [
        "new file mode 100644",
        "--- /dev/null",
        f'+++ "{cwd}/new dir/\\303\\274.txt"\t',  # as Git ends a name with a blank
        "@@ -0,0 +1,2 @@",
        "+one",
        "+two",
        "\\ No newline at end of file",
    ]
    assert [content[0]["changes"][0]["operation"] for content in diffs] == ["modify"] * 5 + ["add", "add", "modify"]
    assert bodies[7] == "@@ -1,3 +1,3 @@\n a\n B\n-C\n+d\n"
    assert '+   "source": "3"' in texts[8]
    assert '-   "source": "1"' in texts[9]
    assert Path(cwd, "crlf.txt").read_bytes() == b"a\r\nB\r\nC\r\n"
    # What is no text is left alone, and the user reads why.
    assert Path(cwd, "latin.txt").read_bytes() == FILES["latin.txt"]
    assert "not valid UTF-8" in latin[0]["content"]["text"]
    await agent.close()
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd, replay=True)
        assert last_content(second.wire, session_id) == live
