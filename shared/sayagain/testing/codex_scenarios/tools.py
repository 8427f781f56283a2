"""Tools: commands, patches, searches, plans, MCP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from sayagain.testing.codex_scenarios.base import (
    CODE_MODEL,
    FREE,
    CodexScenario,
    always,
    asking,
    once,
)
from sayagain.testing.responses_script import (
    Reasoning,
    Text,
    ToolUse,
    WebSearch,
    apply_patch,
    exec_command,
    in_code,
    mcp_tool,
    update_plan,
)

__all__ = ["ECHO_SERVER", "PATCHES", "SCENARIOS"]

ECHO_SERVER: Final[dict[str, Any]] = {
    "mcp_servers.echo": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "mcp_echo.py")]}
}
"""Configuration of a thread that has the MCP server for tests."""

_ADD: Final = "*** Begin Patch\n*** Add File: new.txt\n+first line\n+second line\n*** End Patch\n"
_UPDATE: Final = "*** Begin Patch\n*** Update File: notes.txt\n@@\n one\n-two\n+zwei\n three\n*** End Patch\n"
_MOVE: Final = (
    "*** Begin Patch\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-old words\n+new words\n*** End Patch\n"
)
_DELETE: Final = "*** Begin Patch\n*** Delete File: gone.txt\n*** End Patch\n"
PATCHES: Final = (_ADD, _UPDATE, _MOVE, _DELETE)
"""One patch of each kind, for :data:`FILES`."""

FILES: Final = {"notes.txt": "one\ntwo\nthree\n", "old.txt": "old words\n", "gone.txt": "gone words\n"}
_WORKSPACE: Final[dict[str, Any]] = {"sandbox": "workspace-write", "approvalPolicy": "never"}

SCENARIOS: Final = (
    CodexScenario(
        "command", "One command.", once(exec_command("echo hello")), asking("Run."), thread=FREE, keeps=["hello"]
    ),
    CodexScenario(
        "command_failed",
        "A command that fails, with output on both streams.",
        once(exec_command("echo out; echo err >&2; exit 3")),
        asking("Run."),
        thread=FREE,
        keeps=["out", "err"],
    ),
    CodexScenario(
        "command_output",
        "A command whose output comes in pieces; the first may never come as a delta.",
        once(exec_command("echo one; sleep 0.3; echo two; sleep 0.3; echo three")),
        asking("Run."),
        thread=FREE,
        keeps=["one", "two", "three"],
    ),
    CodexScenario(
        "command_kinds",
        "Commands that read, list and search.",
        always(
            [exec_command("cat notes.txt"), exec_command("ls")],
            [exec_command("grep -n two notes.txt")],
            [Text("Looked.")],
        ),
        asking("Look."),
        files=FILES,
        thread=FREE,
        keeps=[*FILES, "2:two"],
    ),
    CodexScenario(
        "parallel",
        "Reasoning, a commentary and two commands in one response.",
        always(
            [
                Reasoning(["Both at once."]),
                Text("I run both.", phase="commentary"),
                exec_command("echo first"),
                exec_command("echo second"),
            ],
            [Text("Both ran.", phase="final_answer")],
        ),
        asking("Run both."),
        thread=FREE,
        keeps=["first", "second"],
    ),
    CodexScenario(
        "code_mode",
        "Commands and a patch by way of JavaScript, which is no item itself.",
        always([in_code(exec_command("echo hello"))], [in_code(apply_patch(_ADD))], [Text("Ran it.")]),
        asking("Run."),
        thread=FREE,
        model=CODE_MODEL,
        keeps=["hello"],
    ),
    CodexScenario("patch_add", "A patch that adds a file.", once(apply_patch(_ADD)), asking("Add."), thread=_WORKSPACE),
    CodexScenario(
        "patch_update",
        "A patch that changes a file.",
        once(apply_patch(_UPDATE)),
        asking("Change."),
        files=FILES,
        thread=_WORKSPACE,
    ),
    CodexScenario(
        "patch_move",
        "A patch that moves a file and changes it.",
        once(apply_patch(_MOVE)),
        asking("Move."),
        files=FILES,
        thread=_WORKSPACE,
    ),
    CodexScenario(
        "patch_delete",
        "A patch that deletes a file.",
        once(apply_patch(_DELETE)),
        asking("Delete."),
        files=FILES,
        thread=_WORKSPACE,
    ),
    CodexScenario(
        "patch_failed",
        "A patch that does not fit, tried and reported.",
        once(apply_patch("*** Begin Patch\n*** Update File: notes.txt\n@@\n-none of it\n+some of it\n*** End Patch\n")),
        asking("Change."),
        files=FILES,
        thread=_WORKSPACE,
    ),
    CodexScenario(
        "web_search", "A search that the service makes.", always([WebSearch("ants"), Text("Ants.")]), asking("?")
    ),
    CodexScenario(
        "plan",
        "A plan that is updated twice; it is not stored.",
        always(
            [update_plan(("Look", "in_progress"), ("Do", "pending"), explanation="To begin with")],
            [update_plan(("Look", "completed"), ("Do", "in_progress"))],
            [Text("Planned.")],
        ),
        asking("Plan."),
        thread={"config": {"tools.update_plan": {"enabled": True}}},
    ),
    CodexScenario(
        "mcp_tool",
        "A tool of an MCP server, without approval.",
        once(mcp_tool("echo", "echo", {"text": "say it"})),
        asking("Echo."),
        thread={**FREE, "config": ECHO_SERVER},
        keeps=["echo: say it", "Say it again."],
    ),
    CodexScenario(
        "unknown_tool",
        "A call of a tool that there is not.",
        once(ToolUse("no_such_tool", {"a": 1})),
        asking("Call."),
    ),
)
