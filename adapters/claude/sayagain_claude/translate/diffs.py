"""Exact diffs of edited files in Git's patch form (TC-3).

Claude Code reports edits as hunks (``structuredPatch``) with the text before the edit (``originalFile``); both are in
the frame and in the stored row. Paths are absolute, without ``a/`` and ``b/``; ``/dev/null`` is the missing side;
unusual paths are quoted as Git quotes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sayagain.protocol import git_patch
from sayagain.protocol.git_patch import NO_NEWLINE, git_path, split_lines
from sayagain_claude.translate.blocks import Block, as_list, as_mapping, as_text, clean_text, is_absolute

__all__ = ["edited_file", "git_path", "text_diff", "touched_file"]

_CONTEXT: Final = 3


def touched_file(path: str, operation: str = "modify") -> Block | None:
    """A diff that names the changed file only, for edits whose text is not known."""
    change = {"operation": operation, "path": path, "fileType": "text"}
    return git_patch.diff([git_patch.FilePatch(change, None)]) if is_absolute(path) else None


def edited_file(structured: object) -> Block | None:
    """The diff in the structured result of Write, Edit, MultiEdit or NotebookEdit; ``None`` when there is none."""
    result = as_mapping(structured)
    path = as_text(result.get("filePath")) or as_text(result.get("notebook_path"))
    if not is_absolute(path):
        return None
    if isinstance(result.get("original_file"), str) and isinstance(result.get("updated_file"), str):
        return text_diff(path, as_text(result["original_file"]), as_text(result["updated_file"]))
    original = result.get("originalFile")
    if result.get("type") == "create" and not original:
        return text_diff(path, None, as_text(result.get("content")))
    patch = as_list(result.get("structuredPatch"))
    lines = _hunks(patch, _updated(result, original), original if isinstance(original, str) else None)
    if lines is None:
        return touched_file(path)
    return git_patch.diff([git_patch.modified(path, lines)]) if lines else None


def text_diff(path: str, before: str | None, after: str) -> Block | None:
    """The diff from ``before`` (``None``: no such file) to ``after``: one hunk around all that differs."""
    if not is_absolute(path) or before == after:
        return None
    if before is None:
        return git_patch.diff([git_patch.added(path, after)])
    old, new = split_lines(before), split_lines(after)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first, tail = max(0, start - _CONTEXT), min(_CONTEXT, end)
    old_stop, new_stop = len(old) - end, len(new) - end
    body: list[str] = []
    for prefix, part in (
        (" ", old[first:start]),
        ("-", old[start:old_stop]),
        ("+", new[start:new_stop]),
        (" ", old[old_stop : old_stop + tail]),
    ):
        for line in part:
            body.append(prefix + line.removesuffix("\n"))
            if not line.endswith("\n"):
                body.append(NO_NEWLINE)
    head = git_patch.hunk_head(first, old_stop + tail - first, first, new_stop + tail - first)
    return git_patch.diff([git_patch.modified(path, [head, *body])])


def _updated(result: Any, original: object) -> str | None:
    if isinstance(result.get("content"), str):
        return as_text(result["content"])
    old, new = result.get("oldString"), result.get("newString")
    if isinstance(original, str) and isinstance(old, str) and isinstance(new, str):
        return original.replace(old, new) if result.get("replaceAll") else original.replace(old, new, 1)
    return None


def _hunks(patch: Sequence[object], updated: str | None, original: str | None) -> list[str] | None:
    """The lines of all hunks; ``None`` when they are malformed or missing though the text changed."""
    if not patch:
        return [] if updated is not None and updated == original else None
    lines: list[str] = []
    for hunk in map(as_mapping, patch):
        numbers = [hunk.get(name) for name in ("oldStart", "oldLines", "newStart", "newLines")]
        body = as_list(hunk.get("lines"))
        if not body or not all(type(number) is int and number >= 0 for number in numbers):
            return None
        texts = [clean_text(line) for line in body if isinstance(line, str)]
        if len(texts) != len(body) or any(text[:1] not in ("", " ", "+", "-", "\\") for text in texts):
            return None
        lines.append("@@ -{},{} +{},{} @@".format(*numbers))
        lines += [text or " " for text in texts]
    if original is not None and updated is not None and not any(line.startswith("\\") for line in lines):
        _mark_missing_newlines(lines, patch, original, updated)
    return lines


def _mark_missing_newlines(lines: list[str], patch: Sequence[object], original: str, updated: str) -> None:
    """Add Git's mark where a file's last line has no newline and the last hunk reaches it."""
    last = as_mapping(patch[-1])
    for text, prefixes, start, count in (
        (original, " -", last["oldStart"], last["oldLines"]),
        (updated, " +", last["newStart"], last["newLines"]),
    ):
        if not text or text.endswith("\n") or start + count - 1 < len(split_lines(text)):
            continue
        index = max((i for i, line in enumerate(lines) if line[:1] in prefixes), default=None)
        if index is not None and lines[index + 1 : index + 2] != [NO_NEWLINE]:
            lines.insert(index + 1, NO_NEWLINE)
