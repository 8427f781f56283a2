"""Where Codex keeps the file of a thread, looked at before Codex opens it.

In place of a file Codex opens anything: a FIFO holds it, and all of its sessions, until it counts as hung; a folder is
now no such session, now an error (measured).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

__all__ = ["irregular"]


def irregular(home: Path, thread_id: str) -> Path | None:
    """What stands where the thread's file should be and is no file; ``None`` when all is well, or nothing is there.

    ``thread_id`` is one that Codex can have made.
    """
    for folder in _folders(home, thread_id):
        for path in folder.glob(f"rollout-*-{thread_id}*.jsonl"):
            if not path.is_file() and os.path.lexists(path):
                return path
    return None


def _folders(home: Path, thread_id: str) -> Iterator[Path]:
    """The day on which the id was made, in any time zone; archived threads are all in one folder."""
    yield home / "archived_sessions"
    if UUID(thread_id).version != 7:
        return
    made = timedelta(milliseconds=UUID(thread_id).int >> 80)
    for days in (-1, 0, 1):
        try:
            day = datetime(1970, 1, 1, tzinfo=UTC) + made + timedelta(days=days)
        except OverflowError:
            return  # a made-up id, of a year with five digits
        yield home / "sessions" / f"{day:%Y}" / f"{day:%m}" / f"{day:%d}"
