"""The tool table: what a call of each tool of Claude Code looks like before it has a result.

One entry for a tool: its kind, a title for humans, the files it names, and content that is known from the input alone.
Tools that are not in the table (MCP servers', future ones) get a readable name and nothing made up. Inputs come from
a model and may hold anything: every access is checked, and nothing here raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sayagain_claude.translate import terminals
from sayagain_claude.translate.blocks import (
    Block,
    Json,
    as_list,
    as_mapping,
    as_text,
    clean,
    fenced,
    is_absolute,
    text_content,
)
from sayagain_claude.translate.outcomes import findings

__all__ = ["AGENT_TOOLS", "absolute_path", "mcp_name", "opened", "started", "tool_kind", "tool_title"]

AGENT_TOOLS: Final = frozenset({"Agent", "Task"})
"""Tools whose call starts a subagent; ``Task`` is the older name."""

_TITLE_LENGTH: Final = 300
"""A title stays one readable line; whole commands and queries are in ``rawInput``."""


@dataclass(frozen=True, slots=True)
class _Tool:
    kind: str
    title: Callable[[Json, str], str]
    path: str | None = None
    """The input's field that names a file."""
    content: Callable[[Json], list[Block]] | None = None


def absolute_path(path: object, cwd: str) -> str | None:
    """An absolute form of a path in an input, or ``None`` when it is none."""
    text = as_text(path)
    if not text:
        return None
    path = os.path.normpath(os.path.join(cwd, text))  # noqa: PTH118 - pure, and keeps what pathlib would change
    return path if is_absolute(path) else None


def _short(path: object, cwd: str) -> str:
    text = as_text(path)
    prefix = cwd.rstrip("/") + "/"
    return text.removeprefix(prefix) if cwd and text != prefix else text


def _line(input_: Json) -> int | None:
    offset = input_.get("offset")
    return offset if type(offset) is int and 1 <= offset < 2**32 else None


def _read_title(input_: Json, cwd: str) -> str:
    path = _short(input_.get("file_path"), cwd)
    if not path:
        return "Read"
    first, limit, pages = _line(input_), input_.get("limit"), as_text(input_.get("pages"))
    if pages:
        return f"Read {path} (pages {pages})"
    if type(limit) is int and limit > 0:
        return f"Read {path} ({first or 1} - {(first or 1) + limit - 1})"
    return f"Read {path} (from line {first})" if first else f"Read {path}"


def _named(verb: str, *fields: str) -> Callable[[Json, str], str]:
    """A title of a verb and the first of the fields that is there."""

    def title(input_: Json, cwd: str) -> str:
        subject = next((text for text in (_short(input_.get(field), cwd) for field in fields) if text), "")
        return f"{verb} {subject}".strip()

    return title


def _fixed(text: str) -> Callable[[Json, str], str]:
    return lambda _input, _cwd: text


def _field(fallback: str, *fields: str) -> Callable[[Json, str], str]:
    """A title that is one of the fields itself."""
    return lambda input_, _cwd: next((text for text in (as_text(input_.get(f)) for f in fields) if text), fallback)


def _search_title(name: str) -> Callable[[Json, str], str]:
    def title(input_: Json, cwd: str) -> str:
        pattern, path = as_text(input_.get("pattern")), _short(input_.get("path"), cwd)
        if not pattern:
            return name
        return f"{name} `{pattern}` in {path}" if path else f"{name} `{pattern}`"

    return title


def _question_title(input_: Json, _cwd: str) -> str:
    questions = [as_mapping(question) for question in as_list(input_.get("questions"))]
    texts = [as_text(question.get("question")) for question in questions]
    return texts[0] if len(texts) == 1 and texts[0] else "Asking for your input"


def _question_content(input_: Json) -> list[Block]:
    lines: list[str] = []
    for question in map(as_mapping, as_list(input_.get("questions"))):
        text = as_text(question.get("question"))
        if not text:
            continue
        lines.append(f"**{text}**\n")
        for option in map(as_mapping, as_list(question.get("options"))):
            label, description = as_text(option.get("label")), as_text(option.get("description"))
            lines.append(f"- {label}: {description}" if description else f"- {label}")
        lines.append("")
    return [text_content("\n".join(lines).strip())] if lines else []


def _text_of(field: str) -> Callable[[Json], list[Block]]:
    def content(input_: Json) -> list[Block]:
        text = as_text(input_.get(field))
        return [text_content(text)] if text else []

    return content


def _command(input_: Json) -> list[Block]:
    command = as_text(input_.get("command"))
    return [fenced(command, "sh")] if command else []


def _findings_title(input_: Json, _cwd: str) -> str:
    count = len(as_list(input_.get("findings")))
    return f"Report {count} finding{'' if count == 1 else 's'}" if count else "Report findings"


def _places(input_: Json, cwd: str) -> list[Block]:
    places: list[Block] = []
    for finding in map(as_mapping, as_list(input_.get("findings"))):
        path, line = absolute_path(finding.get("file"), cwd), finding.get("line")
        if path:
            places.append({"path": path, "line": line} if type(line) is int and 1 <= line < 2**32 else {"path": path})
    return places


def _task_title(input_: Json, _cwd: str) -> str:
    task, status = as_text(input_.get("taskId")), as_text(input_.get("status"))
    return f"Update task {task}: {status}".rstrip(": ") if task else "Update task"


_SHELL: Final = _Tool("execute", _field("Terminal", "command"))

