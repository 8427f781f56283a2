"""Changes of files as a v2 ``diff``, with the patch that Git would write for them (TC-3).

Paths are absolute, without ``a/`` and ``b/``; ``/dev/null`` is the missing side; unusual paths are quoted as Git quotes
them. ``changes`` is what counts: a file whose text is not known, or whose hunks contradict themselves, is named there
and the diff has no ``patch``, since one that lacks a file would disagree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "NO_NEWLINE",
    "FilePatch",
    "added",
    "deleted",
    "diff",
    "git_path",
    "hunk_head",
    "hunk_lines",
    "modified",
    "moved",
    "split_lines",
]

NO_NEWLINE: Final = "\\ No newline at end of file"

_PLAIN_PATH: Final = re.compile(r"[ !#-\[\]-~]*")  # printable ASCII, but for the quote and the backslash
_ESCAPES: Final = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_HEAD: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file's part of a diff: the ``DiffChange``, and its patch text (``None``: not known)."""

    change: dict[str, Any]
    text: str | None


def diff(files: Sequence[FilePatch]) -> dict[str, Any]:
    """The ``diff`` content of these changes; ``patch`` only when the text of each is known."""
    found: dict[str, Any] = {"type": "diff", "changes": [file.change for file in files]}
    texts = [file.text for file in files if file.text is not None]
    if files and len(texts) == len(files):
        found["patch"] = {"format": "git_patch", "text": "".join(texts)}
    return found


def added(path: str, content: str) -> FilePatch:
    """A new file with its whole content."""
    name = git_path(path)
    head = [f"diff --git {name} {name}", "new file mode 100644"]
    return FilePatch(_change("add", path), _text(head, "/dev/null", _label(name), _whole("+", content)))


def deleted(path: str, content: str) -> FilePatch:
    """A file that goes, with the content that it had."""
    name = git_path(path)
    head = [f"diff --git {name} {name}", "deleted file mode 100644"]
    return FilePatch(_change("delete", path), _text(head, _label(name), "/dev/null", _whole("-", content)))


def modified(path: str, hunks: Sequence[str] | None) -> FilePatch:
    """A file with another content; ``hunks`` are the lines of all hunks, ``None`` when they are not known."""
    name = git_path(path)
    text = None if not hunks else _text([f"diff --git {name} {name}"], _label(name), _label(name), hunks)
    return FilePatch(_change("modify", path), text)


def moved(old_path: str, path: str, hunks: Sequence[str] | None) -> FilePatch:
    """A file with another path; ``hunks`` say what else changed in it, ``[]`` for nothing."""
    old, new = git_path(old_path), git_path(path)
    head = [f"diff --git {old} {new}", f"rename from {old}", f"rename to {new}"]
    change = {"operation": "move", "oldPath": old_path, "path": path, "fileType": "text"}
    return FilePatch(change, None if hunks is None else _text(head, _label(old), _label(new), hunks))


def git_path(path: str) -> str:
    """``path`` as Git writes it (``core.quotePath``): in quotes, with octal escapes, when it has unusual bytes."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    raw = os.fsencode(path) if not path.isascii() else path.encode()
    quoted = "".join(
        _ESCAPES[byte] if byte in _ESCAPES else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in raw
    )
    return f'"{quoted}"'


def hunk_head(old_start: int, old_count: int, new_start: int, new_count: int) -> str:
    """A hunk's head from 0-based starts; Git counts an empty side from the line before it."""
    return f"@@ -{old_start + (old_count > 0)},{old_count} +{new_start + (new_count > 0)},{new_count} @@"


def split_lines(text: str) -> list[str]:
    """Lines with their newline; only ``\\n`` ends one, as for Git."""
    parts = text.split("\n")
    lines = [f"{part}\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def hunk_lines(unified: str) -> list[str] | None:
    """The lines of the hunks in a unified diff, without file heads; ``None`` when a hunk is not what its head says.

    A context line that is empty may have lost its blank. What stands before the first hunk is left out, as are empty
    lines between hunks.
    """
    lines = unified.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    found: list[str] = []
    index = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    while index < len(lines):
        if not lines[index]:
            index += 1
            continue
        head = _HEAD.match(lines[index])
        if head is None:
            return None
        found.append(lines[index])
        index += 1
        old, new = (int(count) if count is not None else 1 for count in (head[2], head[4]))
        while (old > 0 or new > 0) and index < len(lines):
            line = lines[index] or " "
            mark = line[0]
            if mark not in " +-\\":
                return None
            old -= mark in " -"
            new -= mark in " +"
            found.append(line)
            index += 1
        if old or new:
            return None
        if index < len(lines) and lines[index].startswith("\\"):
            found.append(lines[index])
            index += 1
    return found


def _change(operation: str, path: str) -> dict[str, Any]:
    return {"operation": operation, "path": path, "fileType": "text"}


def _label(name: str) -> str:
    # Git ends a name with a blank in it by a tab, so that a patch reader finds its end.
    return f"{name}\t" if " " in name else name


def _text(head: list[str], old: str, new: str, hunks: Sequence[str]) -> str:
    # An empty file has no hunks, but without prefixes Git knows its name by these lines alone (measured).
    sides = [f"--- {old}", f"+++ {new}"] if hunks or "/dev/null" in (old, new) else []
    return "\n".join([*head, *sides, *hunks]) + "\n"


def _whole(prefix: str, content: str) -> list[str]:
    lines = split_lines(content)
    if not lines:
        return []
    count = len(lines)
    body = [hunk_head(0, 0, 0, count) if prefix == "+" else hunk_head(0, count, 0, 0)]
    body += [prefix + line.removesuffix("\n") for line in lines]
    if not lines[-1].endswith("\n"):
        body.append(NO_NEWLINE)
    return body
