"""Reading rows from files as crashes, disks and other writers leave them (faults: Disk, Claude Code transcripts)."""

from __future__ import annotations

import errno
import json
import os
import stat
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sayagain.errors import HistoryUnreadable, SessionNotFound
from sayagain.testing.transcripts import dump, glue, prompt_id, prompt_row, turn_rows, write_rows, write_transcript
from sayagain_claude.transcripts import lines, reader
from sayagain_claude.transcripts.reader import Damaged, read_rows

SESSION = "11111111-2222-4333-8444-555555555555"


def rows_and_damage(path: Path, end: int | None = None) -> tuple[list[Mapping[str, Any]], list[Damaged]]:
    items = list(read_rows(path, end=end))
    damage = [item for item in items if isinstance(item, Damaged)]
    return [item for item in items if not isinstance(item, Damaged)], damage


def some_lines(turns: int = 3) -> list[bytes]:
    return [dump(row) for turn in range(turns) for row in turn_rows(SESSION, turn, filler=200)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{SESSION}.jsonl"


def test_rows_come_in_file_order(path: Path) -> None:
    write_transcript(path, turns=50, session_id=SESSION)
    rows, damage = rows_and_damage(path)
    assert [row["uuid"] for row in rows[::4]] == [prompt_id(SESSION, turn) for turn in range(50)]
    assert len(rows) == 200
    assert damage == []


def test_an_empty_file_has_no_rows(path: Path) -> None:
    path.write_bytes(b"")
    assert list(read_rows(path)) == []


def test_blank_lines_are_nothing(path: Path) -> None:
    path.write_bytes(b"\n\r\n  \n" + some_lines(1)[0] + b"\n\n")
    assert [len(part) for part in rows_and_damage(path)] == [1, 0]


@pytest.mark.parametrize("kept", [1, 2, 17, 60, 150, 300, -1, -2, -40])
def test_a_row_glued_to_a_torn_one_is_recovered(path: Path, kept: int) -> None:
    # anthropics/claude-code#52387
    good = some_lines()
    path.write_bytes(b"\n".join([*good[:3], glue(good[4], kept, good[8]), *good[9:]]) + b"\n")
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == [*good[:3], *good[8:]]
    assert [item.offset for item in damage] == [sum(len(line) + 1 for line in good[:3])]


def test_every_place_of_a_tear_leaves_the_next_row(path: Path) -> None:
    first, second = (dump(row) for row in (turn_rows(SESSION, 1, filler=1)[3], turn_rows(SESSION, 2, filler=1)[0]))
    for kept in range(1, len(first)):
        items = reader.parse_line(glue(first, kept, second))
        assert [dump(item) for item in items if not isinstance(item, Damaged)] == [second], kept
        assert len(items) == 2


def test_whole_rows_on_one_line_are_all_read(path: Path) -> None:
    good = some_lines(1)
    path.write_bytes(b"".join(good[:3]) + b"\n" + good[3])
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == good
    assert damage == []


def test_an_object_within_a_torn_row_is_no_row(path: Path) -> None:
    quoted = turn_rows(SESSION, 7, filler=1)[0]
    for torn in (
        dump({"type": "assistant", "sessionId": SESSION, "input": {"row": quoted}, "more": 1})[:-10],
        dump({"type": "progress", "data": {"message": {"type": "user", "uuid": "x"}}})[:-2],
        dump({"type": "user", "sessionId": SESSION, "message": {"content": dump(quoted).decode()}})[:-5],
    ):
        path.write_bytes(torn + b"\n")
        assert [len(part) for part in rows_and_damage(path)] == [0, 1]


def test_runs_of_nul_bytes(path: Path) -> None:
    # anthropics/claude-code#49876, #76059
    good = some_lines()
    nuls = bytes(300)
    path.write_bytes(
        b"\n".join([*good[:2], nuls, nuls + good[2], good[3] + nuls + good[4], *good[5:]]) + b"\n" + bytes(100_000)
    )
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == good
    assert [item.size for item in damage] == [300, 300, 300, 100_000]
    assert {item.reason for item in damage} == {"NUL bytes"}


def test_bad_lines_do_not_end_the_reading(path: Path) -> None:
    # anthropics/claude-code#50347
    good = some_lines(6)
    path.write_bytes(b"\n".join([*good[:8], b'{"type":"us', *good[8:16], b"\xff\xfe garbage", *good[16:]]) + b"\n")
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == good
    assert len(damage) == 2


def test_a_cut_tail_is_one_damage_and_costs_no_other_row(path: Path) -> None:
    # anthropics/claude-code#53821
    good = some_lines()
    path.write_bytes((b"\n".join(good) + b"\n")[:-40])
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == good[:-1]
    assert len(damage) == 1


def test_a_last_row_without_its_newline_counts(path: Path) -> None:
    good = some_lines()
    path.write_bytes(b"\n".join(good))
    assert [len(part) for part in rows_and_damage(path)] == [len(good), 0]


def test_a_row_that_is_being_written_is_no_damage(path: Path) -> None:
    good = some_lines()
    whole = b"\n".join(good) + b"\n"
    path.write_bytes(whole)
    rows, damage = rows_and_damage(path, end=len(whole) - 40)
    assert [dump(row) for row in rows] == good[:-1]
    assert damage == []


def test_rows_written_meanwhile_are_not_read(path: Path) -> None:
    good = some_lines()
    path.write_bytes(b"\n".join(good) + b"\n")
    stream = read_rows(path)
    next(stream)
    with path.open("ab") as file:
        file.write(good[0] + b"\n")
    assert len(list(stream)) == len(good) - 1


def test_byte_order_mark_and_carriage_returns(path: Path) -> None:
    good = some_lines()
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(good) + b"\r\n")
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == good
    assert damage == []


