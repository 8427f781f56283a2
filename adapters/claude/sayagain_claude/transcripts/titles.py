"""Naming a stored session: one row at the end of its transcript."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from sayagain.errors import HistoryUnreadable

__all__ = ["append_title"]


def append_title(path: Path, session_id: str, title: str) -> None:
    """Append a ``custom-title`` row, the form that the CLI writes and lists by (measured).

    Written with one call on a descriptor that appends, as the CLI appends its rows, so that a running CLI's rows and
    this one never mix. A torn last line is ended first. Raises :class:`~sayagain.errors.HistoryUnreadable` when the
    file can't be written.
    """
    row = {"type": "custom-title", "customTitle": title, "sessionId": session_id}
    line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    try:
        # O_NONBLOCK: a FIFO in its place must not wait.
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise HistoryUnreadable("The session cannot be named: it is no regular file")
            size = status.st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError as error:
        raise HistoryUnreadable(f"The session cannot be named: {error.strerror}") from error
