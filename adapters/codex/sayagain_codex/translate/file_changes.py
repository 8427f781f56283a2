"""Patches that Codex applies: exact diffs with absolute paths (TC-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.protocol import git_patch
from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text
from sayagain_codex.translate.blocks import absolute_path, call_status, first_line

__all__ = ["change_call", "change_updates"]

_MOVED: Final = "\nMoved to: "
"""Codex ends the diff of a file that moves with this line (measured); it is no part of a hunk."""

_VERBS: Final = {"edit": "Edit", "delete": "Delete", "move": "Move"}


def change_call(changes: object, cwd: str) -> Block:
    """What a patch changes, for its tool call and for an approval: no status."""
    files = [file for change in as_list(changes) if (file := _file(as_mapping(change), cwd)) is not None]
    operations = {file.change["operation"] for file in files}
    kind = next(iter(operations)) if len(operations) == 1 and operations <= {"delete", "move"} else "edit"
    paths = list(dict.fromkeys(file.change["path"] for file in files))
    call: Block = {"kind": kind, "title": _title(kind, files, paths, cwd)}
    if files:
        call["locations"] = [{"path": path} for path in paths]
        call["content"] = [git_patch.diff(files)]
    return call


def change_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """The tool call of a ``fileChange`` item."""
    update: Block = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": as_text(item.get("id")),
        "name": "apply_patch",
        **change_call(item.get("changes"), cwd),
        "status": call_status(item, live=live),
    }
    return [update]


def _file(change: Json, cwd: str) -> git_patch.FilePatch | None:
    path = absolute_path(change.get("path"), cwd)
    if path is None:
        return None
    kind: Mapping[str, Any] = as_mapping(change.get("kind"))
    text = as_text(change.get("diff"))
    match kind.get("type") or change.get("kind"):
        case "add":
            return git_patch.added(path, text)
        case "delete":
            return git_patch.deleted(path, text)
        case _:
            target = absolute_path(kind.get("move_path"), cwd)
            hunks = git_patch.hunk_lines(text.rpartition(_MOVED)[0] if target and _MOVED in text else text)
            if target is None or target == path:
                return git_patch.modified(path, hunks)
            return git_patch.moved(path, target, hunks)


def _title(kind: str, files: Sequence[git_patch.FilePatch], paths: Sequence[str], cwd: str) -> str:
    if not files:
        return "Edit files"
    prefix = cwd.rstrip("/") + "/"
    names = [path.removeprefix(prefix) for path in paths]
    if len(names) > 1:
        return f"{_VERBS[kind]} {len(names)} files"
    change = files[0].change
    if kind == "move":
        return first_line(f"Move {change['oldPath'].removeprefix(prefix)} to {names[0]}")
    return first_line(f"{'Write' if change['operation'] == 'add' else _VERBS[kind]} {names[0]}")
