"""Forks and deletions on the files alone."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sayagain.errors import HistoryUnreadable, RuntimeFault, SessionNotFound
from sayagain.testing.transcripts import dump, prompt_row, transcript_path, turn_rows, write_rows, write_transcript
from sayagain_claude.transcripts import copying
from sayagain_claude.transcripts.copying import delete, fork
from sayagain_claude.transcripts.ids import message_ids
from sayagain_claude.transcripts.paths import find, list_subagents
from sayagain_claude.transcripts.reader import Damaged, read_rows

PARENT = "11111111-2222-4333-8444-555555555555"
FORK = "11111111-2222-4333-8444-666666666666"
FOREIGN = "11111111-2222-4333-8444-777777777777"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_transcript(transcript_path(tmp_path, "/project", PARENT), turns=20, session_id=PARENT)


def add_subagent(source: Path, agent_id: str = "a1") -> Path:
    folder = source.with_suffix("") / "subagents"
    write_transcript(folder / f"agent-{agent_id}.jsonl", turns=2, session_id=PARENT)
    (folder / f"agent-{agent_id}.meta.json").write_text('{"toolUseId":"t"}')
    return folder


def test_a_fork_is_the_session_under_another_id(source: Path, tmp_path: Path) -> None:
    copy = fork(source, PARENT, FORK)
    assert copy == find(FORK, tmp_path)
    assert copy.read_bytes() == source.read_bytes().replace(PARENT.encode(), FORK.encode())
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in source.parent.iterdir()) == sorted([source.name, copy.name])
    assert message_ids(copy) == message_ids(source)


def test_only_the_rows_own_session_id_changes(source: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "sessionId": PARENT, "parentUuid": None}
    rows: list[dict[str, Any]] = [
        prompt_row(f'"sessionId":"{PARENT}"', session_id=PARENT, message_id="a"),
        prompt_row("nested", session_id=PARENT, message_id="b", extra={"sessionId": PARENT}),
        {"type": "x", "extra": {"sessionId": PARENT}},
        {"type": "x", "sessionId": FOREIGN, "extra": {"sessionId": PARENT}},
        boundary,
        prompt_row("\ud83d", session_id=PARENT, message_id="c", extra={"sessionId": PARENT, "n": 12345678901234567890}),
    ]
    write_rows(source, rows)
    expected = [{**row, "sessionId": FORK} if row.get("sessionId") == PARENT else row for row in rows]
    assert list(read_rows(fork(source, PARENT, FORK))) == expected


def test_a_fork_leaves_damage_behind(source: Path) -> None:
    good = [dump(row) for row in turn_rows(PARENT, 0)]
    source.write_bytes(b"\xef\xbb\xbf" + good[0] + b"\r\n" + good[1][:50] + good[2] + b"\n" + bytes(99) + good[3][:-9])
    copy = fork(source, PARENT, FORK)
    assert not any(isinstance(item, Damaged) for item in read_rows(copy))
    expected = [json.loads(line) | {"sessionId": FORK} for line in (good[0], good[2])]
    assert [json.loads(line) for line in copy.read_bytes().splitlines()] == expected


def test_subagents_come_along(source: Path) -> None:
    folder = add_subagent(source)
    (folder / "agent-lost.meta.json").write_text("{}")
    copy = fork(source, PARENT, FORK)
    children = list_subagents(copy)
    assert [child.agent_id for child in children] == ["a1", "lost"]
    assert children[0].meta.read_text() == '{"toolUseId":"t"}'
    assert {row["sessionId"] for row in read_rows(children[0].transcript) if not isinstance(row, Damaged)} == {FORK}
    assert not children[1].transcript.exists()


@pytest.mark.parametrize("failing", ["replace", "write"])
def test_a_fork_that_fails_leaves_nothing(source: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_subagent(source)
    before = sorted(source.parent.rglob("*"))

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "replace":
        monkeypatch.setattr(Path, "replace", full)
    else:
        monkeypatch.setattr(copying, "_write_rows", full)
    with pytest.raises(RuntimeFault, match="No space left"):
        fork(source, PARENT, FORK)
    assert sorted(source.parent.rglob("*")) == before


def test_a_fork_of_nothing(source: Path) -> None:
    source.unlink()
    with pytest.raises(SessionNotFound):
        fork(source, PARENT, FORK)
    source.mkdir()
    with pytest.raises(HistoryUnreadable):
        fork(source, PARENT, FORK)
    assert os.listdir(source.parent) == [source.name]  # noqa: PTH208


def test_delete_takes_the_folder_too_and_no_other_session(source: Path) -> None:
    add_subagent(source)
    other = write_transcript(source.with_name(f"{FORK}.jsonl"), turns=1, session_id=FORK)
    (source.with_suffix("") / "tool-results").mkdir()
    delete(source)
    delete(source)
    assert list(source.parent.iterdir()) == [other]


def test_delete_survives_who_deletes_and_writes_meanwhile(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_subagent(source)
    rmtree = shutil.rmtree
    calls: list[Path] = []

    def racing(path: Path) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        if len(calls) == 2:
            raise FileNotFoundError(errno.ENOENT, "a file of it was deleted by another")
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", racing)
    delete(source)
    assert len(calls) == 3
    assert list(source.parent.iterdir()) == []


def test_a_deletion_that_fails_says_so(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", denied)
    with pytest.raises(RuntimeFault, match="Permission denied"):
        delete(source)
