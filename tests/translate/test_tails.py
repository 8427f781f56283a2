"""Output files of running commands: what is shown of them, piece by piece."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain_claude.tails import KEPT, OutputTail, Tails, stored_output

SESSION = "00000000-0000-4000-8000-000000000001"


def held(updates: Iterable[Mapping[str, Any]]) -> bytes:
    """What a client holds."""
    data = b""
    for update in updates:
        if update["sessionUpdate"] == "terminal_output_chunk":
            data += base64.b64decode(update["data"])
        elif "output" in update:
            data = base64.b64decode(update["output"]["data"])
    return data


@given(
    st.lists(
        st.sampled_from([b"a", b"\n", b"[", b"[exited", b" with code 0]", b"\n[killed]", b"\n[exited with code 7]\n"])
    ),
    st.sampled_from([b"", b"\n[exited with code 0]\n", b"\n[killed]\n"]),
)
def test_the_runtimes_own_last_line_is_never_shown_and_nothing_else_is_lost(pieces: list[bytes], end: bytes) -> None:
    tail = OutputTail("t1")
    updates = [update for piece in pieces for update in tail.feed(piece)]
    printed = b"".join(pieces)
    assert printed.startswith(held(updates))
    updates += tail.finish(end)
    assert held(updates) == (printed if end else held(updates))
    if not end and not printed.endswith(b"]\n"):
        assert held(updates) == printed
    assert tail.kept == held(updates)


def test_a_long_output_stays_bounded() -> None:
    tail = OutputTail("t1")
    updates: list[Mapping[str, Any]] = []
    for number in range(40):
        updates += tail.feed(bytes([65 + number % 26]) * 20_000)
    assert len(tail.kept) == KEPT
    assert len(held(updates)) < 2 * KEPT
    assert held(updates).endswith(tail.kept[-1000:])


def output_file(folder: Path, task_id: str) -> Path:
    path = folder / f"claude-{os.getuid()}" / "-project" / SESSION / "tasks" / f"{task_id}.output"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_files_are_found_followed_and_finished(tmp_path: Path) -> None:
    tails = Tails(SESSION, {"TMPDIR": str(tmp_path)})
    tails.follow("b1", SESSION, "t1")
    assert tails.read("b1") == []
    path = output_file(tmp_path, "b1")
    path.write_bytes(b"one\n")
    updates = tails.read("b1")
    assert held(u for _, u in updates) == b"one\n"
    assert tails.read("b1") == []
    path.write_bytes(b"one\ntwo\n\n[exited with code 0]\n")
    assert held(u for _, u in updates + tails.finish("b1")) == b"one\ntwo\n"
    assert len(tails) == 0
    assert tails.finish("b1") == []


def test_a_file_that_grows_faster_than_it_is_read_is_shown_by_its_latest_part(tmp_path: Path) -> None:
    tails = Tails(SESSION, {"CLAUDE_CODE_TMPDIR": str(tmp_path), "TMPDIR": "/nowhere"})
    tails.follow("b1", SESSION, "t1")
    output_file(tmp_path, "b1").write_bytes(b"x" * (3 * KEPT) + b"latest")
    shown = held(u for _, u in tails.read("b1"))
    assert len(shown) == KEPT
    assert shown.endswith(b"latest")


@pytest.mark.parametrize("name", ["../b1", "b/1", "", "*"])
def test_ids_that_are_no_file_names_are_not_followed(tmp_path: Path, name: str) -> None:
    tails = Tails(SESSION, {"TMPDIR": str(tmp_path)})
    tails.follow(name, SESSION, "t1")
    assert len(tails) == 0


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    link = output_file(tmp_path, "b1")
    link.symlink_to(secret)
    os.mkfifo(output_file(tmp_path, "b2"))
    tails = Tails(SESSION, {"TMPDIR": str(tmp_path)})
    for task_id in ("b1", "b2"):
        tails.follow(task_id, SESSION, task_id)
        assert tails.read(task_id) == []
    assert stored_output(link) == {}


@pytest.mark.parametrize(
    ("data", "output", "end"),
    [
        (b"a\n\n[exited with code 7]\n", b"a\n", {"exitCode": 7}),
        (b"a\n\n[killed]\n", b"a\n", {"signal": "SIGKILL"}),
        (b"a\n", b"a\n", None),
        (b"\n[exited with code 0]\n", None, {"exitCode": 0}),
    ],
)
def test_what_is_kept_of_a_command_that_is_over(tmp_path: Path, data: bytes, output: bytes | None, end: Any) -> None:
    path = tmp_path / "b1.output"
    path.write_bytes(data)
    fields = stored_output(path)
    assert fields.get("exitStatus") == end
    assert (base64.b64decode(fields["output"]["data"]) if "output" in fields else None) == output
