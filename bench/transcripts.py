"""Stored sessions of a given size, generated once and put into a contestant's config folder."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from bench.contestants import Contestant
from sayagain.testing.transcripts import ROWS_PER_TURN, transcript_path, write_transcript

__all__ = ["Stored", "known_key"]

_FILLER = 1100
"""Gives about 1.85 KB a row, the mean of real sessions (measured)."""
_NAMESPACE = uuid.UUID("5a1a6a10-0000-4000-8000-000000000000")


class Stored:
    """Sessions by their number of rows, below ``work``."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "transcripts"

    def session_id(self, rows: int) -> str:
        return str(uuid.uuid5(_NAMESPACE, f"{rows} rows"))

    def original(self, rows: int, cwd: Path) -> Path:
        """The generated file."""
        path = self._folder / f"{rows}.jsonl"
        if not path.exists():
            part = path.with_suffix(".part")
            write_transcript(
                part, turns=rows // ROWS_PER_TURN, session_id=self.session_id(rows), cwd=str(cwd), filler=_FILLER
            )
            part.rename(path)
        return path

    def place(self, contestant: Contestant, rows: int) -> str:
        """Give the contestant a fresh copy: the CLI adds rows of its own when it resumes. The session's id."""
        session_id = self.session_id(rows)
        copy = transcript_path(contestant.config, str(contestant.project), session_id)
        original = self.original(rows, contestant.project)
        if not copy.exists() or copy.stat().st_size != original.stat().st_size:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)
        return session_id


def known_key(turn: int) -> str:
    """The key of a prompt in every generated session: its id derives from this as from any client's key (KEY-11)."""
    return f"turn {turn}"
