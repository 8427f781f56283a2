"""Bytes of a transcript: the one way in which every reader opens, cuts and checks the file.

The file is read in blocks of whole lines up to the size that it had when it was opened, so that a writer who appends
meanwhile is no trouble; one who shortens or replaces the file is an error and never a shorter history.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sayagain.errors import HistoryUnreadable, SessionNotFound

__all__ = ["BLOCK_SIZE", "LINE_LIMIT", "Block", "blocks"]

BLOCK_SIZE: Final = 1 << 16
"""Bytes a read. Larger ones are slower: the allocator maps and faults in every block anew (measured)."""

LINE_LIMIT: Final = 64 << 20
"""Longest line that is kept, in bytes: twice the longest JSON-RPC line, so that every prompt which can be sent fits.

A longer one is damage of a known size: it is skipped in constant memory.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of the file, in order; ``offset`` is where they begin.

    ``skipped`` is the size of a line over :data:`LINE_LIMIT`, else 0; ``data`` is empty then. ``torn`` says that
    ``data`` is what stands behind the last newline: a line that was cut, or is being written right now. ``growing``
    tells these two apart: more bytes have come behind it meanwhile.
    """

    offset: int
    data: bytes
    skipped: int = 0
    torn: bool = False
    growing: bool = False


def blocks(path: Path, end: int | None = None) -> Iterator[Block]:
    """The file's blocks in order, up to ``end`` (default: its size when it is opened).

    Raises :class:`~sayagain.errors.SessionNotFound` when there is no file, and
    :class:`~sayagain.errors.HistoryUnreadable` for anything else that keeps the bytes from being read as they were:
    no permission, an I/O error, something that is no regular file, a file that got shorter, was removed or replaced.
    """
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        raise SessionNotFound(path.stem) from None
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        opened = os.fstat(fd)
        if not stat.S_ISREG(opened.st_mode):
            raise HistoryUnreadable(f"{path.name} is no regular file")
        size = opened.st_size if end is None else end
        if opened.st_size < size:
            raise HistoryUnreadable(f"{path.name} is shorter than it was")
        yield from _cut(fd, path, size)
        _check_unchanged(fd, path, size)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    # stat first: opening a device can have effects. O_NONBLOCK: opening a FIFO that took its place must not wait.
    if not stat.S_ISREG(path.stat().st_mode):
        raise HistoryUnreadable(f"{path.name} is no regular file")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))


def _cut(fd: int, path: Path, size: int) -> Iterator[Block]:
    offset = 0  # of the first byte that is carried
    carry: list[bytes] = []
    carried = 0
    skipping = False
    position = 0
    while position < size:
        chunk = os.read(fd, min(BLOCK_SIZE, size - position))
        if not chunk:
            raise HistoryUnreadable(f"{path.name} got shorter while it was read")
        position += len(chunk)
        if skipping:
            newline = chunk.find(b"\n")
            if newline < 0:
                carried += len(chunk)
                continue
            yield Block(offset, b"", skipped=carried + newline)
            offset += carried + newline + 1
            chunk, carried, skipping = chunk[newline + 1 :], 0, False
        cut = chunk.rfind(b"\n") + 1
        if cut:
            carry.append(chunk[:cut])
            data = b"".join(carry)
            yield Block(offset, data)
            offset += len(data)
            chunk, carry, carried = chunk[cut:], [], 0
        if chunk:
            carry.append(chunk)
            carried += len(chunk)
        if carried > LINE_LIMIT:
            # What fills the limit may be a run of NUL bytes with a good record behind it.
            data = b"".join(carry)
            cut = data.rfind(b"\0") + 1
            if cut:
                yield Block(offset, data[:cut])
                offset += cut
                carry, carried = [data[cut:]], len(data) - cut
            else:
                carry, skipping = [], True
    if skipping:
        yield Block(offset, b"", skipped=carried)
    elif carried:
        yield Block(offset, b"".join(carry), torn=True, growing=os.fstat(fd).st_size > size)


def _check_unchanged(fd: int, path: Path, size: int) -> None:
    opened = os.fstat(fd)
    try:
        now = path.stat()
    except FileNotFoundError:
        raise HistoryUnreadable(f"{path.name} was removed while it was read") from None
    if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
        raise HistoryUnreadable(f"{path.name} was replaced while it was read")
    if now.st_size < size:
        raise HistoryUnreadable(f"{path.name} got shorter while it was read")


def _unreadable(path: Path, error: OSError) -> HistoryUnreadable:
    what = errno.errorcode.get(error.errno or 0, "")
    return HistoryUnreadable(f"{path.name} cannot be read: {error.strerror or what}")
