"""What commands print while they run: their output files, followed.

The CLI reports no output before a command's end, but it lets every command write to a file of a known name (measured,
claude 2.1.332): ``<temporary folder>/claude-<uid>/<project>/<session id>/tasks/<task id>.output``. Behind the last
byte it writes a line on how a background command ended, which is its own and no output.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sayagain_claude.translate import terminals

__all__ = ["FIRST_PAUSE", "KEPT", "LONGEST_PAUSE", "OutputTail", "Tails", "stored_output"]

KEPT: Final = 256 << 10
"""Bytes of a command's output that are kept to show it to a client that comes later; what a terminal scrolls back."""

_FOLDERS: Final = ("CLAUDE_CODE_TMPDIR", "TMPDIR", "TMP", "TEMP")
"""Where the CLI looks for a temporary folder (code); ``/tmp`` when none is set."""

_READ: Final = 64 << 10
"""Bytes read at a time: a command that prints faster than that is shown in jumps, by its latest output."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks at the files, growing while nothing is new. There is no portable way to be told."""

_END: Final = re.compile(rb"\n?\[(?:exited with code (-?\d+)|killed)\]\n\Z")
_MAYBE_END: Final = re.compile(rb"\n\[[^\n]{0,40}\n?\Z")


class OutputTail:
    """The bytes of one output file as terminal updates. Pure."""

    __slots__ = ("_held", "_since_snapshot", "_terminal_id", "kept")

    def __init__(self, terminal_id: str) -> None:
        self.kept = b""
        self._terminal_id = terminal_id
        self._held = b""
        self._since_snapshot = 0

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        """More bytes; what could be the CLI's own last line waits for what follows it."""
        data = self._held + data
        end = _MAYBE_END.search(data, max(0, len(data) - 64))
        self._held = data[end.start() :] if end else b""
        return self._show(data[: end.start()] if end else data)

    def jump(self, data: bytes) -> list[Mapping[str, Any]]:
        """The latest bytes, behind some that were left out: all that came before them is dropped."""
        self.kept, self._held = b"", b""
        self._since_snapshot = KEPT
        return self.feed(data)

    def finish(self, data: bytes) -> list[Mapping[str, Any]]:
        """The last bytes. The whole is shown again, so that whoever folds updates holds it in one piece."""
        updates = self._show(_END.sub(b"", self._held + data))
        self._held = b""
        return [*updates, terminals.snapshot(self._terminal_id, self.kept)] if self.kept else updates

    def _show(self, data: bytes) -> list[Mapping[str, Any]]:
        if not data:
            return []
        self.kept = (self.kept + data)[-KEPT:]
        self._since_snapshot += len(data)
        if self._since_snapshot > KEPT:
            # What a client holds stays bounded, too.
            self._since_snapshot = 0
            return [terminals.snapshot(self._terminal_id, self.kept)]
        return [terminals.output_chunk(self._terminal_id, data)]


@dataclass(slots=True)
class _File:
    session_id: str
    tail: OutputTail
    path: Path | None = None
    position: int = 0


@dataclass(slots=True)
class Tails:
    """The files of one session's running commands, by task. Reads are of local files, and short."""

    session_id: str
    env: Mapping[str, str]
    _files: dict[str, _File] = field(default_factory=dict[str, _File])

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._files

    def follow(self, task_id: str, session_id: str, terminal_id: str) -> None:
        """Report what the task prints as output of the terminal; again is nothing."""
        if task_id not in self._files and re.fullmatch(r"[\w-]+", task_id):
            self._files[task_id] = _File(session_id, OutputTail(terminal_id))

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._files))

    def read(self, task_id: str) -> list[tuple[str, Mapping[str, Any]]]:
        """What is new of a task's output: (session id, update)."""
        file = self._files.get(task_id)
        return [(file.session_id, update) for update in self._read(task_id, file)] if file else []

    def finish(self, task_id: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The rest of a task's output; it is followed no more."""
        file = self._files.pop(task_id, None)
        if file is None:
            return []
        updates = self._read(task_id, file)
        return [(file.session_id, update) for update in (*updates, *file.tail.finish(b""))]

    def keep_only(self, task_ids: Container[str]) -> None:
        """Follow no others any more: their results say all that they printed."""
        self._files = {task_id: file for task_id, file in self._files.items() if task_id in task_ids}

    def _read(self, task_id: str, file: _File) -> Sequence[Mapping[str, Any]]:
        if file.path is None:
            file.path = self._find(task_id)
        opened = _open(file.path) if file.path else None
        if opened is None:
            return ()
        fd, size = opened
        with os.fdopen(fd, "rb") as stream:
            jump = size - file.position > KEPT
            if jump:
                file.position = size - KEPT
            stream.seek(file.position)
            data = stream.read(KEPT if jump else _READ)
        file.position += len(data)
        return file.tail.jump(data) if jump else file.tail.feed(data)

    def _find(self, task_id: str) -> Path | None:
        folder = Path(next(filter(None, map(self.env.get, _FOLDERS)), "/tmp")) / f"claude-{os.getuid()}"
        return next(folder.glob(f"*/{self.session_id}/tasks/{task_id}.output"), None)


def stored_output(path: Path) -> dict[str, Any]:
    """The end of a finished or lost command's file as terminal fields: ``output`` and, when it is known, the end."""
    opened = _open(path)
    if opened is None:
        return {}
    fd, size = opened
    with os.fdopen(fd, "rb") as stream:
        stream.seek(max(0, size - KEPT))
        data = stream.read(KEPT)
    fields: dict[str, Any] = {}
    if end := _END.search(data):
        fields["exitStatus"] = {"exitCode": int(end[1])} if end[1] else terminals.KILLED
        data = data[: end.start()]
    if data:
        fields["output"] = terminals.snapshot("", data)["output"]
    return fields


def _open(path: Path) -> tuple[int, int] | None:
    """A regular file and its size; links are not followed, since the folder lies where others may write."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        return None
    return fd, status.st_size
