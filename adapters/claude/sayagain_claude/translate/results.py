"""What a tool call looks like when its result is there: status, content, raw output.

Frame and row hold the same two forms of a result: the block that the model sees, full of words for the model, and
(of calls of the main conversation, not of subagents': measured) a structured one, which is exact. The structured one
is used wherever it exists; the other is cleaned by :mod:`~sayagain_claude.translate.harness`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from sayagain_claude.translate import diffs, harness, terminals
from sayagain_claude.translate.blocks import (
    Block,
    Json,
    as_list,
    as_mapping,
    as_text,
    clean,
    content,
    display_block,
    fenced,
    plain_text,
    text_content,
)
from sayagain_claude.translate.outcomes import OUTCOMES, found_lines
from sayagain_claude.translate.tools import AGENT_TOOLS, absolute_path, mcp_name, started

__all__ = ["ToolResult", "finished", "tool_results", "with_child"]

_LOCATIONS: Final = 50
"""Locations of one call: what a client can show as a list."""

_SAVED_MEDIA: Final = re.compile(r"\A\[(?:Image|Audio|Resource): source: [^\n]*\]\Z")
"""Where the CLI keeps a copy of media, told to the model beside the media themselves."""
_RESOURCE: Final = re.compile(r"\A\[Resource from [^\n]*? at (\w[\w+.-]*:[^\s\]]*)\] (.*)\Z", re.DOTALL)
_NUMBERED: Final = re.compile(r"^ *\d+(?:\t|→)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """One ``tool_result`` block with what its frame or row says beside it.

    ``structured`` is ``tool_use_result`` of a frame or ``toolUseResult`` of a row; ``denial`` says why a call never
    ran (``non_execution_kind``, ``toolDenialKind``). ``child_id`` is the child session of a subagent's call.
    """

    tool_call_id: str
    content: object
    structured: object
    is_error: bool
    denial: str | None
    child_id: str | None = None


def tool_results(row: Json) -> list[ToolResult]:
    """The results in a user frame or row; both spell their fields differently."""
    blocks = [
        block
        for block in map(as_mapping, as_list(as_mapping(row.get("message")).get("content")))
        if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
    ]
    structured = row.get("tool_use_result", row.get("toolUseResult"))
    if len(blocks) > 1:
        structured = None  # it belongs to one of them, and nothing says to which
    denials = {
        as_text(meta.get("id")): as_text(meta.get("non_execution_kind"))
        for meta in map(as_mapping, as_list(row.get("tool_result_meta")))
    }
    return [
        ToolResult(
            tool_call_id=as_text(block["tool_use_id"]),
            content=block.get("content"),
            structured=structured,
            is_error=block.get("is_error") is True,
            denial=denials.get(as_text(block["tool_use_id"])) or as_text(row.get("toolDenialKind")) or None,
        )
        for block in blocks
    ]


def with_child(result: ToolResult, child_id: str | None) -> ToolResult:
    """``result`` as that of a call that started the child."""
    return replace(result, child_id=child_id) if child_id else result


def finished(call: Json | None, result: ToolResult, cwd: str) -> Block:
    """The patch that ends a call: its status, and the content that replaces what was shown before.

    ``call`` is the ``tool_use`` block; ``None`` when it was never seen.
    """
    name = as_text(call.get("name")) if call else ""
    input_ = as_mapping(call.get("input") if call else None)
    text = plain_text(result.content)
    # The CLI itself takes these words for its own only in an error (code), so output that quotes them stays.
    verdict = harness.verdict(text) if result.is_error else None
    update: Block = {"sessionUpdate": "tool_call_update", "toolCallId": result.tool_call_id}
    if verdict or result.denial == "user-rejected":
        update["status"] = verdict or "cancelled"
        shown = _kept(call, cwd)
    elif result.is_error:
        update["status"] = "failed"
        shown = _failure(name, harness.tool_text(text), result)
    else:
        structured = as_mapping(result.structured)
        update["status"] = "cancelled" if structured.get("interrupted") is True else "completed"
        outcome = OUTCOMES[name](input_, structured) if name in OUTCOMES else None
        show = _SHOWN.get(name, _mcp if mcp_name(name) else _any)
        shown = outcome if outcome is not None else show(_Call(name, input_, cwd, call), result)
        found = _found_places(name, input_, structured, cwd)
        if found:
            update["locations"] = found
        if outcome is None and (name not in _SHOWN or name in _RAW):
            raw = _raw_output(name, result)
            if raw is not None:
                update["rawOutput"] = raw
    if result.child_id:
        shown = [{"type": "session", "sessionId": result.child_id}, *shown]
    update["content"] = shown
    return update


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    input: Json
    cwd: str
    block: Json | None


def _kept(call: Json | None, cwd: str) -> list[Block]:
    """What was shown before the result, for calls that never gave one."""
    return list(started(call, cwd).get("content", ())) if call else []


def _failure(name: str, text: str, result: ToolResult) -> list[Block]:
    if not text.strip():
        return [block for block in map(_display, as_list(result.content)) if block]
    if name in terminals.SHELLS:
        terminal = [terminals.reference(result.tool_call_id)]
        # Any other error is not what the command printed: it may not have run at all.
        return terminal if terminals.error_output(text) is not None else [*terminal, fenced(text)]
    return [fenced(text)]


def _display(block: object) -> Block | None:
    shown = display_block(block)
    if shown is None:
        return None
    if shown["type"] == "text":
        text = harness.tool_text(shown["text"])
        return text_content(text) if text.strip() else None
    return content(shown)


def _any(_call: _Call, result: ToolResult) -> list[Block]:
    """Text and media as they are, without the harness's words."""
    if isinstance(result.content, str):
        text = harness.tool_text(plain_text(result.content))
        return [text_content(text)] if text.strip() else []
    return [block for block in map(_display, as_list(result.content)) if block]


