"""Ids of stored messages: the same ones in the same damaged places as the reader finds, and no quoted ones (KEY-3)."""

from __future__ import annotations

import copy
import json
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sayagain.errors import HistoryUnreadable, SayagainError, SessionNotFound
from sayagain.runtime.history import UserTurn
from sayagain.testing.transcripts import (
    dump,
    folded_prompt_row,
    prompt_id,
    prompt_row,
    turn_rows,
    write_rows,
    write_transcript,
)
from sayagain_claude.history import history
from sayagain_claude.transcripts import lines
from sayagain_claude.transcripts.ids import contains, message_ids
from sayagain_claude.transcripts.lost import LostMessages
from sayagain_claude.transcripts.reader import Damaged, read_rows
from sayagain_claude.transcripts.row import row_message_ids

SESSION = "11111111-2222-4333-8444-555555555555"
IDS = [str(uuid.uuid5(uuid.UUID(SESSION), f"key {n}")) for n in range(8)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{SESSION}.jsonl"


def ids_of_rows(path: Path) -> set[str]:
    """What the reader's rows say, and nothing that is left out unparsed."""
    lost = LostMessages()
    read = [item for item in read_rows(path) if not isinstance(item, Damaged)]
    for row in read:
        lost.row(row)
    return {message_id for row in read for message_id in row_message_ids(row)}.union(lost.ids())


def every_kind() -> list[dict[str, Any]]:
    """Rows that bear the ids in every place where the CLI puts one (claude-code facts, section 0)."""
    return [
        prompt_row("plain", session_id=SESSION, message_id=IDS[0]),
        prompt_row("b\nc", session_id=SESSION, message_id=IDS[2], mergedSendUuids=[IDS[1]]),
        folded_prompt_row("folded", session_id=SESSION, message_id=IDS[3]),
        {"type": "system", "subtype": "local_command", "content": "/status", "uuid": "u", "submitUuid": IDS[4]},
        prompt_row("sent as", session_id=SESSION, message_id=IDS[5], sentAsUuid=IDS[6]),
    ]


def test_an_id_counts_in_every_place_where_the_cli_puts_one(path: Path) -> None:
    write_rows(path, every_kind())
    assert message_ids(path) == set(IDS[:7])
    assert [contains(path, message_id) for message_id in IDS] == [True] * 7 + [False]


def test_the_id_to_replay_with_comes_first() -> None:
    assert [row_message_ids(row) for row in every_kind()] == [
        (IDS[0],),
        (IDS[2], IDS[1]),
        (IDS[3],),
        (IDS[4],),
        (IDS[5], IDS[6]),
    ]


def test_ids_elsewhere_do_not_count(path: Path) -> None:
    wanted = prompt_row("x", session_id=SESSION, message_id=IDS[0])
    quoted = dump(wanted).decode()
    result = turn_rows(SESSION, 0)[3]
    result["message"]["content"][0]["content"] = quoted
    result["toolUseResult"]["stdout"] = quoted
    tool = turn_rows(SESSION, 1)[2]
    tool["message"]["content"][0]["input"] = {"row": wanted, "uuid": IDS[0]}
    rows: list[dict[str, Any]] = [
        {"type": "queue-operation", "operation": "remove", "commandUuid": IDS[0], "sessionId": SESSION},
        {"type": "queue-operation", "operation": "enqueue", "content": quoted, "sessionId": SESSION},
        {"type": "last-prompt", "lastPrompt": quoted, "leafUuid": IDS[0], "sessionId": SESSION},
        {"type": "progress", "data": {"message": wanted}, "sessionId": SESSION},
        {"type": "assistant", "uuid": IDS[0], "parentUuid": None, "sessionId": SESSION},
        prompt_row(f"What is {quoted}?", session_id=SESSION, message_id=IDS[1]),
        result,
        tool,
    ]
    write_rows(path, rows)
    assert message_ids(path) == {IDS[1]}
    assert not contains(path, IDS[0])
    with path.open("ab") as file:
        file.write(dump(wanted))
    assert contains(path, IDS[0])


def test_a_quoted_id_does_not_count_in_torn_rows(path: Path) -> None:
    quoted = dump(prompt_row("x", session_id=SESSION, message_id=IDS[0])).decode()
    row = dump(prompt_row(quoted, session_id=SESSION, message_id=IDS[1]))
    for kept in range(1, len(row)):
        path.write_bytes(row[:kept] + b"\n" + row[:kept] + dump(every_kind()[2]) + b"\n")
        assert message_ids(path) == {IDS[3]}, kept


def test_a_prompt_glued_to_a_tool_result_counts(path: Path) -> None:
    # Lines that begin as a tool result are left out unparsed, but not when more follows on them.
    result = dump(turn_rows(SESSION, 0, filler=1)[3])
    for kept in range(1, len(result) + 1):
        for row, message_id in zip(every_kind(), (IDS[0], IDS[2], IDS[3], IDS[4], IDS[5]), strict=True):
            path.write_bytes(result[:kept] + dump({**row, "sessionId": SESSION}) + b"\n")
            assert message_id in message_ids(path), kept


RECORDINGS = sorted((Path(__file__).parents[2] / "fixtures").rglob("transcript.jsonl"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.parent.name)
def test_ids_and_rows_agree_on_recordings(recording: Path) -> None:
    assert message_ids(recording) == ids_of_rows(recording)


@pytest.mark.parametrize("glued", [True, False])
def test_a_torn_prompt_counts_when_a_later_row_names_it(path: Path, glued: bool) -> None:
    # anthropics/claude-code#52387
    rows = [dump(row) for turn in range(3) for row in turn_rows(SESSION, turn)]
    (at,) = (n for n, row in enumerate(rows) if prompt_id(SESSION, 1).encode() in row and b'"promptSource"' in row)
    rows[at] = rows[at][:-30]
    path.write_bytes(b"".join(row + (b"" if glued and n == at else b"\n") for n, row in enumerate(rows)))
    assert message_ids(path) == {prompt_id(SESSION, turn) for turn in range(3)} == ids_of_rows(path)
    assert contains(path, prompt_id(SESSION, 1))
    turns = [entry for batch in history(path, SESSION, live=False) for entry in batch if isinstance(entry, UserTurn)]
    assert {message_id for turn in turns for message_id in turn.message_ids} == message_ids(path)
    assert [turn.update is None for turn in turns] == [False, False, True]


def test_a_prompt_that_was_cut_with_nothing_behind_it_stays_unknown(path: Path) -> None:
    path.write_bytes(dump(turn_rows(SESSION, 0)[0])[:-30])
    assert message_ids(path) == set()
    assert not contains(path, prompt_id(SESSION, 0))


def test_sidechain_and_foreign_rows_count(path: Path) -> None:
    # siteboon/claudecodeui#1022: what came before a resume may bear another session id.
    foreign = prompt_row("x", session_id="99999999-2222-4333-8444-555555555555", message_id=IDS[0])
    sidechain = prompt_row("x", session_id=SESSION, message_id=IDS[1], isSidechain=True)
    write_rows(path, [foreign, sidechain])
    assert message_ids(path) == {IDS[0], IDS[1]}


def test_a_session_id_used_again_has_none_of_the_old_keys(path: Path) -> None:
    # anthropics/claude-code#95981
    write_rows(path, every_kind())
    path.unlink()
    write_rows(path, turn_rows(SESSION, 0))
    assert message_ids(path) == {prompt_id(SESSION, 0)}
    assert not contains(path, IDS[0])


def test_ids_before_compactions_count(path: Path) -> None:
    # arcboxlabs/linkcode#76
    boundary = {"type": "system", "subtype": "compact_boundary", "parentUuid": None, "sessionId": SESSION, "uuid": "b"}
    rows: list[dict[str, Any]] = [
        prompt_row("one", session_id=SESSION, message_id=IDS[0]),
        boundary,
        prompt_row("two", session_id=SESSION, message_id=IDS[1]),
        boundary,
        prompt_row("three", session_id=SESSION, message_id=IDS[2]),
    ]
    write_rows(path, rows)
    assert set(IDS[:3]) <= message_ids(path)


def test_values_that_are_no_strings_are_no_ids(path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"type": "user", "uuid": 12, "mergedSendUuids": [None, 1, ["x"], IDS[0]], "sentAsUuid": {}},
        {"type": "user", "uuid": None, "mergedSendUuids": "abc", "message": "x"},
        {"type": "attachment", "attachment": [IDS[1]]},
        {"type": "attachment", "attachment": {"source_uuid": 1}},
        {"type": ["user"], "uuid": IDS[1]},
        {"type": "user", "uuid": ""},
    ]
    write_rows(path, rows)
    assert message_ids(path) == {IDS[0]}


@pytest.mark.parametrize("message_id", ["", '"', "\ud83d", "a\nb", "(", "user"])
def test_odd_ids_are_just_not_there(path: Path, message_id: str) -> None:
    write_rows(path, every_kind())
    assert not contains(path, message_id)


def test_errors_are_those_of_the_reader(path: Path, tmp_path: Path) -> None:
    for function in (message_ids, lambda where: contains(where, IDS[0])):
        with pytest.raises(SessionNotFound):
            function(path)
        with pytest.raises(HistoryUnreadable):
            function(tmp_path)


def test_memory_holds_the_ids_and_little_else(path: Path) -> None:
    turns = 2000
    write_transcript(path, turns=turns, session_id=SESSION)
    tracemalloc.start()
    try:
        ids = message_ids(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ids == {prompt_id(SESSION, turn) for turn in range(turns)}
    assert peak < turns * 300 + (1 << 20)


# Generated rows and damage ---------------------------------------------------------------------------------------

texts = st.text(max_size=12) | st.sampled_from(["{", '{"', "\\", '"', "\n", "\0", '{"type":"user"', *IDS])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    row: dict[str, Any] = copy.deepcopy(draw(st.sampled_from([*every_kind(), *turn_rows(SESSION, 0, filler=1)])))
    if draw(st.booleans()):
        row[draw(st.sampled_from(["extra", "message", "toolUseResult", "attachment", "uuid", "type"]))] = draw(
            json_values
        )
    if draw(st.booleans()):
        row["note"] = json.dumps(draw(st.sampled_from(every_kind())))
    return row


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A file, and the lines of it that nothing happened to."""
    good = [dump(row) for row in draw(st.lists(rows(), min_size=1, max_size=8))]
    parts: list[bytes] = []
    untouched: list[bytes] = []
    for line in good:
        damage = draw(st.sampled_from(["none", "none", "truncate", "glue", "nuls", "nul line", "crlf", "flip", "bom"]))
        end = b"\n"
        if damage == "truncate":
            line = line[: draw(st.integers(0, len(line) - 1))]
        elif damage == "glue":
            line, end = line[: draw(st.integers(0, len(line) - 1))], b""
        elif damage == "flip":
            at = draw(st.integers(0, len(line) - 1))
            # Not into a newline or NUL: these cut the line, and its halves are not what this list promises.
            line = line[:at] + bytes([draw(st.integers(1, 255).filter(lambda byte: byte != 10))]) + line[at + 1 :]
        else:
            untouched.append(line)
            line = {
                "nuls": bytes(draw(st.integers(1, 300))) + line,
                "nul line": bytes(300) + b"\n" + line,
                "bom": b"\xef\xbb\xbf" + line if not parts or parts[-1].endswith(b"\n") else line,
            }.get(damage, line)
            end = b"\r\n" if damage == "crlf" else end
        parts.append(line + end)
    return b"".join(parts) + draw(st.sampled_from([b"", bytes(1000)])), untouched


def without_session(line: bytes) -> bool:
    row = json.loads(line)
    return not (isinstance(row.get("sessionId"), str) and isinstance(row.get("type"), str))


@given(damaged_files(), st.sampled_from([64, 1000, 1 << 16]))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_and_rows_agree_on_damaged_files(
    path: Path, monkeypatch: pytest.MonkeyPatch, damaged: tuple[bytes, list[bytes]], block_size: int
) -> None:
    content, untouched = damaged
    monkeypatch.setattr(lines, "BLOCK_SIZE", block_size)
    path.write_bytes(content)
    read = [item for item in read_rows(path) if not isinstance(item, Damaged)]
    ids = ids_of_rows(path)
    assert message_ids(path) == ids
    for message_id in (*IDS, *ids):
        if message_id.isascii() and message_id.isprintable() and not {'"', "\\"} & set(message_id):
            assert contains(path, message_id) == (message_id in ids)
    found = [dump(row) for row in read]
    for line in untouched:
        # A row without these fields is not told from an object within a torn row, when it is glued to one.
        if not without_session(line):
            assert line in found


@given(st.binary(max_size=400), st.integers(0, 400))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_rows_or_damage_and_no_other_error(path: Path, content: bytes, at: int) -> None:
    base = b"\n".join(dump(row) for row in every_kind())
    path.write_bytes(base[:at] + content + base[at:])
    try:
        list(read_rows(path))
        ids = message_ids(path)
    except SayagainError as error:
        pytest.fail(f"{error} is for files that cannot be read")
    assert ids == ids_of_rows(path)