_TOOLS: Final[dict[str, _Tool]] = {
    "Bash": _SHELL,
    "PowerShell": _SHELL,
    "BashOutput": _Tool("execute", _named("Output of", "bash_id")),
    "TaskOutput": _Tool("execute", _named("Output of task", "task_id")),
    "KillShell": _Tool("execute", _named("Stop", "shell_id")),
    "TaskStop": _Tool("execute", _named("Stop task", "task_id", "shell_id")),
    "Monitor": _Tool("execute", _field("Monitor", "description", "command"), content=_command),
    "Read": _Tool("read", _read_title, "file_path"),
    "NotebookRead": _Tool("read", _named("Read", "notebook_path"), "notebook_path"),
    "LS": _Tool("read", _named("List", "path"), "path"),
    "Write": _Tool("edit", _named("Write", "file_path"), "file_path"),
    "Edit": _Tool("edit", _named("Edit", "file_path"), "file_path"),
    "MultiEdit": _Tool("edit", _named("Edit", "file_path"), "file_path"),
    "NotebookEdit": _Tool("edit", _named("Edit", "notebook_path"), "notebook_path"),
    "Glob": _Tool("search", _search_title("Find"), "path"),
    "Grep": _Tool("search", _search_title("Search"), "path"),
    "LSP": _Tool("search", _named("LSP", "operation"), "filePath"),
    "ToolSearch": _Tool("search", _named("Search tools:", "query")),
    "WebFetch": _Tool("fetch", _named("Fetch", "url"), content=_text_of("prompt")),
    "WebSearch": _Tool("fetch", _named("Search the web:", "query")),
    # No tool: what the sandbox asks for a command that wants to reach a host (code).
    "SandboxNetworkAccess": _Tool("fetch", _named("Connect to", "host")),
    "Agent": _Tool("think", _field("Subagent", "description")),
    "Task": _Tool("think", _field("Subagent", "description")),
    "SendMessage": _Tool("think", _field("Message to a subagent", "summary"), content=_text_of("message")),
    "ListAgents": _Tool("think", _fixed("List subagents")),
    "Workflow": _Tool("think", _named("Workflow", "name", "description")),
    "Skill": _Tool("other", _named("Load skill", "skill", "command")),
    "SlashCommand": _Tool("other", _named("Run", "command")),
    "TodoWrite": _Tool("think", _fixed("Update todos")),
    "TaskCreate": _Tool("think", _named("Create task:", "subject")),
    "TaskUpdate": _Tool("think", _task_title),
    "TaskList": _Tool("think", _fixed("List tasks")),
    "TaskGet": _Tool("think", _named("Get task", "taskId")),
    "AskUserQuestion": _Tool("other", _question_title, content=_question_content),
    "EnterPlanMode": _Tool("switch_mode", _fixed("Enter plan mode")),
    "ExitPlanMode": _Tool("switch_mode", _fixed("Approve plan"), content=_text_of("plan")),
    "EnterWorktree": _Tool("switch_mode", _named("Enter worktree", "name")),
    "ExitWorktree": _Tool("switch_mode", _fixed("Exit worktree")),
    "CronCreate": _Tool("other", _named("Schedule", "cron"), content=_text_of("prompt")),
    "CronDelete": _Tool("other", _named("Delete schedule", "id")),
    "CronList": _Tool("other", _fixed("List schedules")),
    "ScheduleWakeup": _Tool("other", _field("Schedule a wakeup", "reason")),
    "ReportFindings": _Tool("think", _findings_title, content=findings),
    "ListMcpResourcesTool": _Tool("search", _named("List MCP resources", "server")),
    "ReadMcpResourceTool": _Tool("read", _named("Read MCP resource", "uri")),
    "StructuredOutput": _Tool("think", _fixed("Structured output")),
}


def mcp_name(name: str) -> tuple[str, str] | None:
    """Server and tool of an MCP tool's name, ``mcp__server__tool``; ``None`` for other tools."""
    if not name.startswith("mcp__"):
        return None
    server, found, tool = name.removeprefix("mcp__").partition("__")
    return (server, tool) if found and server and tool else None


def tool_kind(name: str) -> str:
    """The kind of a tool; ``other`` when it is not in the table."""
    tool = _TOOLS.get(name)
    return tool.kind if tool else "other"


def tool_title(name: str, input_: Json, cwd: str) -> str:
    """One line for humans: what the call does, as far as its input says."""
    tool = _TOOLS.get(name)
    if tool is None:
        mcp = mcp_name(name)
        return f"{mcp[0]}: {mcp[1]}" if mcp else name or "Tool"
    title = tool.title(input_, cwd)
    line = title if "\n" not in title else f"{title.strip().splitlines()[0]} …" if title.strip() else name
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def opened(tool_call_id: str, name: str) -> Block:
    """The upsert for a call whose input still streams."""
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": tool_call_id,
        "name": name,
        "title": tool_title(name, {}, ""),
        "kind": tool_kind(name),
        "status": "pending",
    }


def started(block: Json, cwd: str) -> Block:
    """The upsert for a whole ``tool_use`` block, without a status: all that its input says of the call."""
    name, input_ = as_text(block.get("name")), as_mapping(block.get("input"))
    tool = _TOOLS.get(name)
    update: Block = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": as_text(block.get("id")),
        "name": name,
        "title": tool_title(name, input_, cwd),
        "kind": tool.kind if tool else "other",
    }
    if tool and tool.path:
        path = absolute_path(input_.get(tool.path), cwd)
        if path:
            location: dict[str, Any] = {"path": path}
            line = _line(input_) if name == "Read" else None
            if line:
                location["line"] = line
            update["locations"] = [location]
    elif name == "ReportFindings":
        update["locations"] = _places(input_, cwd)
    content = tool.content(input_) if tool and tool.content else []
    if name in terminals.SHELLS and update["toolCallId"]:
        content = [terminals.reference(update["toolCallId"])]
    if content:
        update["content"] = content
    raw = block.get("input")
    if raw is not None:
        update["rawInput"] = clean(raw)
    return update
