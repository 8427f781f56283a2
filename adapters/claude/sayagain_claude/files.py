"""Files that lie where others may write: opened only when they are files, since a FIFO in their place would wait."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular", "read_regular"]


def open_regular(path: Path) -> BinaryIO:
    """The file, to be read unbuffered; raises :class:`OSError` for whatever is no regular file."""
    # stat first: opening a device can have effects. O_NONBLOCK: what was a file may be a FIFO by now.
    if stat.S_ISREG(path.stat().st_mode):
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise OSError(errno.EINVAL, "no regular file")


def read_regular(path: Path) -> bytes:
    """All bytes of a small file; raises as :func:`open_regular` does."""
    with open_regular(path) as file:
        return file.read()
