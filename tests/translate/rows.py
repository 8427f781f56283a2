"""Small transcripts for tests: rows as the CLI stores them, with the fields that matter."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sayagain.runtime.history import HistoryEntry, HistoryUpdate, UserTurn
from sayagain_claude.history import history

__all__ = ["SESSION", "answer", "call", "child", "prompt", "read", "result", "shown", "store", "text", "thought"]

SESSION = "00000000-0000-4000-8000-000000000001"

Row = dict[str, Any]
_numbers = itertools.count(1)


def _row(kind: str, **fields: Any) -> Row:
    row = {"type": kind, "uuid": f"row-{next(_numbers)}", "sessionId": SESSION, "cwd": "/project", "isSidechain": False}
    return row | fields


def prompt(words: Any, message_id: str, **fields: Any) -> Row:
    message = {"role": "user", "content": words}
    marks = {"promptSource": "sdk", "turnAttributionKey": message_id}
    return _row("user", uuid=message_id, message=message, **(marks | fields))


def answer(message_id: str, *blocks: Mapping[str, Any], **fields: Any) -> Row:
    message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": list(blocks)}
    return _row("assistant", message=message, **fields)


def text(words: str) -> Row:
    return {"type": "text", "text": words}


def thought(words: str) -> Row:
    return {"type": "thinking", "thinking": words, "signature": "c2ln"}


def call(call_id: str, name: str = "Bash", **input_: Any) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": input_ or {"command": "true"}}


def result(call_id: str, content: Any = "done", structured: Any = None, **fields: Any) -> Row:
    block: Row = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if "is_error" in fields:
        block["is_error"] = fields.pop("is_error")
    extra = {} if structured is None else {"toolUseResult": structured}
    return _row("user", message={"role": "user", "content": [block]}, **extra, **fields)


def store(folder: Path, rows: Iterable[Row | bytes]) -> Path:
    """A transcript of these rows; bytes are lines as they are."""
    path = folder / f"{SESSION}.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def child(path: Path, agent_id: str, meta: Mapping[str, Any] | None, rows: Iterable[Row] | None) -> None:
    """A subagent's files; ``None`` leaves one out."""
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    if meta is not None:
        (folder / f"agent-{agent_id}.meta.json").write_text(json.dumps(meta), encoding="utf-8")
    if rows is not None:
        lines = [json.dumps(row | {"isSidechain": True, "agentId": agent_id}) + "\n" for row in rows]
        (folder / f"agent-{agent_id}.jsonl").write_text("".join(lines), encoding="utf-8")


def read(path: Path, *, live: bool = False) -> list[HistoryEntry]:
    return [entry for batch in history(path, SESSION, live=live) for entry in batch]


def shown(entries: Iterable[HistoryEntry]) -> list[str]:
    """What is replayed, one word for each but terminals: the id of a message or call, or the kind of the entry."""
    words: list[str] = []
    for entry in entries:
        update = entry.update if isinstance(entry, HistoryUpdate | UserTurn) else None
        if update is None:
            if not isinstance(entry, UserTurn | HistoryUpdate):
                words.append(type(entry).__name__)
            continue
        if update["sessionUpdate"] == "terminal_update":
            continue  # its call, which follows, stands for it
        named = next((update[key] for key in ("messageId", "toolCallId", "compactionId") if key in update), "")
        words.append(named or update["sessionUpdate"])
    return words
