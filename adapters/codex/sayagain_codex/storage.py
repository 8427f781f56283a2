"""Whether Codex can store a prompt where it is found again.

It says that it has before it has written a byte, runs the turn, and complains of a full disk near the turn's end only,
while it keeps the rows in memory; to a file that was removed or replaced it goes on writing (both measured). So nothing
tells in time but a try, and a look at the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from sayagain.processes.room import ROOM, NotStored, existing, looks_full, try_to_write, why
from sayagain.protocol.codec import dumps
from sayagain_codex.projection import follows

__all__ = ["FileId", "check", "file_id"]

Params = Mapping[str, Any]

FileId: TypeAlias = tuple[int, int]
"""The device and the inode of a file: another file of the same name has others."""

_TIMES: Final = 4
"""How often a prompt is written: as what the model sees, as an item, and twice in the projection and its log."""

_ENOUGH: Final = 1 << 20
"""Bytes to try with where the file system counts room for the whole prompt: pictures have many."""


def file_id(rollout: str | None) -> FileId | None:
    """Which file this is; ``None`` when there is none, or nobody can tell."""
    try:
        found = Path(rollout).stat() if rollout else None
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def check(home: Path, thread_id: str, rollout: str | None, parts: Sequence[Params]) -> None:
    """Raise :class:`~sayagain.processes.room.NotStored` when the prompt cannot be written where its thread is stored,
    or would not be listed.

    While Codex still keeps rows that it could not write, no later prompt gets past this.
    """
    file = Path(rollout) if rollout else None
    if file is not None and not follows(home, thread_id, file):
        raise NotStored(f"Codex would not find the prompt again: its index goes further than {file}, which was cut")
    needed = ROOM + _TIMES * len(dumps(list(parts)))
    try:
        folder = existing(file.parent if file is not None else home / "sessions")
        suspect = looks_full(folder, 2 * needed)
        written = file if file is not None and file.exists() else None
        error = try_to_write(folder, written, size=needed if suspect else min(needed, _ENOUGH), sync=suspect)
    except OSError as found:
        error = found
    if error is not None:
        raise NotStored(f"Codex could not store the prompt in {home}: {why(error)}")
