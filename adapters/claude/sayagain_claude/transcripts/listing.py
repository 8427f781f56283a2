"""The list of stored sessions, newest first, from the beginning and the end of each file alone (LST-1 to LST-4)."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from sayagain.errors import HistoryUnreadable, InvalidParams, SessionNotFound
from sayagain.runtime.seam import SessionPage, StoredSession
from sayagain_claude.transcripts.paths import is_session_id, preference, project_folders
from sayagain_claude.transcripts.reader import Damaged, Row, parse_line, read_rows
from sayagain_claude.transcripts.row import RowKind, classify, row_text

__all__ = ["PAGE_SIZE", "list_sessions", "session_title", "stored_session"]

PAGE_SIZE: Final = 500
"""Each page looks at every file's time, so few large pages are far cheaper than many small ones."""

_PROBE: Final = 64 << 10
"""Bytes read at each end of a file, as the CLI's own list does: its first prompt is in one, its titles in either."""

_TITLE_LENGTH: Final = 120
_TITLED: Final = re.compile(rb'"(?:custom-title|ai-title|summary)"')
_CURSOR: Final = re.compile(r"(-?[0-9]{1,20})\.([0-9a-f-]{36})", re.IGNORECASE)
_CURSOR_LENGTH: Final = 128

_SHOWN_PROMPTS: Final = frozenset({RowKind.PROMPT, RowKind.FOLDED_PROMPT, RowKind.COMMAND, RowKind.UNAVAILABLE_COMMAND})

_COMMAND: Final = re.compile(r"<command-name>(.*?)</command-name>(?:.*?<command-args>(.*?)</command-args>)?", re.DOTALL)
_MARKUP: Final = re.compile(
    r"<(system-reminder|ide_opened_file|ide_selection|local-command-caveat|local-command-stdout|local-command-stderr)>"
    r".*?</\1>",
    re.DOTALL,
)


class _Found(NamedTuple):
    """A session's file, ordered as the list is: by when it was written, then by id."""

    mtime_ns: int
    session_id: str
    path: Path
    size: int


def list_sessions(
    config: Path, *, cwd: str | None = None, cursor: str | None = None, limit: int = PAGE_SIZE
) -> SessionPage:
    """One page of stored sessions that hold a prompt, newest first.

    ``cwd`` (absolute) takes sessions of exactly that directory, by the cwd that their first row names; a symlinked
    one matches under both names. The cursor says where the last page ended (time written and id), so sessions that
    are made meanwhile disturb nothing; one that is written meanwhile moves to the front. ``None`` and ``""`` mean the
    start. Files that cannot be read are left out. Raises :class:`~sayagain.errors.InvalidParams` for a cursor that
    is none of ours.
    """
    after = _parse_cursor(cursor) if cursor else None
    cwds = None if cwd is None else frozenset({cwd, unicodedata.normalize("NFC", cwd), os.path.realpath(cwd)})
    files = _files(config, cwds)
    if after is not None:
        files = [found for found in files if (found.mtime_ns, found.session_id) < after]
    sessions: list[StoredSession] = []
    last: _Found | None = None
    for found in sorted(files, reverse=True):
        session = _read(found)
        if session is None or (cwds is not None and session.cwd not in cwds):
            continue
        if len(sessions) == limit and last is not None:
            return SessionPage(sessions, _cursor(last))
        sessions.append(session)
        last = found
    return SessionPage(sessions)


