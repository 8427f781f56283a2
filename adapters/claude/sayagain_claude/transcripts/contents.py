"""Whether a transcript holds anything that can be gone on from.

The CLI resumes a session of which it finds a row of the conversation; for any other file under the session's id it
refuses both to resume it ("No conversation found") and to begin it ("already in use"), even for an empty one
(measured). Such files are left by a process that was killed, or by a disk that was full.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Final

from sayagain.errors import HistoryUnreadable
from sayagain.protocol.loose import as_text
from sayagain_claude.transcripts.reader import Damaged, Row, read_rows

__all__ = ["holds_conversation", "set_aside"]

_CONVERSATION: Final = frozenset({"user", "assistant", "attachment", "system"})


def holds_conversation(path: Path) -> bool:
    """Whether a row of the conversation is stored; ``False`` for an empty file, or one that only keeps books.

    A prompt that was cut at the end of the file while it was being written was never stored. Raises as
    :func:`~sayagain_claude.transcripts.reader.read_rows` does, and
    :class:`~sayagain.errors.HistoryUnreadable` when there is nothing but damage where messages may have been.
    """
    before: Row | Damaged | None = None
    last: Row | Damaged | None = None
    damaged = 0
    for item in read_rows(path):
        before, last = last, item
        if isinstance(item, Damaged):
            damaged += 1
        elif _is_conversation(item):
            return True
    cut = isinstance(last, Damaged) and isinstance(before, dict)
    if damaged > cut:
        raise HistoryUnreadable(f"{path.name} holds nothing that can be read")
    return False


def set_aside(path: Path) -> None:
    """Free the id of a session that was never begun: its file moves into the session's own folder, or goes if empty.

    Raises :class:`~sayagain.errors.HistoryUnreadable` when that is not possible.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == 0:
                path.unlink()
                return
            folder = path.with_suffix("")
            folder.mkdir(mode=0o700, exist_ok=True)
            path.rename(folder / f"unused-{uuid.uuid4().hex}.jsonl")
    except OSError as error:
        raise HistoryUnreadable(f"{path.name} cannot be moved: {os.strerror(error.errno or 0)}") from error


def _is_conversation(row: Row) -> bool:
    return as_text(row.get("type")) in _CONVERSATION and isinstance(row.get("uuid"), str)
