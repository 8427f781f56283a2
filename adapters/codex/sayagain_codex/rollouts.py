"""Where Codex keeps the files of a thread, and what they are made of.

In place of a file Codex opens anything: a FIFO holds it, and all of its sessions, until it counts as hung; a folder is
now no such session, now an error (measured).

The first file of a thread is ``rollout-<time>-<thread id>.jsonl``. A revert leaves it, and goes on in another one with
``_<revision>`` behind the id, a UUIDv7, in the folder of the day of the revert. It builds on a part of a file before
it, as a fork builds on one of the other thread's. The first row says so (measured)::

    {"timestamp":"...","ordinal":23,"type":"session_meta","payload":{"id":"<thread id>", ...,"history_base":
     {"thread_id":"<thread id or revision>","end_ordinal_exclusive":23,"end_byte_offset":43913}}}
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID

from sayagain.protocol.loose import as_count, as_mapping, as_text

__all__ = ["Part", "first_turn", "irregular", "newest", "opened", "part", "parts", "reverted"]

_ID: Final = 36
"""Characters of a thread's id."""

_BLOCK: Final = 1 << 16
"""Bytes that are read at once in search of the end of the last row."""


_LISTED: Final = re.compile(rb'"type":"item_completed","thread_id":"[^"]*","turn_id":"([^"\\]+)"')
"""In the row of an item that is listed."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a thread has of one file: everything before the byte ``end``.

    ``name`` is what the file has alone: its revision, or the thread's id if it is the first one. ``file`` is ``None``
    when it is not where it is looked for, or packed.
    """

    name: str
    end: int
    file: Path | None = field(default=None, compare=False)


def irregular(home: Path, thread_id: str) -> Path | None:
    """What stands where the thread's file should be and is no file; ``None`` when all is well, or nothing is there.

    ``thread_id`` is one that Codex can have made.
    """
    return next((path for path in _paths(home, thread_id) if not path.is_file() and os.path.lexists(path)), None)


def reverted(home: Path) -> dict[str, str | None]:
    """The threads that have more than one file, each with the name of the one that Codex lists last: the newest with a
    turn of its own; ``None`` means the first file."""
    folders = (home / "archived_sessions", *home.glob("sessions/*/*/*"))
    files: dict[str, list[Path]] = {}
    for path in (path for folder in folders for path in folder.glob("rollout-*_*.jsonl*")):
        files.setdefault(path.name.partition("_")[0][-_ID:], []).append(path)
    return {thread_id: _last_listed(paths) for thread_id, paths in files.items()}


def _last_listed(revisions: Sequence[Path]) -> str | None:
    newest_first = sorted(revisions, key=lambda path: path.name.partition("_")[2], reverse=True)
    packed = (".zst", ".gz")
    return next((p.name for p in newest_first if p.suffix in packed or first_turn(Part("", sys.maxsize, p))), None)


def newest(home: Path, thread_id: str) -> Path | None:
    """The file that Codex goes on with, as far as that can be known without it: a revert that came days after the
    thread was made has put it elsewhere."""
    return max(_paths(home, thread_id), key=lambda path: part(path, thread_id) or "", default=None)


def part(rollout: Path, thread_id: str) -> str | None:
    """What this file of a thread has alone: its revision, or the thread's id if it is the first one; ``None`` for a
    file that is called otherwise, or is packed, as Codex does with old ones."""
    name, _, revision = rollout.stem.partition("_")
    called = name.startswith("rollout-") and name.endswith(f"-{thread_id}") and rollout.suffix == ".jsonl"
    return (revision or thread_id) if called else None


def parts(home: Path, thread_id: str, rollout: Path) -> Sequence[Part]:
    """What a thread is made of, the file that Codex goes on with first, as far back as files can be read.

    A row that has no end yet is left out: it is being written.
    """
    name = part(rollout, thread_id)
    if name is None:
        return []
    found: dict[str, Part] = {}
    with suppress(OSError, ValueError):
        with opened(rollout) as file:
            base = _base(file)
            found[name] = Part(name, _end_of_rows(file), rollout)
        while base is not None and base[0] not in found:
            path = _called(home, base[0])
            found[base[0]] = Part(*base, path)
            if path is None:
                break
            with opened(path) as file:
                base = _base(file)
    return list(found.values())


def first_turn(part: Part) -> str | None:
    """The first turn of which something is listed; ``None`` when there is none, or nobody can tell."""
    if part.file is not None:
        with suppress(OSError), opened(part.file) as file:
            for line in file:
                if file.tell() > part.end:
                    break
                if found := _LISTED.search(line):
                    return found[1].decode(errors="replace")
    return None


def opened(rollout: Path) -> BinaryIO:
    """Opened for reading; raises :class:`OSError` also for what is no file: a FIFO would be waited for, and a device
    may have no end."""
    file = open(rollout, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))  # noqa: SIM115 - given
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{rollout} is no file")
    return file


def _base(file: BinaryIO) -> tuple[str, int] | None:
    """What a file builds on: a name, and an end. Raises :class:`ValueError` when it does not begin as Codex's do."""
    meta = as_mapping(json.loads(file.readline()))
    base = as_mapping(as_mapping(meta.get("payload")).get("history_base"))
    name, end = as_text(base.get("thread_id")), as_count(base.get("end_byte_offset"))
    return (name, end) if name and end is not None else None


def _end_of_rows(file: BinaryIO) -> int:
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _called(home: Path, name: str) -> Path | None:
    """The file with this :attr:`Part.name`."""
    return next((path for folder in _folders(home, name) for path in folder.glob(f"rollout-*[-_]{name}.jsonl")), None)


def _paths(home: Path, thread_id: str) -> Iterator[Path]:
    for folder in _folders(home, thread_id):
        yield from folder.glob(f"rollout-*-{thread_id}*.jsonl")


def _folders(home: Path, name: str) -> Iterator[Path]:
    """The day on which an id was made, in any time zone; archived threads are all in one folder."""
    yield home / "archived_sessions"
    if UUID(name).version != 7:
        return
    made = timedelta(milliseconds=UUID(name).int >> 80)
    for days in (-1, 0, 1):
        try:
            day = datetime(1970, 1, 1, tzinfo=UTC) + made + timedelta(days=days)
        except OverflowError:
            return  # a made-up id, of a year with five digits
        yield home / "sessions" / f"{day:%Y}" / f"{day:%m}" / f"{day:%d}"