def test_a_stray_byte_leaves_a_user_row_readable(path: Path) -> None:
    row = dump(prompt_row("before after", session_id=SESSION, message_id=prompt_id(SESSION, 0)))
    path.write_bytes(
        row.replace(b"before after", b"before\xffafter") + b"\n" + row.replace(b"before ", b"be\x01re ") + b"\n"
    )
    rows, damage = rows_and_damage(path)
    assert [row["message"]["content"] for row in rows] == ["before\ufffdafter", "be\x01re after"]
    assert {row["uuid"] for row in rows} == {prompt_id(SESSION, 0)}
    assert damage == []


def test_lone_surrogates_survive(path: Path) -> None:
    # anthropics/claude-code#56064, #68325
    prompt = prompt_row("half \ud83d of it", session_id=SESSION, message_id=prompt_id(SESSION, 0))
    tool = turn_rows(SESSION, 0)[2]
    tool["message"]["content"][0]["input"] = {"command": "\udc00"}
    write_rows(path, [prompt, tool])
    rows, damage = rows_and_damage(path)
    assert rows == [prompt, tool]
    assert damage == []


@pytest.mark.parametrize("line", [b"123", b'"text"', b"[]", b"null", b"true", b"{}", b"[1,", b"}", b"NaN"])
def test_json_that_is_no_object_is_damage(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n" + some_lines(1)[0] + b"\n")
    assert [len(part) for part in rows_and_damage(path)] == [1, 1]


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"type":"user","sessionId":"s","a":'])
def test_deep_nesting_is_damage(path: Path, opening: bytes) -> None:
    good = some_lines(1)[0]
    path.write_bytes(opening * 100_000 + b"\n" + good + b"\n")
    assert [len(part) for part in rows_and_damage(path)] == [1, 1]


def test_numbers_beyond_all_limits_are_damage_or_rows(path: Path) -> None:
    path.write_bytes(b'{"type":"x","n":' + b"9" * 10_000 + b'}\n{"type":"x","n":1e999}\n{"type":"x","type":"y"}\n')
    rows, _damage = rows_and_damage(path)
    assert rows[-1] == {"type": "y"}


def test_many_objects_in_a_torn_line_cost_linear_time(path: Path) -> None:
    # Each of them parses to the end of the line: without a bound, seconds become hours.
    hostile = b'{"a":[' * 40_000 + b'"sessionId"'
    path.write_bytes(hostile + b"\n")
    calls = 0
    decode = reader._decode

    def counting(text: str, position: int) -> Any:
        nonlocal calls
        calls += 1
        return decode(text, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_decode", counting)
        assert [len(part) for part in rows_and_damage(path)] == [0, 1]
    assert calls <= reader._EFFORT * len(hostile) / reader._DEEP_EFFORT + 2


def test_a_line_over_the_limit_is_skipped_in_constant_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_LIMIT", 1 << 20)
    good = some_lines(1)
    size = 20 << 20
    with path.open("wb") as file:
        file.write(good[0] + b"\n")
        file.write(b'{"type":"user","text":"')
        for _ in range(size >> 16):
            file.write(b"x" * (1 << 16))
        file.write(b'"}\n' + good[1] + b"\n")
    tracemalloc.start()
    try:
        rows, damage = rows_and_damage(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [dump(row) for row in rows] == good[:2]
    assert [(item.offset, item.size) for item in damage] == [(len(good[0]) + 1, size + 25)]
    assert peak < 4 << 20


def test_a_line_over_the_limit_at_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_LIMIT", 1 << 20)
    path.write_bytes(b"x" * (3 << 20))
    assert rows_and_damage(path)[1][0].size == 3 << 20


def test_a_row_behind_nul_bytes_over_the_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_LIMIT", 1 << 20)
    good = some_lines(1)
    path.write_bytes(good[0] + b"\n" + bytes(3 << 20) + good[1] + b"\n")
    rows, damage = rows_and_damage(path)
    assert [dump(row) for row in rows] == good[:2]
    assert sum(item.size for item in damage) == 3 << 20


def test_a_long_line_under_the_limit_is_a_row(path: Path) -> None:
    text = "long " * (1 << 20)
    write_rows(path, [prompt_row(text, session_id=SESSION, message_id=prompt_id(SESSION, 0)), *turn_rows(SESSION, 1)])
    rows, damage = rows_and_damage(path)
    assert rows[0]["message"]["content"] == text
    assert (len(rows), damage) == (5, [])


def test_a_missing_file_is_no_session(path: Path) -> None:
    with pytest.raises(SessionNotFound) as caught:
        list(read_rows(path))
    assert caught.value.session_id == SESSION


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_what_is_no_regular_file_is_unreadable_at_once(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(HistoryUnreadable, match="is no regular file"):
        list(read_rows(path))


def test_a_fifo_that_takes_the_files_place_never_blocks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"")
    before = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda _path: before)
    with pytest.raises(HistoryUnreadable, match="is no regular file"):
        list(read_rows(path))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_errors_of_the_disk_are_unreadable(path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write_transcript(path, turns=1, session_id=SESSION)

    def fail(*_args: object) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "open" if code == errno.EACCES else "read", fail)
    with pytest.raises(HistoryUnreadable, match=os.strerror(code)) as caught:
        list(read_rows(path))
    assert str(path.parent) not in str(caught.value)
    assert path.name in str(caught.value)


def test_no_permission_is_unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write_transcript(path, turns=1, session_id=SESSION)
    path.chmod(0)
    with pytest.raises(HistoryUnreadable, match="Permission denied"):
        list(read_rows(path))


@pytest.mark.parametrize("change", ["shorten", "replace", "delete"])
@pytest.mark.parametrize("moment", ["first", "last"])
def test_a_file_that_changes_meanwhile_is_unreadable(path: Path, change: str, moment: str) -> None:
    write_transcript(path, turns=100, session_id=SESSION)
    stream = read_rows(path)
    for _ in range(1 if moment == "first" else 400):
        next(stream)
    if change == "shorten":
        os.truncate(path, 1000)
    elif change == "replace":
        other = path.with_suffix(".other")
        other.write_bytes(path.read_bytes())
        other.replace(path)
    else:
        path.unlink()
    with pytest.raises(HistoryUnreadable):
        list(stream)


def test_a_file_shorter_than_it_was_is_unreadable(path: Path) -> None:
    write_transcript(path, turns=1, session_id=SESSION)
    with pytest.raises(HistoryUnreadable, match="shorter"):
        list(read_rows(path, end=path.stat().st_size + 1))


def test_an_abandoned_reading_closes_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_transcript(path, turns=10, session_id=SESSION)
    opened: list[int] = []
    closed: list[int] = []
    open_, close = os.open, os.close

    def opening(*args: Any) -> int:
        opened.append(open_(*args))
        return opened[-1]

    def closing(fd: int) -> None:
        closed.append(fd)
        close(fd)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    stream = read_rows(path)
    next(stream)
    assert (len(opened), closed) == (1, [])
    stream.close()
    assert closed == opened


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    # anthropics/claude-code#22365
    def peak(turns: int) -> int:
        write_transcript(path, turns=turns, session_id=SESSION)
        tracemalloc.start()
        try:
            count = sum(1 for _ in read_rows(path))
            assert count == turns * 4
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is made once: caches
    assert peak(1500) < peak(150) + (64 << 10)


def test_odd_rows_are_rows_like_others(path: Path) -> None:
    # anthropics/claude-code#22526 (parents that were never written), #22178 (200 rows with one uuid), #20992 (shuffled,
    # a chain that goes back), #24457 (progress rows), siteboon/claudecodeui#1022 (two session ids)
    rows = [row for turn in range(3) for row in turn_rows(SESSION, turn, filler=1)]
    rows[4]["parentUuid"] = "99999999-2222-4333-8444-555555555555"
    hooks = [{"type": "system", "uuid": "same", "sessionId": SESSION, "parentUuid": rows[0]["uuid"]}] * 200
    progress = [
        {"type": "progress", "uuid": f"p{n}", "parentUuid": f"p{n - 1}", "sessionId": SESSION} for n in range(5000)
    ]
    foreign = [{**row, "sessionId": "99999999-2222-4333-8444-555555555556"} for row in turn_rows(SESSION, 9, filler=1)]
    everything = [*foreign, *reversed(rows), *hooks, *progress]
    write_rows(path, everything)
    assert rows_and_damage(path) == (everything, [])


def test_a_large_subagent_file_is_read(path: Path) -> None:
    # anthropics/claude-code#83261
    write_transcript(path, turns=900, session_id=SESSION)
    assert path.stat().st_size > 6 << 20
    assert len(rows_and_damage(path)[0]) == 3600


def test_the_generator_writes_rows_of_the_measured_size(path: Path) -> None:
    write_transcript(path, turns=100, session_id=SESSION)
    assert 1700 < path.stat().st_size / 400 < 2100
    assert stat.S_ISREG(path.stat().st_mode)
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [row["parentUuid"] for row in rows[1:]] == [row["uuid"] for row in rows[:-1]]
