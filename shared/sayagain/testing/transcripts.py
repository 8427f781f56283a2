"""Synthetic Claude Code transcripts in the true shape, and damage to them, for tests and benchmarks.

A turn is four rows, as measured on real sessions: the prompt, a text block, a tool use, its result; about 1.85 KB a
row. Everything follows from the arguments, so that two runs give the same bytes.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

__all__ = [
    "ROWS_PER_TURN",
    "Row",
    "dump",
    "folded_prompt_row",
    "glue",
    "prompt_id",
    "prompt_row",
    "transcript_path",
    "turn_rows",
    "write_rows",
    "write_transcript",
]

Row: TypeAlias = dict[str, Any]

ROWS_PER_TURN: Final = 4

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FILLER: Final = 'The quick brown fox jumps over the lazy dog; "quoted", C:\\path\\to, and ünïcödé.\n'
_MODEL: Final = "claude-synthetic-1"


def prompt_id(session_id: str, turn: int) -> str:
    """The id of the prompt of that turn, as :func:`write_transcript` stores it."""
    return str(uuid.uuid5(uuid.UUID(session_id), f"turn {turn}"))


def transcript_path(config: Path, cwd: str, session_id: str) -> Path:
    """Where Claude Code keeps the session: everything in ``cwd`` that is no ASCII letter or digit becomes a hyphen."""
    folder = "".join(char if char.isascii() and char.isalnum() else "-" for char in cwd)
    return config / "projects" / folder / f"{session_id}.jsonl"


def dump(row: Mapping[str, Any]) -> bytes:
    """The row as the CLI writes it: compact JSON in UTF-8 (lone surrogates escaped), without its newline."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(row, separators=(",", ":")).encode()


def _common(session_id: str, cwd: str, row_id: str, parent: str | None, index: int) -> Row:
    return {
        "uuid": row_id,
        "timestamp": (_START + timedelta(seconds=index)).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "userType": "external",
        "entrypoint": "sdk-py",
        "cwd": cwd,
        "sessionId": session_id,
        "version": "2.1.332",
        "gitBranch": "main",
    }


def prompt_row(
    text: str,
    *,
    session_id: str,
    message_id: str,
    parent: str | None = None,
    cwd: str = "/project",
    index: int = 0,
    **fields: Any,
) -> Row:
    """A prompt as a client submits it; ``fields`` are added or replace."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "promptId": str(uuid.uuid5(uuid.UUID(session_id), f"prompt {message_id}")),
        "type": "user",
        "message": {"role": "user", "content": text},
        "turnAttributionKey": message_id,
        "promptSource": "sdk",
        "turnOrigin": "sdk",
        **_common(session_id, cwd, message_id, parent, index),
        **fields,
    }


def folded_prompt_row(
    text: str, *, session_id: str, message_id: str, parent: str | None = None, cwd: str = "/project", index: int = 0
) -> Row:
    """A prompt that was taken into a running turn: an attachment whose own uuid is another one."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "attachment": {
            "type": "queued_command",
            "prompt": text,
            "source_uuid": message_id,
            "commandMode": "prompt",
        },
        "type": "attachment",
        **_common(session_id, cwd, str(uuid.uuid5(uuid.UUID(session_id), f"row {message_id}")), parent, index),
    }


def turn_rows(
    session_id: str,
    turn: int,
    *,
    parent: str | None = None,
    cwd: str = "/project",
    filler: int = 1200,
) -> list[Row]:
    """The four rows of one turn; ``filler`` is about how much text each of them carries."""
    index = turn * ROWS_PER_TURN
    random_ = random.Random(f"{session_id} {turn}")
    ids = [prompt_id(session_id, turn), *(str(uuid.UUID(int=random_.getrandbits(128), version=4)) for _ in range(3))]
    api_id = f"msg_{random_.getrandbits(96):024x}"
    tool_id = f"toolu_{random_.getrandbits(96):024x}"
    text = _FILLER * max(1, filler // len(_FILLER))

    def answer(block: Row, stop: str | None) -> Row:
        return {
            "id": api_id,
            "type": "message",
            "role": "assistant",
            "model": _MODEL,
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 20,
                "service_tier": "standard",
            },
        }

    result = f"{text[:500]}{turn}"
    return [
        prompt_row(
            f"Prompt {turn}\n{text}", session_id=session_id, message_id=ids[0], parent=parent, cwd=cwd, index=index
        ),
        {
            "parentUuid": ids[0],
            "isSidechain": False,
            "message": answer({"type": "text", "text": f"Answer {turn}\n{text}"}, None),
            "requestId": f"req_{turn}",
            "type": "assistant",
            **_common(session_id, cwd, ids[1], ids[0], index + 1),
        },
        {
            "parentUuid": ids[1],
            "isSidechain": False,
            "message": answer(
                {
                    "type": "tool_use",
                    "id": tool_id,
                    "name": "Bash",
                    "input": {"command": f"echo {turn}", "description": text},
                },
                "tool_use",
            ),
            "requestId": f"req_{turn}",
            "type": "assistant",
            **_common(session_id, cwd, ids[2], ids[1], index + 2),
        },
        {
            "parentUuid": ids[2],
            "isSidechain": False,
            "promptId": str(uuid.uuid5(uuid.UUID(session_id), f"prompt {ids[0]}")),
            "type": "user",
            "message": {
                "role": "user",
                "content": [{"tool_use_id": tool_id, "type": "tool_result", "content": result, "is_error": False}],
            },
            "toolUseResult": {"stdout": result, "stderr": "", "interrupted": False, "isImage": False},
            "sourceToolAssistantUUID": ids[2],
            **_common(session_id, cwd, ids[3], ids[2], index + 3),
        },
    ]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write ``rows`` as a transcript, its folders too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(dump(row) + b"\n" for row in rows))
    return path


def write_transcript(path: Path, *, turns: int, session_id: str, cwd: str = "/project", filler: int = 1200) -> Path:
    """Write a session of ``turns`` turns (four rows each) in constant memory; its prompts have :func:`prompt_id`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for chunk in _chunks(turns, session_id, cwd, filler):
            file.write(chunk)
    return path


def _chunks(turns: int, session_id: str, cwd: str, filler: int) -> Iterator[bytes]:
    parent: str | None = None
    for turn in range(turns):
        rows = turn_rows(session_id, turn, parent=parent, cwd=cwd, filler=filler)
        parent = rows[-1]["uuid"]
        yield b"".join(dump(row) + b"\n" for row in rows)


def glue(torn: bytes, kept: int, following: bytes) -> bytes:
    """One line as a kill leaves it: the first ``kept`` bytes of one row, then the next row."""
    return torn[:kept] + following
