"""Shell commands: a tool call that shows a terminal, both under the item's id."""

from __future__ import annotations

import re
from typing import Any, Final

from sayagain.protocol.loose import Block, Json, as_count, as_list, as_mapping, as_text, is_absolute
from sayagain_codex.translate.blocks import absolute_path, base64_text, call_status, first_line

__all__ = ["command_call", "execution_updates", "unwrapped"]

_SHELL: Final = re.compile(
    r"""(?:[^\s'"\\]*[/\\])?(?:ba|z|da|k)?sh(?:\.exe)?\ -l?c\ ((?:'[^']*'|"(?:[^"\\]|\\.)*+"|[^\s'"\\]|\\.)++)""",
    re.DOTALL | re.VERBOSE,
)
_PIECE: Final = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\]+)""", re.DOTALL)
_ESCAPED: Final = re.compile(r'\\([$`"\\\n])')
_POWERSHELL: Final = re.compile(
    r"(?:\S*[/\\])?(?:powershell|pwsh)(?:\.exe)? .*?-c(?:ommand)? (.+)", re.IGNORECASE | re.DOTALL
)

_NAMES: Final = {"unifiedExecInteraction": "write_stdin", "userShell": "shell"}


def unwrapped(command: str) -> str:
    """The command that the model wrote, without the shell that Codex runs it in (``/bin/bash -lc '…'``)."""
    shell = _SHELL.fullmatch(command)
    if shell:
        return "".join(map(_unquoted, _PIECE.finditer(shell[1])))
    powershell = _POWERSHELL.fullmatch(command)
    if powershell:
        pieces = list(_PIECE.finditer(powershell[1]))
        return _unquoted(pieces[0]) if len(pieces) == 1 else powershell[1]
    return command


def _unquoted(piece: re.Match[str]) -> str:
    single, double, escaped, plain = piece.groups()
    if double is not None:
        return _ESCAPED.sub(r"\1", double)
    return single or escaped or plain or ""


def command_call(item: Json, cwd: str) -> Block:
    """What a command is, for its tool call and for an approval: no status and no content."""
    command = unwrapped(as_text(item.get("command")))
    actions = [as_mapping(action) for action in as_list(item.get("commandActions"))]
    kind = _kind(actions)
    base = as_text(item.get("cwd"))
    if not is_absolute(base):
        base = cwd
    call: Block = {"kind": kind, "title": _title(command, actions if kind != "execute" else [])}
    locations = [{"path": path} for path in dict.fromkeys(_paths(actions, base))] if kind != "execute" else []
    if locations:
        call["locations"] = locations
    if command:
        call["rawInput"] = {"command": command, "cwd": base}
    return call


def execution_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """The terminal, then the tool call that shows it. All output is in ``aggregatedOutput`` (deltas lack some)."""
    item_id, status = as_text(item.get("id")), call_status(item, live=live)
    call = command_call(item, cwd)
    terminal: Block = {"sessionUpdate": "terminal_update", "terminalId": item_id}
    raw = as_mapping(call.get("rawInput"))
    if raw:
        terminal["command"] = raw["command"]
        if is_absolute(raw["cwd"]):
            terminal["cwd"] = raw["cwd"]
    output = as_text(item.get("aggregatedOutput"))
    if output:
        terminal["output"] = {"data": base64_text(output)}
    code = as_count(item.get("exitCode"))
    if status != "in_progress":
        terminal["exitStatus"] = {} if code is None else {"exitCode": code}
    update: Block = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": item_id,
        "name": _NAMES.get(as_text(item.get("source")), "exec_command"),
        **call,
        "status": status,
        "content": [{"type": "terminal", "terminalId": item_id}],
    }
    result: dict[str, Any] = {}
    for name in ("exitCode", "durationMs"):
        if (number := as_count(item.get(name))) is not None:
            result[name] = number
    if result and status != "in_progress":
        update["rawOutput"] = result
    return [terminal, update]


def _kind(actions: list[Json]) -> str:
    """What the command does, when Codex knows it of every part."""
    kinds = {as_text(action.get("type")) for action in actions}
    if not kinds or not kinds <= {"read", "search", "listFiles"}:
        return "execute"
    return "search" if "search" in kinds else "read"


def _title(command: str, actions: list[Json]) -> str:
    if len(actions) == 1:
        action = actions[0]
        path = as_text(action.get("path"))
        match action.get("type"):
            case "read":
                return first_line(f"Read {path or as_text(action.get('name'))}")
            case "search" if as_text(action.get("query")):
                where = f" in {path}" if path else ""
                return first_line(f"Search `{as_text(action['query'])}`{where}")
            case "listFiles":
                return first_line(f"List {path}" if path else "List files")
            case _:
                pass
    return first_line(command) or "Command"


def _paths(actions: list[Json], cwd: str) -> list[str]:
    return [path for action in actions if (path := absolute_path(action.get("path"), cwd))]
