"""Whether a runtime could store a prompt where it stores them, learned by writing there.

Runtimes run a turn whose rows they could not write, and say nothing, or say it too late (measured, of both). A prompt
that ran without being stored would run again when it is sent again (KEY-3), so it must not run.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from sayagain.errors import RuntimeFault

__all__ = ["ROOM", "NotStored", "existing", "looks_full", "try_to_write", "why"]

ROOM: Final = 64 << 10
"""Bytes that are written for a try: more than a prompt's row mostly has, less than any disk must have."""

_PIECE: Final = bytes(ROOM)


class NotStored(RuntimeFault):
    """The runtime could not store the prompt. ``reason`` on the wire is ``not_stored``."""

    reason = "not_stored"


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists: there the runtime will make it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def looks_full(folder: Path, needed: int = 1) -> bool:
    """Whether the file system counts less than ``needed`` free bytes. Some count nothing, and some count wrong: only a
    suspicion.

    Raises :class:`OSError` when it cannot be asked.
    """
    space = os.statvfs(folder)
    free = space.f_bfree if os.geteuid() == 0 else space.f_bavail
    return space.f_blocks > 0 and free * space.f_frsize < needed


def try_to_write(folder: Path, file: Path | None, *, size: int = ROOM, sync: bool = True) -> OSError | None:
    """What prevents ``size`` bytes from being written in ``folder``, and ``file`` from being appended to.

    Nothing is left of it. ``sync`` also finds what the system learns only when it gives the bytes to the disk.
    """
    try:
        if file is not None and stat.S_ISREG(file.stat().st_mode):
            os.close(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK))
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            left = size
            while left > 0:
                left -= probe.write(_PIECE[:left])
            if sync:
                os.fsync(probe.fileno())
    except OSError as error:
        return error
    return None


def why(error: OSError | None) -> str:
    """What is said of a failed try, the name of its number first."""
    if error is None:
        return "is the disk full or the folder not writable?"
    return f"{errno.errorcode.get(error.errno or 0, 'error')}, {error.strerror}"
