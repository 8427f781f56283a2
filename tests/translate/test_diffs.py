"""Diffs are exact: Git applies them, and what comes out is what the edit made."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sayagain_claude.translate import diffs

GIT = shutil.which("git")

needs_git = pytest.mark.skipif(GIT is None, reason="no git on PATH")


def apply(folder: Path, patch: str) -> None:
    """Apply a patch with absolute paths as Git itself reads it."""
    assert GIT is not None
    command = [GIT, "apply", "--unsafe-paths", "-p0", "--whitespace=nowarn", "--unidiff-zero", "-"]
    subprocess.run(command, input=patch.encode(), cwd="/", check=True, capture_output=True)


lines = st.lists(st.sampled_from(["a", "b", "c", "", "+x", "-y", "\\ z", "@@"]), max_size=12).map("\n".join)
names = st.sampled_from(["plain.txt", "with blank.txt", 'qu"ote.txt', "ünï.txt", "tab\there.txt", "back\\slash"])


@needs_git
@settings(max_examples=60, deadline=None)
@given(lines, st.booleans(), lines, st.booleans(), names)
def test_git_applies_the_diff_of_two_texts(before: str, ended: bool, after: str, ended_too: bool, name: str) -> None:
    before, after = before + "\n" * ended, after + "\n" * ended_too
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(before, encoding="utf-8")
        diff = diffs.text_diff(str(path), before, after)
        if diff is None:
            assert before == after
            return
        if not after:
            return  # Git takes a patch to an empty text for a deletion, and wants it said so
        apply(Path(folder), diff["patch"]["text"])
        assert path.read_text(encoding="utf-8") == after


@needs_git
@settings(max_examples=20, deadline=None)
@example(after="", name="empty.txt")
@given(lines, names)
def test_git_applies_the_diff_of_a_new_file(after: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        diff = diffs.text_diff(str(path), None, after)
        assert diff is not None
        apply(Path(folder), diff["patch"]["text"])
        assert path.read_text(encoding="utf-8") == after
    assert diff["changes"] == [{"operation": "add", "path": str(path), "fileType": "text"}]


def edit(**fields: Any) -> dict[str, Any]:
    return {"filePath": "/w/a.txt", "originalFile": "a\nb\nlast", "oldString": "last", "newString": "LAST"} | fields


def hunk(*body: str, start: int = 1) -> dict[str, Any]:
    olds, news = sum(line[0] in " -" for line in body), sum(line[0] in " +" for line in body)
    return {"oldStart": start, "oldLines": olds, "newStart": start, "newLines": news, "lines": list(body)}


def test_the_hunks_of_an_edit_become_a_patch_with_absolute_paths() -> None:
    diff = diffs.edited_file(edit(structuredPatch=[hunk(" a", " b", "-last", "+LAST")]))
    assert diff is not None
    assert diff["changes"] == [{"operation": "modify", "path": "/w/a.txt", "fileType": "text"}]
    assert diff["patch"]["text"] == (
        "diff --git /w/a.txt /w/a.txt\n--- /w/a.txt\n+++ /w/a.txt\n@@ -1,3 +1,3 @@\n a\n b\n-last\n"
        "\\ No newline at end of file\n+LAST\n\\ No newline at end of file\n"
    )


def test_a_mark_that_the_runtime_gave_is_not_given_twice() -> None:
    body = [" a", " b", "-last", "\\ No newline at end of file", "+LAST", "\\ No newline at end of file"]
    marked = hunk(" a", " b", "-last", "+LAST") | {"lines": body}
    diff = diffs.edited_file(edit(structuredPatch=[marked]))
    assert diff is not None
    assert diff["patch"]["text"].count("No newline") == 2


@pytest.mark.parametrize(
    "patch",
    [
        None,
        "x",
        [1],
        [{}],
        [hunk(" a") | {"oldStart": -1}],
        [hunk(" a") | {"lines": ["?"]}],
        [hunk(" a") | {"lines": [3]}],
    ],
)
def test_a_malformed_patch_leaves_the_path(patch: Any) -> None:
    diff = diffs.edited_file(edit(structuredPatch=patch))
    assert diff == {"type": "diff", "changes": [{"operation": "modify", "path": "/w/a.txt", "fileType": "text"}]}


def test_an_edit_without_an_absolute_path_has_no_diff() -> None:
    assert diffs.edited_file(edit(filePath="a.txt")) is None
    assert diffs.edited_file("nonsense") is None


def test_a_write_that_changed_nothing_has_no_diff() -> None:
    same = {"type": "update", "filePath": "/w/a.txt", "content": "x\n", "originalFile": "x\n", "structuredPatch": []}
    assert diffs.edited_file(same) is None


def test_paths_are_quoted_as_git_quotes_them() -> None:
    assert diffs.git_path("/w/plain name.txt") == "/w/plain name.txt"
    assert diffs.git_path('/w/ü"\t.txt') == '"/w/\\303\\274\\"\\t.txt"'
