"""Whether what Codex lists of a thread follows the thread's file.

Codex lists from a database of its own, the projection, which knows up to which byte of each file it was made. A file
that was cut since then, as a power cut does, is shorter: Codex goes on writing at its end, and what it writes before
that byte is never listed, though each item is told as completed (measured). A prompt there would be answered, and be
unknown once the process has ended.

The database is Codex's own affair. One that is kept elsewhere, or looks different, says nothing here.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from sayagain_codex.rollouts import part

__all__ = ["DATABASE", "follows"]

DATABASE: Final = "thread_history_1.sqlite"

_OFFSET: Final = "SELECT next_rollout_byte_offset FROM thread_history_projection_state WHERE thread_id = ?"

_PATIENCE: Final = 1.0
"""Seconds that a locked database is waited for."""


def follows(home: Path, thread_id: str, rollout: Path) -> bool:
    """False when what is written to the file next is not listed: it is shorter than what the projection was made of."""
    try:
        database = f"{(home / DATABASE).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(database, timeout=_PATIENCE, uri=True)) as connection:
            row = connection.execute(_OFFSET, (part(rollout, thread_id),)).fetchone()
        return row is None or not isinstance(row[0], int) or row[0] <= rollout.stat().st_size
    except (sqlite3.Error, OSError):
        return True
