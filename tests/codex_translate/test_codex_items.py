"""What each kind of item looks like: titles, kinds, statuses, content."""

from __future__ import annotations

import base64
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain_codex.translate.executions import unwrapped
from sayagain_codex.translate.items import item_updates
from support_schema import fault_in, needs_oracles


def updates(item: dict[str, Any], *, live: bool = False) -> list[dict[str, Any]]:
    return item_updates({"id": "i", **item}, live=live, cwd="/w", child=lambda thread_id: f"root.{thread_id}")


def call(item: dict[str, Any], *, live: bool = False) -> dict[str, Any]:
    return updates(item, live=live)[-1]


def command(text: str = "/bin/bash -lc 'echo hi'", **more: Any) -> dict[str, Any]:
    return {"type": "commandExecution", "command": text, "cwd": "/w", "status": "completed", **more}


@pytest.mark.parametrize(
    ("command_", "title"),
    [
        ("/bin/bash -lc 'echo hi'", "echo hi"),
        ("bash -c 'a && b'", "a && b"),
        ("/usr/bin/zsh -lc ls", "ls"),
        ("pwsh -NoProfile -Command 'Get-Item x'", "Get-Item x"),
        ("echo 'not a shell'", "echo 'not a shell'"),
        ("bash -lc 'unbalanced", "bash -lc 'unbalanced"),
        ("bash script.sh -lc x y", "bash script.sh -lc x y"),
        ("", ""),
        ('/bin/bash -lc "echo \'it\' \\$HOME \\"x\\" \\n"', "echo 'it' $HOME \"x\" \\n"),
        ("/bin/sh -c 'a'\\''b'", "a'b"),
        ("/bin/bash -lc 'a\nb'", "a\nb"),
        ("/bin/bash -lc 'a' extra", "/bin/bash -lc 'a' extra"),
        ("fish -c 'a'", "fish -c 'a'"),
    ],
)
def test_a_title_has_no_shell_around_it(command_: str, title: str) -> None:
    assert unwrapped(command_) == title


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_command_comes_out_of_its_shell(text: str) -> None:
    assert unwrapped(f"/bin/bash -lc {shlex.quote(text)}") == text


def test_a_huge_command_takes_no_time() -> None:
    assert unwrapped('/bin/bash -lc "' + "x\\$" * 1_000_000 + '"') == "x$" * 1_000_000
    assert unwrapped("/bin/bash -lc '" + "x" * 1_000_000) == "/bin/bash -lc '" + "x" * 1_000_000


def test_a_command_is_a_terminal_and_a_call_that_shows_it() -> None:
    terminal, shown = updates(command(aggregatedOutput="hi\n€\n", exitCode=0, durationMs=5, source="agent"))
    assert terminal == {
        "sessionUpdate": "terminal_update",
        "terminalId": "i",
        "command": "echo hi",
        "cwd": "/w",
        "output": {"data": base64.b64encode("hi\n€\n".encode()).decode()},
        "exitStatus": {"exitCode": 0},
    }
    assert shown == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "i",
        "name": "exec_command",
        "kind": "execute",
        "title": "echo hi",
        "rawInput": {"command": "echo hi", "cwd": "/w"},
        "status": "completed",
        "content": [{"type": "terminal", "terminalId": "i"}],
        "rawOutput": {"exitCode": 0, "durationMs": 5},
    }


@pytest.mark.parametrize(
    ("status", "live", "expected"),
    [
        ("inProgress", True, "in_progress"),
        ("inProgress", False, "failed"),
        ("completed", False, "completed"),
        ("failed", False, "failed"),
        ("declined", False, "cancelled"),
        ("interrupted", False, "cancelled"),
        ("somethingNew", False, "completed"),
    ],
)
def test_statuses(status: str, live: bool, expected: str) -> None:
    assert call(command(status=status), live=live)["status"] == expected
    assert call({"type": "fileChange", "changes": [], "status": status}, live=live)["status"] == expected


def test_a_running_command_has_no_exit_status_and_a_declined_one_has() -> None:
    assert "exitStatus" not in updates(command(status="inProgress"), live=True)[0]
    assert updates(command(status="declined"))[0]["exitStatus"] == {}


READ = {"type": "read", "command": "cat a", "name": "a.txt", "path": "/w/a.txt"}
SEARCH = {"type": "search", "command": "rg x", "query": "x", "path": "src"}
LIST = {"type": "listFiles", "command": "ls", "path": None}
OTHER = {"type": "unknown", "command": "make"}


