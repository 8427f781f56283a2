"""Whether Claude Code can store a prompt: it runs a turn whose rows it could not write, and says nothing (measured).

A prompt that ran without being stored would run again when it is sent again (KEY-3), so it must not run.
"""

from __future__ import annotations

import os
from pathlib import Path

from sayagain.processes.room import NotStored, existing, looks_full, try_to_write, why

__all__ = ["NotStored", "check_room", "what_prevents"]


def check_room(config: Path, transcript: Path | None) -> None:
    """Raise :class:`NotStored` when nothing can be written where the transcript is, or will be. Cheap: no writing.

    That a disk has room for the row is known only when the row is there; this spares a prompt that cannot land.
    """
    folder = _folder(config, transcript)
    try:
        denied = not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK)
        denied = denied or (transcript is not None and not os.access(transcript, os.W_OK))
        denied = denied or looks_full(folder)
    except OSError:
        denied = True
    if denied and (error := try_to_write(folder, transcript)) is not None:
        raise _fault(config, error)


def what_prevents(config: Path, transcript: Path | None) -> NotStored:
    """Why a row is not there, as far as an attempt to write there tells."""
    return _fault(config, try_to_write(_folder(config, transcript), transcript))


def _fault(config: Path, error: OSError | None) -> NotStored:
    return NotStored(f"Claude Code could not store the prompt in {config}: {why(error)}")


def _folder(config: Path, transcript: Path | None) -> Path:
    """Where the transcript is, or where the CLI will make its folders."""
    return existing(config / "projects" if transcript is None else transcript.parent)
