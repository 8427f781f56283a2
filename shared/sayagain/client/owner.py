"""Who works on prompts of a shared outbox, and whether he still lives.

An owner is a lock on a file of its own beside the outbox. The agent that the owner starts inherits it: when a client is
killed, its agent may live a moment longer and store a prompt yet, so it counts as part of its owner. Nobody has to
clean up: the system releases the lock when the last of them ends.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path

__all__ = ["Owner", "owner_alive", "sweep"]


class Owner:
    """This process's lock on ``<outbox>.owner-<id>``."""

    def __init__(self, outbox: Path) -> None:
        self.id = uuid.uuid4().hex
        self._outbox = outbox
        self._path = _path(outbox, self.id)
        # Under another name until it is locked: who sees the file finds it locked, or its owner dead.
        unborn = self._path.with_name(self._path.name + ".new")
        self._descriptor = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _lock(self._descriptor)
        unborn.rename(self._path)

    def fileno(self) -> int:
        """To be inherited by processes that work for this owner."""
        return self._descriptor

    def close(self) -> None:
        """The owner is gone, unless a process that has inherited the lock still runs."""
        os.close(self._descriptor)
        owner_alive(self._outbox, self.id)


def owner_alive(outbox: Path, owner: str) -> bool:
    """Whether the owner, or an agent that it started, still runs. What is left of a dead one is removed."""
    path = _path(outbox, owner)
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        free = _lock(descriptor)
        if free:
            with suppress(OSError):
                path.unlink()
        return not free
    finally:
        os.close(descriptor)


def sweep(outbox: Path) -> None:
    """Remove the files of owners that are gone."""
    for path in outbox.parent.glob(f"{outbox.name}.owner-*"):
        if path.suffix != ".new":
            owner_alive(outbox, path.name.rpartition("-")[2])


def _path(outbox: Path, owner: str) -> Path:
    return outbox.with_name(f"{outbox.name}.owner-{owner}")


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            # Of the open file, not of the process, so that an heir holds it too.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
