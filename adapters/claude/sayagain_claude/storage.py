"""Whether Claude Code can store a prompt: it runs a turn whose rows it could not write, and says nothing (measured).

A prompt that ran without being stored would run again when it is sent again (KEY-3), so it must not run.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from sayagain.errors import RuntimeFault

__all__ = ["NotStored", "check_room", "what_prevents"]

_PROBE: Final = bytes(64 << 10)
"""What is written to learn why a row was not: more than a prompt's row mostly has, less than any disk must have."""


class NotStored(RuntimeFault):
    """Claude Code could not write the transcript. ``reason`` on the wire is ``not_stored``."""

    reason = "not_stored"


def check_room(config: Path, transcript: Path | None) -> None:
    """Raise :class:`NotStored` when nothing can be written where the transcript is, or will be. Cheap: no writing.

    That a disk has room for the row is known only when the row is there; this spares a prompt that cannot land.
    """
    folder = _folder(config, transcript)
    try:
        denied = not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK)
        denied = denied or (transcript is not None and not os.access(transcript, os.W_OK))
        space = os.statvfs(folder)
    except OSError:
        denied = True
    else:
        # Some file systems count nothing, and some count wrong: only a suspicion.
        denied = denied or (space.f_blocks > 0 and (space.f_bfree if os.geteuid() == 0 else space.f_bavail) == 0)
    if denied and (error := _try(folder, transcript)) is not None:
        raise _fault(config, error)


def what_prevents(config: Path, transcript: Path | None) -> NotStored:
    """Why a row is not there, as far as an attempt to write there tells."""
    return _fault(config, _try(_folder(config, transcript), transcript))


def _fault(config: Path, error: OSError | None) -> NotStored:
    told = f"{errno.errorcode.get(error.errno or 0, 'error')}, {error.strerror}" if error else ""
    why = told or "is the disk full or the folder not writable?"
    return NotStored(f"Claude Code could not store the prompt in {config}: {why}")


def _folder(config: Path, transcript: Path | None) -> Path:
    """Where the transcript is, or where the CLI will make its folders: the first that exists."""
    folder = config / "projects" if transcript is None else transcript.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _try(folder: Path, transcript: Path | None) -> OSError | None:
    try:
        if transcript is not None and stat.S_ISREG(transcript.stat().st_mode):
            os.close(os.open(transcript, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK))
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            written = 0
            while written < len(_PROBE):
                written += file.write(_PROBE[written:])
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