@pytest.mark.parametrize(
    ("actions", "kind", "title", "paths"),
    [
        ([READ], "read", "Read /w/a.txt", ["/w/a.txt"]),
        ([SEARCH], "search", "Search `x` in src", ["/w/src"]),
        ([LIST], "read", "List files", []),
        ([READ, SEARCH], "search", "echo hi", ["/w/a.txt", "/w/src"]),
        ([READ, OTHER], "execute", "echo hi", []),
        ([], "execute", "echo hi", []),
        ([None, 3], "execute", "echo hi", []),
    ],
)
def test_a_command_is_of_the_kind_of_all_its_actions(
    actions: list[Any], kind: str, title: str, paths: list[str]
) -> None:
    shown = call(command(commandActions=actions))
    assert (shown["kind"], shown["title"]) == (kind, title)
    assert [location["path"] for location in shown.get("locations", [])] == paths


def test_a_long_command_has_a_title_of_one_line() -> None:
    shown = call(command("first line\nsecond"))
    assert shown["title"] == "first line"
    assert len(call(command("x" * 1000))["title"]) == 300
    assert shown["rawInput"]["command"] == "first line\nsecond"


def test_a_patch_is_named_by_what_it_does() -> None:
    def title(*changes: tuple[str, dict[str, Any]]) -> tuple[str, str]:
        items = [{"path": path, "kind": kind, "diff": ""} for path, kind in changes]
        shown = call({"type": "fileChange", "changes": items, "status": "completed"})
        return shown["title"], shown["kind"]

    add, delete, update = {"type": "add"}, {"type": "delete"}, {"type": "update"}
    assert title(("/w/a", add)) == ("Write a", "edit")
    assert title(("/w/a", update)) == ("Edit a", "edit")
    assert title(("/x/a", delete)) == ("Delete /x/a", "delete")
    assert title(("/w/a", {"type": "update", "move_path": "/w/b"})) == ("Move a to b", "move")
    assert title(("/w/a", delete), ("/w/b", delete)) == ("Delete 2 files", "delete")
    assert title(("/w/a", add), ("/w/b", delete)) == ("Edit 2 files", "edit")


def test_an_mcp_call_shows_what_it_returned() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image", "data": "eA==", "mimeType": "image/png"}, {"type": "?"}]
    item = {
        "type": "mcpToolCall",
        "server": "s",
        "tool": "t",
        "arguments": {"x": 1},
        "status": "completed",
        "result": {"content": content, "structuredContent": {"y": 2}},
    }
    assert call(item) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "i",
        "name": "mcp__s__t",
        "title": "s: t",
        "kind": "other",
        "status": "completed",
        "rawInput": {"x": 1},
        "content": [
            {"type": "content", "content": {"type": "text", "text": "a"}},
            {"type": "content", "content": {"type": "image", "data": "eA==", "mimeType": "image/png"}},
        ],
        "rawOutput": {"y": 2},
    }
    failed = call({**item, "status": "failed", "result": None, "error": {"message": "no"}})
    assert failed["content"] == [{"type": "content", "content": {"type": "text", "text": "no"}}]


@pytest.mark.parametrize(
    ("item", "kind", "title"),
    [
        (
            {"type": "webSearch", "query": "ants", "action": {"type": "search", "query": "ants"}},
            "search",
            "Search the web: ants",
        ),
        (
            {"type": "webSearch", "query": "", "action": {"type": "search", "queries": ["a", "b"]}},
            "search",
            "Search the web: a, b",
        ),
        (
            {"type": "webSearch", "query": "", "action": {"type": "openPage", "url": "https://x"}},
            "fetch",
            "Open https://x",
        ),
        (
            {"type": "webSearch", "query": "", "action": {"type": "findInPage", "url": "https://x", "pattern": "p"}},
            "fetch",
            "Find `p` in https://x",
        ),
        ({"type": "webSearch", "query": "", "action": None}, "search", "Search the web"),
        ({"type": "imageView", "path": "/w/a.png"}, "read", "View a.png"),
        ({"type": "imageGeneration", "status": "completed", "result": "eA=="}, "other", "Generate an image"),
        ({"type": "dynamicToolCall", "namespace": "n", "tool": "t", "status": "completed"}, "other", "n.t"),
        ({"type": "functionCallOutput", "name": "f", "output": "x"}, "other", "f"),
        ({"type": "sleep", "durationMs": 1500}, "other", "Wait 1.5 s"),
        ({"type": "enteredReviewMode", "review": "this"}, "think", "Review: this"),
        ({"type": "aNewKind", "text": "said"}, "other", "A new kind"),
    ],
)
def test_other_tools(item: dict[str, Any], kind: str, title: str) -> None:
    shown = call(item)
    assert (shown["kind"], shown["title"], shown["status"]) == (kind, title, "completed")


