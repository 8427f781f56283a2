"""Where Codex keeps the files of a thread, looked at before Codex opens one.

In place of a file Codex opens anything: a FIFO holds it, and all of its sessions, until it counts as hung; a folder is
now no such session, now an error (measured).

The first file of a thread is ``rollout-<time>-<thread id>.jsonl``. A revert leaves it, and goes on in another one with
``_<revision>`` behind the id, a UUIDv7, which builds on the ones before (measured).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

__all__ = ["irregular", "newest", "part"]


def irregular(home: Path, thread_id: str) -> Path | None:
    """What stands where the thread's file should be and is no file; ``None`` when all is well, or nothing is there.

    ``thread_id`` is one that Codex can have made.
    """
    return next((path for path in _paths(home, thread_id) if not path.is_file() and os.path.lexists(path)), None)


def newest(home: Path, thread_id: str) -> Path | None:
    """The file that Codex goes on with."""
    return max(_paths(home, thread_id), key=lambda path: part(path, thread_id) or "", default=None)


def part(rollout: Path, thread_id: str) -> str | None:
    """What this file of a thread has alone: its revision, or the thread's id if it is the first one; ``None`` for a
    file that is called otherwise, or is packed, as Codex does with old ones."""
    name, _, revision = rollout.stem.partition("_")
    called = name.startswith("rollout-") and name.endswith(f"-{thread_id}") and rollout.suffix == ".jsonl"
    return (revision or thread_id) if called else None


def _paths(home: Path, thread_id: str) -> Iterator[Path]:
    for folder in _folders(home, thread_id):
        yield from folder.glob(f"rollout-*-{thread_id}*.jsonl")


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
