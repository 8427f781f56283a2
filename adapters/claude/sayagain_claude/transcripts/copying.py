"""Fork and delete, offline: on the files alone, without a runtime process.

A copy made here exists at once, with everything that is stored: the CLI's own fork writes nothing before its first
prompt, and leaves out what a compaction replaced for the model (measured). Row ids stay the same: ids of keyed
prompts derive from the session id, so a parent's id never answers for a key of the fork.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from sayagain.errors import RuntimeFault, SessionNotFound
from sayagain_claude.transcripts.lines import blocks
from sayagain_claude.transcripts.paths import list_subagents, subagent_files
from sayagain_claude.transcripts.reader import Damaged, Row, parse_line

__all__ = ["delete", "fork"]

_DELETE_ATTEMPTS: Final = 5


def fork(source: Path, session_id: str, new_session_id: str) -> Path:
    """Copy the stored session to ``new_session_id``, next to ``source``; returns the new transcript.

    Every row is kept byte for byte, but for its ``sessionId`` where that is ``session_id``. Damage is left behind:
    rows that were glued get lines of their own, torn ones are dropped. Subagents come along. The transcript appears
    whole or not at all, after its subagents. Raises as
    :func:`~sayagain_claude.transcripts.reader.read_rows` does for ``source``, and
    :class:`~sayagain.errors.RuntimeFault` when the copy cannot be written.
    """
    target = source.with_name(f"{new_session_id}.jsonl")
    try:
        for child in list_subagents(source):
            copy = subagent_files(target, child.agent_id)
            if copy is None:
                continue
            copy.transcript.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(SessionNotFound):  # a child of which only the meta file is there
                _copy(child.transcript, copy.transcript, session_id, new_session_id)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(child.meta, copy.meta)
        _copy(source, target, session_id, new_session_id)
    except BaseException as error:
        shutil.rmtree(target.with_suffix(""), ignore_errors=True)
        if isinstance(error, OSError):
            raise RuntimeFault(f"The session cannot be copied: {error.strerror}") from error
        raise
    return target


def delete(path: Path) -> None:
    """Remove a transcript and its folder (subagents and kept tool output). Idempotent; others may do the same.

    The folder goes first, so that a deletion which is cut short is found and finished the next time. Raises
    :class:`~sayagain.errors.RuntimeFault` when something stays. Another project folder may hold the id too: call
    :func:`~sayagain_claude.transcripts.paths.find` until it finds nothing.
    """
    try:
        _remove_folder(path.with_suffix(""))
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RuntimeFault(f"The session cannot be deleted: {error.strerror}") from error


def _remove_folder(folder: Path) -> None:
    for _ in range(_DELETE_ATTEMPTS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not os.path.lexists(folder):
                return
        except NotADirectoryError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # a file was added meanwhile
                raise
        else:
            return
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _copy(source: Path, target: Path, session_id: str, new_session_id: str) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb", opener=_private) as file:
            _write_rows(file, source, session_id, new_session_id)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_rows(file: BinaryIO, source: Path, session_id: str, new_session_id: str) -> None:
    for block in blocks(source):
        for line in block.data.split(b"\n"):
            for row in _renamed(line, session_id, new_session_id):
                file.write(row)
                file.write(b"\n")


def _renamed(line: bytes, session_id: str, new_session_id: str) -> Iterator[bytes]:
    items = parse_line(line) if line else []
    rows = [item for item in items if not isinstance(item, Damaged)]
    if len(items) == 1 and rows:
        # Quotes within strings are escaped, so the bytes of the field occur as such only where it is a field: when
        # they occur once and the row has it, that is the row's own.
        whole = line.strip().removeprefix(codecs.BOM_UTF8)
        old, new = (f'"sessionId":"{value}"'.encode() for value in (session_id, new_session_id))
        if rows[0].get("sessionId") != session_id:
            yield whole
            return
        if whole.count(old) == 1:
            yield whole.replace(old, new)
            return
    for row in rows:
        yield _dump({**row, "sessionId": new_session_id} if row.get("sessionId") == session_id else row)


def _dump(row: Row | dict[str, Any]) -> bytes:
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates stay escapes
        return json.dumps(row, separators=(",", ":")).encode()