def test_images_are_images() -> None:
    generated = call({"type": "imageGeneration", "status": "completed", "result": "/9j/eA==", "savedPath": "/w/x.jpg"})
    assert generated["content"][0]["content"] == {"type": "image", "data": "/9j/eA==", "mimeType": "image/jpeg"}
    viewed = call({"type": "imageView", "path": "a b.png"})
    assert viewed["content"][0]["content"]["uri"] == "file:///w/a%20b.png"
    outputs = [{"type": "inputImage", "imageUrl": "data:image/png;base64,eA=="}, {"type": "inputText", "text": "t"}]
    dynamic = call(
        {"type": "dynamicToolCall", "tool": "t", "status": "completed", "success": False, "contentItems": outputs}
    )
    assert dynamic["status"] == "failed"
    assert [block["content"]["type"] for block in dynamic["content"]] == ["image", "text"]


def test_texts() -> None:
    assert updates({"type": "agentMessage", "text": ""}) == []
    thought = updates({"type": "reasoning", "summary": ["a", "b"], "content": ["c"]})[0]
    assert thought["content"] == [{"type": "text", "text": "a\n\nb\n\nc"}]
    assert updates({"type": "reasoning", "summary": [], "content": []}) == []
    plan = updates({"type": "plan", "text": "# P"})[0]
    assert plan["plan"] == {"type": "markdown", "planId": "i", "content": "# P"}
    user = updates({"type": "userMessage", "clientId": "ours", "content": [{"type": "text", "text": "x"}]})[0]
    assert user["messageId"] == "ours"
    assert updates({"type": "userMessage", "content": [{"type": "text", "text": "x"}]})[0]["messageId"] == "i"
    compaction = updates({"type": "contextCompaction"})[0]
    assert compaction == {"sessionUpdate": "compaction_update", "compactionId": "i", "status": "completed"}


@pytest.mark.parametrize("kind", ["hookPrompt", "exitedReviewMode", "userMessage", "plan"])
def test_items_without_anything_to_show(kind: str) -> None:
    assert updates({"type": kind}) == []
    assert item_updates({"type": kind}, live=True, cwd="/") == []


def test_a_subagents_call_refers_to_it() -> None:
    spawn = {
        "type": "collabAgentToolCall",
        "tool": "spawnAgent",
        "status": "completed",
        "prompt": "Do this.\nNow.",
        "receiverThreadIds": ["t1"],
    }
    shown = call(spawn)
    assert shown["title"] == "Start a subagent: Do this."
    assert shown["content"] == [{"type": "session", "sessionId": "root.t1"}]
    states = {"t1": {"status": "completed", "message": "Did it."}}
    waited = call({**spawn, "tool": "wait", "prompt": None, "agentsStates": states})
    assert waited["content"][1]["content"]["text"] == "Did it."
    activity = {"type": "subAgentActivity", "kind": "started", "agentThreadId": "t2", "agentPath": "/root/helper"}
    assert call(activity)["title"] == "Start subagent helper"
    assert updates({**activity, "kind": "completed"}) == []


@needs_oracles
@pytest.mark.parametrize(
    "item",
    [
        command("x", cwd="relative", exitCode=2**70),
        command("x", cwd="C:\\w", exitCode=-1),
        {"type": "fileChange", "changes": [{"path": "rel", "kind": "add", "diff": 3}], "status": "completed"},
        {"type": "imageView", "path": "\0"},
        {
            "type": "mcpToolCall",
            "server": "s",
            "tool": "t",
            "result": {"content": [{"type": "resource", "resource": {}}]},
        },
        {"type": "\ud800"},
    ],
)
def test_odd_items_are_valid(item: dict[str, Any]) -> None:
    for update in updates(item):
        assert fault_in("SessionUpdate", update) is None
