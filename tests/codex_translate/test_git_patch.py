"""Patches are exact: Git applies them, and what comes out is what was done."""

from __future__ import annotations

import difflib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sayagain.protocol import git_patch
from sayagain_codex.translate.file_changes import change_call

GIT = shutil.which("git")

needs_git = pytest.mark.skipif(GIT is None, reason="no git on PATH")

lines = st.lists(st.sampled_from(["a", "b", "c", "", "+x", "-y", "\\ z", "@@", "Moved to: x"]), max_size=12).map(
    "\n".join
)
names = st.sampled_from(["plain.txt", "with blank.txt", 'qu"ote.txt', "ünï.txt", "tab\there.txt", "back\\slash"])


def apply(patch: str) -> None:
    """Apply a patch with absolute paths as Git itself reads it."""
    assert GIT is not None
    command = [GIT, "apply", "--unsafe-paths", "-p0", "--whitespace=nowarn", "--unidiff-zero", "-"]
    subprocess.run(command, input=patch.encode(), cwd="/", check=True, capture_output=True)


def patch_of(*changes: dict[str, object]) -> str:
    text: str = change_call(list(changes), "/")["content"][0]["patch"]["text"]
    return text


def unified(before: str, after: str) -> str:
    """Hunks as Codex gives them: without file heads, with Git's mark for a missing last newline."""
    old, new = git_patch.split_lines(before), git_patch.split_lines(after)
    hunks = list(difflib.unified_diff(old, new))[2:]
    return "".join(line if line.endswith("\n") else f"{line}\n{git_patch.NO_NEWLINE}\n" for line in hunks)


@needs_git
@settings(max_examples=60, deadline=None)
@given(lines, lines, names)
def test_git_applies_an_update(before: str, after: str, name: str) -> None:
    if before == after or not after:
        return  # Git takes a patch to an empty text for a deletion, and wants it said so
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(before, encoding="utf-8")
        apply(patch_of({"path": str(path), "kind": {"type": "update"}, "diff": unified(before, after)}))
        assert path.read_text(encoding="utf-8") == after


@needs_git
@settings(max_examples=30, deadline=None)
@given(lines, names)
def test_git_applies_a_new_file_and_its_end(content: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        apply(patch_of({"path": str(path), "kind": {"type": "add"}, "diff": content}))
        assert path.read_text(encoding="utf-8") == content
        apply(patch_of({"path": str(path), "kind": {"type": "delete"}, "diff": content}))
        assert not path.exists()


@needs_git
@settings(max_examples=30, deadline=None)
@given(lines.filter(bool), lines.filter(bool), names)
def test_git_applies_a_move(before: str, after: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder) / f"old {name}", Path(folder) / name
        old.write_text(before, encoding="utf-8")
        diff = f"{unified(before, after)}\n\nMoved to: {new}"
        apply(patch_of({"path": str(old), "kind": {"type": "update", "move_path": str(new)}, "diff": diff}))
        assert not old.exists()
        assert new.read_text(encoding="utf-8") == after


@needs_git
def test_several_files_are_one_patch(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1\n2\n", encoding="utf-8")
    changes = [
        {"path": str(tmp_path / "new file"), "kind": {"type": "add"}, "diff": "x\n"},
        {"path": str(tmp_path / "old"), "kind": {"type": "update"}, "diff": unified("1\n2\n", "1\nzwei\n")},
        {"path": str(tmp_path / "empty"), "kind": {"type": "add"}, "diff": ""},
    ]
    apply(patch_of(*changes))
    assert (tmp_path / "new file").read_text(encoding="utf-8") == "x\n"
    assert (tmp_path / "old").read_text(encoding="utf-8") == "1\nzwei\n"
    assert (tmp_path / "empty").read_text(encoding="utf-8") == ""


def test_the_missing_side_is_dev_null_and_paths_have_no_prefix() -> None:
    added = git_patch.added("/w/new.txt", "x").text
    assert added == (
        "diff --git /w/new.txt /w/new.txt\nnew file mode 100644\n--- /dev/null\n+++ /w/new.txt\n"
        "@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n"
    )
    deleted = git_patch.deleted("/w/old.txt", "x\n").text
    assert deleted == (
        "diff --git /w/old.txt /w/old.txt\ndeleted file mode 100644\n--- /w/old.txt\n+++ /dev/null\n"
        "@@ -1,1 +0,0 @@\n-x\n"
    )


def test_a_move_without_changes_has_no_hunks() -> None:
    moved = git_patch.moved("/w/a", "/w/b", [])
    assert moved.text == "diff --git /w/a /w/b\nrename from /w/a\nrename to /w/b\n"
    assert moved.change == {"operation": "move", "oldPath": "/w/a", "path": "/w/b", "fileType": "text"}


@pytest.mark.parametrize(
    "text", ["@@ -1 +1 @@\n-a", "@@ nonsense @@\n a", "@@ -1,2 +1,2 @@\n a\n?b\n", "@@ -1 +1 @@\n-a\n+b\njunk"]
)
def test_a_hunk_that_contradicts_itself_leaves_the_path(text: str) -> None:
    assert git_patch.hunk_lines(text) is None
    call = change_call([{"path": "/w/a", "kind": {"type": "update"}, "diff": text}], "/w")
    assert call["content"] == [
        {"type": "diff", "changes": [{"operation": "modify", "path": "/w/a", "fileType": "text"}]}
    ]


def test_one_file_without_text_leaves_no_patch_that_lacks_it() -> None:
    files = [git_patch.added("/w/a", "x"), git_patch.modified("/w/b", None)]
    diff = git_patch.diff(files)
    assert [change["path"] for change in diff["changes"]] == ["/w/a", "/w/b"]
    assert "patch" not in diff


def test_file_heads_and_lost_blanks_are_read() -> None:
    assert git_patch.hunk_lines("--- a\n+++ b\n@@ -1,2 +1,2 @@\n\n-x\n+y\n") == ["@@ -1,2 +1,2 @@", " ", "-x", "+y"]


def test_a_huge_file_is_whole() -> None:
    content = "".join(f"line {number}\n" for number in range(200_000))
    text = patch_of({"path": "/w/huge", "kind": {"type": "add"}, "diff": content})
    assert text.count("\n+line ") == 200_000


def test_paths_are_quoted_as_git_quotes_them() -> None:
    assert git_patch.git_path("/w/plain name.txt") == "/w/plain name.txt"
    assert git_patch.git_path('/w/ü"\t.txt') == '"/w/\\303\\274\\"\\t.txt"'