def stored_session(path: Path) -> StoredSession | None:
    """The list's row for one transcript, from its head and tail alone; ``None`` when it holds no prompt."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _read(_Found(status.st_mtime_ns, path.stem, path, status.st_size))


def session_title(text: str) -> str | None:
    """``text`` as a title: one line without markup of the harness or control characters, at most 120 characters."""
    command = _COMMAND.search(text)
    if command is not None:
        text = f"{command[1]} {command[2] or ''}"
    printable = "".join(
        " " if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
        for char in _MARKUP.sub(" ", text[:_PROBE])
    )
    title = " ".join(printable.split())
    if len(title) > _TITLE_LENGTH:
        title = title[: _TITLE_LENGTH - 1].rstrip() + "…"
    return title or None


def _files(config: Path, cwds: frozenset[str] | None) -> list[_Found]:
    best: dict[str, tuple[tuple[bool, bool, int, int], _Found]] = {}
    for folder in project_folders(config, cwds):
        try:
            entries = os.scandir(folder)
        except OSError:
            continue
        with entries:
            for entry in entries:
                session_id, ending = entry.name[:-6], entry.name[-6:]
                if ending != ".jsonl" or not is_session_id(session_id):
                    continue
                try:
                    status = entry.stat()
                except OSError:
                    continue
                if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
                    continue
                rank = preference(status)
                if session_id not in best or rank > best[session_id][0]:
                    path = Path(entry.path)
                    best[session_id] = (rank, _Found(status.st_mtime_ns, session_id, path, status.st_size))
    return [found for _, found in best.values()]


def _read(found: _Found) -> StoredSession | None:
    """The list's row for one file; ``None`` when it holds no prompt or cannot be read."""
    try:
        head, tail = _probe(found.path, found.size)
    except (OSError, HistoryUnreadable, SessionNotFound):
        return None
    # Most of what was read is never parsed: answers are long, and no title.
    begun: list[Row] = []
    prompt: Row | None = None
    for row in _rows(head):
        begun.append(row)
        if begun[0].get("isSidechain") is True:
            return None
        if classify(row) in _SHOWN_PROMPTS:
            prompt = row
            break
    if prompt is None and found.size > _PROBE:
        # A first prompt of more than the probe, such as a picture.
        try:
            prompt = _first_prompt(row for row in read_rows(found.path) if not isinstance(row, Damaged))
        except (HistoryUnreadable, SessionNotFound):
            return None
    if prompt is None:
        return None
    cwd = next((value for row in (*begun, prompt) if isinstance(value := row.get("cwd"), str)), None)
    if cwd is None:
        return None
    title = _stored_title(head, tail) or session_title(row_text(prompt))
    return StoredSession(found.session_id, cwd, title, _rfc3339(found.mtime_ns))


def _probe(path: Path, size: int) -> tuple[list[bytes], list[bytes]]:
    """The lines that are whole within the first and the last bytes; none of the last for a small file."""
    # Not opened through `blocks`: a list is no proof of anything, so a file that changes meanwhile is none of its
    # business. O_NONBLOCK as there: what was a file may be a FIFO by now.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(fd, "rb", buffering=0) as file:
        head = file.read(_PROBE)
        if size <= _PROBE:
            return head.split(b"\n"), []
        file.seek(max(size - _PROBE, _PROBE))
        tail = file.read(_PROBE)
    return head.split(b"\n")[:-1], tail.split(b"\n")[1:]


def _rows(lines: Iterable[bytes]) -> Iterator[Row]:
    return (item for line in lines if line for item in parse_line(line) if not isinstance(item, Damaged))


def _first_prompt(rows: Iterable[Row]) -> Row | None:
    return next((row for row in rows if classify(row) in _SHOWN_PROMPTS), None)


def _stored_title(head: list[bytes], tail: list[bytes]) -> str | None:
    """The title that the user gave, else the one that the CLI made; the newest of each."""
    rows = list(_rows(line for line in (*reversed(tail), *reversed(head)) if _TITLED.search(line)))
    for kind, name in (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary")):
        for row in rows:
            value = row.get(name)
            if row.get("type") == kind and isinstance(value, str) and (title := session_title(value)):
                return title
    return None


def _rfc3339(mtime_ns: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(mtime_ns // 1_000_000 / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a clock that jumped: no time is better than no list
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cursor(found: _Found) -> str:
    return base64.urlsafe_b64encode(f"{found.mtime_ns}.{found.session_id}".encode()).decode()


def _parse_cursor(cursor: str) -> tuple[int, str]:
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode() if len(cursor) <= _CURSOR_LENGTH else ""
    except (binascii.Error, ValueError):
        text = ""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidParams("cursor", "is none that session/list returned")
    return int(match[1]), match[2]