def _mcp(_call: _Call, result: ToolResult) -> list[Block]:
    """An MCP server's content, from the forms that the CLI gives it for the model (measured)."""
    shown: list[Block] = []
    for block in _any(_call, result):
        text = as_text(as_mapping(block.get("content")).get("text"))
        if _SAVED_MEDIA.match(text):
            continue
        resource = _RESOURCE.match(text)
        embedded: Block = (
            {"type": "resource", "resource": {"uri": resource[1], "text": resource[2]}} if resource else {}
        )
        shown.append(content(embedded) if embedded else block)
    return shown


def _shell(_call: _Call, result: ToolResult) -> list[Block]:
    shown = [terminals.reference(result.tool_call_id)]
    if as_mapping(result.structured).get("isImage") is True:
        shown += [block for block in map(_display, as_list(result.content)) if block]
    return shown


def _read(_call: _Call, result: ToolResult) -> list[Block]:
    structured = as_mapping(result.structured)
    file = as_mapping(structured.get("file"))
    if structured.get("type") == "text" and isinstance(file.get("content"), str):
        text = as_text(file["content"])
        return [fenced(text)] if text else []
    if structured.get("type") == "notebook":
        cells = [as_mapping(cell) for cell in as_list(file.get("cells"))]
        return [fenced(source, _language(cell)) for cell in cells if (source := as_text(cell.get("source")))]
    if isinstance(result.content, str):
        text = _NUMBERED.sub("", harness.tool_text(plain_text(result.content)))
        return [fenced(text)] if text.strip() else []
    return _any(_call, result)


def _language(cell: Json) -> str:
    language = as_text(cell.get("language")) if cell.get("cellType") == "code" else as_text(cell.get("cellType"))
    return language if language.isalnum() else ""


def _edit(call: _Call, result: ToolResult) -> list[Block]:
    diff = diffs.edited_file(result.structured)
    if diff is None and not as_mapping(result.structured):
        # A subagent's call: only the model's text says what became of it.
        path = absolute_path(call.input.get("file_path") or call.input.get("notebook_path"), call.cwd)
        after = call.input.get("content")
        if path and isinstance(after, str) and plain_text(result.content).startswith("File created"):
            diff = diffs.text_diff(path, None, as_text(after))
        elif path:
            diff = diffs.touched_file(path)
    return [diff] if diff else []


def _search(_call: _Call, result: ToolResult) -> list[Block]:
    structured = as_mapping(result.structured)
    if isinstance(structured.get("content"), str):
        text = as_text(structured["content"])
    elif as_list(structured.get("filenames")):
        text = "\n".join(as_text(name) for name in as_list(structured["filenames"]))
    else:
        text = harness.tool_text(plain_text(result.content))
    return [fenced(text)] if text.strip() else []


def _found_places(name: str, input_: Json, structured: Json, cwd: str) -> list[Block]:
    """What a search found, as locations to open; the first ones of many."""
    if name not in ("Glob", "Grep"):
        return []
    locations: list[Block] = []
    for found, line in found_lines(input_, structured)[:_LOCATIONS]:
        path = absolute_path(found, cwd)
        if path:
            locations.append({"path": path, "line": line} if line else {"path": path})
    return locations


def _agent(_call: _Call, result: ToolResult) -> list[Block]:
    text = plain_text(result.content)
    if harness.is_launch_note(text):
        return []
    report = harness.subagent_report(text).strip()
    return [text_content(report)] if report else []


def _fetch(_call: _Call, result: ToolResult) -> list[Block]:
    structured = as_mapping(result.structured)
    if isinstance(structured.get("result"), str):
        return [text_content(as_text(structured["result"]))]
    return _any(_call, result)


def _question(call: _Call, result: ToolResult) -> list[Block]:
    answers = as_mapping(as_mapping(result.structured).get("answers"))
    if not answers:
        return _kept(call.block, call.cwd)
    return [text_content("\n".join(f"**{clean(str(q))}**\n{_answer(a)}" for q, a in answers.items()))]


def _answer(value: object) -> str:
    return as_text(value) or ", ".join(map(as_text, as_list(value)))


def _keep(call: _Call, _result: ToolResult) -> list[Block]:
    """The result only tells the model to go on; what the input said stays."""
    return _kept(call.block, call.cwd)


def _nothing(_call: _Call, _result: ToolResult) -> list[Block]:
    return []


_SHOWN: Final[dict[str, Callable[[_Call, ToolResult], list[Block]]]] = {
    "Bash": _shell,
    "PowerShell": _shell,
    "Read": _read,
    "Write": _edit,
    "Edit": _edit,
    "MultiEdit": _edit,
    "NotebookEdit": _edit,
    "Glob": _search,
    "Grep": _search,
    "WebFetch": _fetch,
    "AskUserQuestion": _question,
    "ExitPlanMode": _keep,
    "EnterPlanMode": _nothing,
    "TodoWrite": _nothing,
    "Skill": _nothing,
    "Monitor": _keep,
    **dict.fromkeys(AGENT_TOOLS, _agent),
}

_RAW: Final = frozenset({"AskUserQuestion"})
"""Tools of the table whose structured result says more than their content."""


def _raw_output(name: str, result: ToolResult) -> Any:
    """The structured result of tools that have no presentation of their own; MCP results as their server gave them."""
    raw: Any = result.structured
    return clean(raw) if mcp_name(name) is None and isinstance(raw, dict | list) else None
