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

__all__ = ["FileId", "check_room", "file_id"]

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


def check_room(rollout: Path | None, folder: Path, index: Path, content: Sequence[Params]) -> None:
    """Raise :class:`~sayagain.processes.room.NotStored` when a prompt cannot be written: to the thread's file, which
    will be in ``folder`` if there is none yet, and to the ``index`` that it is listed from.

    While Codex still keeps rows that it could not write, no later prompt gets past this.
    """
    needed = ROOM + _TIMES * len(dumps(list(content)))
    places = [(rollout.parent if rollout is not None else folder, rollout), (index.parent, index)]
    tried: set[int] = set()
    for place, file in places:
        try:
            nearest = existing(place)
            if (device := nearest.stat().st_dev) in tried:
                continue
            tried.add(device)
            suspect = looks_full(nearest, 2 * needed)
            written = file if file is not None and file.exists() else None
            error = try_to_write(nearest, written, size=needed if suspect else min(needed, _ENOUGH), sync=suspect)
        except OSError as found:
            error = found
        if error is not None:
            raise NotStored(f"Codex could not store the prompt in {place}: {why(error)}")
