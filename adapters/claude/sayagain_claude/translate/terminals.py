"""Shell commands as terminals that we own: their announcement, their output and their end (TC-2).

A terminal's id is its call's id, so that live and replay name the same one. Its output is what the structured result
says, or the model's text where there is none (subagents' calls); while it runs, the CLI tells nothing on its output,
and what its file holds comes through :mod:`~sayagain_claude.tails`.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from sayagain_claude.translate import harness
from sayagain_claude.translate.blocks import Block, Json, as_mapping, as_text, is_absolute, plain_text

if TYPE_CHECKING:
    from sayagain_claude.translate.results import ToolResult

__all__ = [
    "KILLED",
    "SHELLS",
    "ended",
    "error_output",
    "finished",
    "is_shell",
    "opened",
    "output_chunk",
    "reference",
    "snapshot",
    "stopped",
]

SHELLS: Final = frozenset({"Bash", "PowerShell"})

_EXIT_CODE: Final = re.compile(r"\AExit code (-?\d+)(?:\n|\Z)")
_SUMMARY_CODE: Final = re.compile(r"\bexit code (-?\d+)\b")
KILLED: Final = {"signal": "SIGKILL"}
"""How the CLI ends a command (measured: a stopped foreground command reports exit code 137)."""


def is_shell(call: Json | None) -> bool:
    """Whether a ``tool_use`` block runs a shell command."""
    return call is not None and as_text(call.get("name")) in SHELLS


def reference(call_id: str) -> Block:
    """Tool call content that shows the terminal."""
    return {"type": "terminal", "terminalId": call_id}


def opened(call: Json, cwd: str) -> Block | None:
    """The announcement for a whole ``tool_use`` block of a shell; ``None`` for other tools."""
    call_id = as_text(call.get("id"))
    if not is_shell(call) or not call_id:
        return None
    update = _update(call_id)
    command = as_text(as_mapping(call.get("input")).get("command"))
    if command:
        update["command"] = command
    if is_absolute(cwd):
        update["cwd"] = cwd
    return update


def finished(call: Json | None, result: ToolResult) -> Block | None:
    """What a shell call's result says of its terminal: output and, unless it goes on in the background, its end."""
    if not is_shell(call):
        return None
    update = _update(result.tool_call_id)
    text = plain_text(result.content)
    structured = as_mapping(result.structured)
    if result.is_error or result.denial == "user-rejected":
        code = _EXIT_CODE.match(text)
        if code is None:
            return update | {"exitStatus": {}}
        return update | {"output": _output(error_output(text) or ""), "exitStatus": {"exitCode": int(code[1])}}
    if structured.get("isImage") is True:
        # Its output is a picture in text form; the call shows it as a picture.
        return update | {"exitStatus": {"exitCode": 0}}
    output = _printed(structured) if isinstance(structured.get("stdout"), str) else harness.tool_text(text)
    if structured.get("backgroundTaskId") or harness.background_task(text):
        return update | {"output": _output(output)} if output else None
    update["output"] = _output(output)
    if structured.get("interrupted") is True:
        update["exitStatus"] = KILLED
    else:
        # Some commands say by exit code 1 that nothing was found or something differs: no error for the CLI.
        update["exitStatus"] = {"exitCode": 1 if as_text(structured.get("returnCodeInterpretation")) else 0}
    return update


def ended(call_id: str, status: str, summary: str) -> Block:
    """The end of a command in the background, from its notification: ``completed``, ``failed``, ``stopped`` or
    ``killed``, and a sentence that has the exit code."""
    update = _update(call_id)
    code = _SUMMARY_CODE.search(summary)
    if code:
        update["exitStatus"] = {"exitCode": int(code[1])}
    elif status in ("stopped", "killed"):
        update["exitStatus"] = KILLED
    else:
        update["exitStatus"] = {"exitCode": 0} if status == "completed" else {}
    return update


def stopped(call_id: str) -> Block:
    """The end of a command of which nothing is known but that it runs no more."""
    return _update(call_id) | {"exitStatus": {}}


def output_chunk(terminal_id: str, data: bytes) -> Block:
    """More bytes of output."""
    encoded = base64.b64encode(data).decode()
    return {"sessionUpdate": "terminal_output_chunk", "terminalId": terminal_id, "data": encoded}


def snapshot(terminal_id: str, data: bytes) -> Block:
    """The output as a whole, as far as it is kept."""
    return _update(terminal_id) | {"output": {"data": base64.b64encode(data).decode()}}


def error_output(text: str) -> str | None:
    """What a failed command printed, from the model's text; ``None`` when the text is no exit code's."""
    text = harness.tool_text(text)
    code = _EXIT_CODE.match(text)
    return harness.killed_output(text[code.end() :]) if code else None


def _printed(structured: Json) -> str:
    parts = (as_text(structured.get("stdout")), harness.shell_errors(as_text(structured.get("stderr"))))
    return "\n".join(part.rstrip("\n") for part in parts if part.strip())


def _output(text: str) -> Block:
    if text and not text.endswith("\n"):
        text += "\n"  # which the CLI cuts off
    return {"data": base64.b64encode(text.encode()).decode()}


def _update(terminal_id: str) -> Block:
    return {"sessionUpdate": "terminal_update", "terminalId": terminal_id}
