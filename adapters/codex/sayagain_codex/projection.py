"""How far what Codex lists of a thread goes, beside the thread's files.

Codex lists from a database of its own, the projection, which knows up to which byte of each file it was made. It is
brought up to date when a thread is loaded and as the thread goes on, each time from where it is; two things go wrong
(measured):

* It stays **behind** when it is locked or has no room: ``thread/resume`` succeeds all the same, and what is listed ends
  early. Of a file that another one builds on nothing is listed any more once the database was removed: it is made
  again of the newest file alone.
* It is **ahead** of a file that was cut, as a power cut does. Codex goes on writing at the file's end, and what it
  writes before the byte that the projection is at is never listed, though each item is told as completed. A prompt
  there would be answered, and be unknown once the process has ended.

The database is Codex's own affair: one that is not there, or looks different, says nothing here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from sayagain.errors import HistoryUnreadable
from sayagain_codex.rollouts import Part

__all__ = ["DATABASE", "Projection"]

DATABASE: Final = "thread_history_1.sqlite"

_OFFSET: Final = "SELECT next_rollout_byte_offset FROM thread_history_projection_state WHERE thread_id = ?"

_PATIENCE: Final = 1.0
"""Seconds that a locked database is waited for."""


class Projection:
    """The database in the folder that Codex keeps its databases in."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DATABASE

    def lacks(self, parts: Sequence[Part]) -> Part | None:
        """The first of a thread's parts that is not whole in it; ``None`` when all are, or nobody can tell.

        Raises :class:`~sayagain.errors.HistoryUnreadable` when it is locked.
        """
        for part in parts:
            reached = self._reached(part.name)
            if reached is not None and reached < part.end:
                return part
        return None

    def goes_beyond(self, part: Part) -> bool:
        """Whether it goes on behind the end of a part; false when nobody can tell. Raises like :meth:`lacks`."""
        reached = self._reached(part.name)
        return reached is not None and reached > part.end

    def _reached(self, name: str) -> int | None:
        """Up to which byte of a file it was made: 0 for one that it does not know."""
        try:
            with closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", _PATIENCE, uri=True)
            ) as connection:
                row = connection.execute(_OFFSET, (name,)).fetchone()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise HistoryUnreadable(f"Codex's list of the session is locked: {self.path}") from error
            return None
        if row is None:
            return 0
        return row[0] if isinstance(row[0], int) else None
