"""The tools of the runtime, one scenario each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from sayagain.testing import mcp_echo
from sayagain.testing.messages_script import Step, Text, ToolUse
from sayagain.testing.scenarios.base import EAGER_TOOLS, OLDER_MODEL, Scenario, Stage, always, asking, bash, once

__all__ = ["SCENARIOS"]

_NOTES: Final = {"notes.txt": "alpha\nbeta\ngamma\n"}
_CELL: Final[dict[str, Any]] = {
    "cell_type": "code",
    "execution_count": None,
    "id": "one",
    "metadata": {},
    "outputs": [],
    "source": "1",
}
_NOTEBOOK: Final = json.dumps(
    {"cells": [_CELL], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
)
_MCP: Final = json.dumps({"mcpServers": {"echo": {"command": sys.executable, "args": [str(Path(mcp_echo.__file__))]}}})


def _edit(old: str, new: str) -> ToolUse:
    return ToolUse("Edit", {"file_path": "@/notes.txt", "old_string": old, "new_string": new})


def _todos(*states: tuple[str, str]) -> ToolUse:
    todos = [{"content": name, "status": state, "activeForm": f"{name}ing"} for name, state in states]
    return ToolUse("TodoWrite", {"todos": todos})


def _task(subject: str) -> ToolUse:
    return ToolUse("TaskCreate", {"subject": subject, "description": f"{subject} it", "activeForm": f"{subject}ing"})


async def _bash_behind(stage: Stage) -> None:
    """The end of the command starts a turn of its own."""
    async with stage.run() as claude:
        await claude.prompt("Run it behind.")
        first = await claude.until(lambda f: f["type"] == "result")
        await claude.until(lambda f: f["type"] == "result" and f["uuid"] != first["uuid"])
        last = next(number for number, (_, frame) in reversed(list(enumerate(claude.log))) if frame["type"] == "result")
        await claude.idle(last)


SCENARIOS: Final = (
    Scenario(
        "bash",
        "Bash: one call that works, one that fails, one that prints nothing.",
        always(
            [Text("I run it."), bash("echo first; echo second", "Print")],
            [bash("echo broken >&2; exit 3", "Fail")],
            [bash("true", "Nothing")],
            [Text("Ran all.")],
        ),
        asking("Run it."),
        keeps=["first\nsecond", "broken"],
    ),
    Scenario(
        "read",
        "Read: a file, a part of it, a missing one.",
        always(
            [ToolUse("Read", {"file_path": "@/notes.txt"})],
            [ToolUse("Read", {"file_path": "@/notes.txt", "offset": 2, "limit": 1})],
            [ToolUse("Read", {"file_path": "@/missing.txt"})],
            [Text("Read it.")],
        ),
        asking("Read it."),
        files=_NOTES,
    ),
    Scenario(
        "write",
        "Write: a new file, then the same again.",
        always(
            [ToolUse("Write", {"file_path": "@/new.txt", "content": "one\ntwo\n"}, chunk=20)],
            [ToolUse("Write", {"file_path": "@/new.txt", "content": "one\nthree\n"})],
            [Text("Wrote it.")],
        ),
        asking("Write it."),
    ),
    Scenario(
        "edit",
        "Edit after Read: two edits of one file in parallel, then one that does not fit.",
        always(
            [ToolUse("Read", {"file_path": "@/notes.txt"})],
            [_edit("alpha", "ALPHA"), _edit("gamma", "GAMMA")],
            [_edit("nowhere", "x")],
            [Text("Edited it.")],
        ),
        asking("Edit it."),
        files=_NOTES,
    ),
    Scenario(
        "search",
        "Grep and Glob in parallel, asked for by --tools: by default this build searches with Bash.",
        always(
            [
                ToolUse("Grep", {"pattern": "alpha", "output_mode": "content", "-n": True}),
                ToolUse("Glob", {"pattern": "*.txt"}),
            ],
            [ToolUse("Grep", {"pattern": "nowhere"})],
            [Text("Searched.")],
        ),
        asking("Search.", arguments=["--tools", "Bash,Glob,Grep,Read"]),
        files={"a.txt": "alpha\n", "b.txt": "beta alpha\n"},
        keeps=["a.txt:1:alpha", "b.txt:1:beta alpha"],
    ),
    Scenario(
        "unknown_tools",
        "Calls of tools that the session does not have.",
        always(
            [ToolUse("Grep", {"pattern": "alpha"}), ToolUse("Glob", {"pattern": "*.txt"})],
            [Text("Searched not.")],
        ),
        asking("Search."),
    ),
    Scenario(
        "parallel_tools",
        "Three calls in one message.",
        always([bash(f"echo {name}", name) for name in ("one", "two", "three")], [Text("Did three.")]),
        asking("Do three."),
        keeps=["one", "two", "three"],
    ),
    Scenario(
        "background_bash",
        "A command in the background: the session is idle, and runs again when it ends.",
        [
            Step(
                "Run it behind.",
                [
                    [ToolUse("Bash", {"command": "echo behind", "description": "Behind", "run_in_background": True})],
                    [Text("It runs.")],
                ],
            ),
            Step("<task-notification>", [[Text("It has ended.")]]),
        ],
        _bash_behind,
        keeps=["behind"],
    ),
    Scenario(
        "tool_search",
        "ToolSearch loads a tool that is not offered at once.",
        always(
            [ToolUse("ToolSearch", {"query": "select:NotebookEdit"})],
            [ToolUse("Read", {"file_path": "@/book.ipynb"})],
            [ToolUse("NotebookEdit", {"notebook_path": "@/book.ipynb", "cell_id": "one", "new_source": "2"})],
            [Text("Edited it.")],
        ),
        asking("Edit the notebook."),
        files={"book.ipynb": _NOTEBOOK},
    ),
    Scenario(
        "todos",
        "TodoWrite: a plan that changes.",
        always(
            [_todos(("Test", "in_progress"), ("Mend", "pending"))],
            [_todos(("Test", "completed"), ("Mend", "in_progress"))],
            [Text("Planned.")],
        ),
        asking("Plan it.", arguments=OLDER_MODEL),
        environment={**EAGER_TOOLS, "CLAUDE_CODE_ENABLE_TASKS": "0"},
    ),
    Scenario(
        "tasks",
        "TaskCreate, TaskUpdate, TaskList: the newer form of a plan.",
        always(
            [_task("Test"), _task("Mend")],
            [ToolUse("TaskUpdate", {"taskId": "1", "status": "in_progress"})],
            [ToolUse("TaskUpdate", {"taskId": "1", "status": "completed"})],
            [ToolUse("TaskList", {})],
            [Text("Planned.")],
        ),
        asking("Plan it.", arguments=OLDER_MODEL),
        environment=EAGER_TOOLS,
    ),
    Scenario(
        "notebook",
        "NotebookEdit: a cell replaced.",
        always(
            [ToolUse("Read", {"file_path": "@/book.ipynb"})],
            [ToolUse("NotebookEdit", {"notebook_path": "@/book.ipynb", "cell_id": "one", "new_source": "2"})],
            [Text("Edited it.")],
        ),
        asking("Edit the notebook."),
        files={"book.ipynb": _NOTEBOOK},
        environment=EAGER_TOOLS,
    ),
    Scenario(
        "mcp",
        "A tool of an MCP server over stdio.",
        once(ToolUse("mcp__echo__echo", {"text": "again"})),
        asking("Echo it.", arguments=["--mcp-config", _MCP]),
        environment=EAGER_TOOLS,
        keeps=["echo: again", "Say it again."],
    ),
)
