"""Whether Codex can store a prompt. It says that it has before it has written a byte, runs the turn, and complains of a
full disk near the turn's end only, while it keeps the rows in memory (measured): so nothing tells in time but a try.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sayagain.processes.room import ROOM, NotStored, existing, looks_full, try_to_write, why
from sayagain.protocol.codec import dumps

__all__ = ["check_room"]

Params = Mapping[str, Any]

_TIMES: Final = 4
"""How often a prompt is written: as what the model sees, as an item, and twice in the projection and its log."""

_ENOUGH: Final = 1 << 20
"""Bytes to try with where the file system counts room for the whole prompt: pictures have many."""


def check_room(home: Path, rollout: str | None, parts: Sequence[Params]) -> None:
    """Raise :class:`~sayagain.processes.room.NotStored` when the prompt cannot be written where its thread is stored.

    While Codex still keeps rows that it could not write, no later prompt gets past this.
    """
    file = Path(rollout) if rollout else None
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
