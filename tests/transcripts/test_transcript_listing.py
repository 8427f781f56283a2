"""The list of stored sessions (LST-1 to LST-4), with the CLI's own SDK as an oracle."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sayagain.errors import InvalidParams
from sayagain.testing.transcripts import (
    dump,
    folded_prompt_row,
    prompt_row,
    transcript_path,
    turn_rows,
    write_rows,
    write_transcript,
)
from sayagain_claude.transcripts import listing
from sayagain_claude.transcripts.listing import list_sessions, session_title
from sayagain_claude.transcripts.reader import parse_line


def session_id(number: int) -> str:
    return f"11111111-2222-4333-8444-{number:012d}"


def store(config: Path, number: int, rows: list[dict[str, Any]] | None = None, cwd: str = "/project") -> Path:
    sid = session_id(number)
    rows = turn_rows(sid, 0, cwd=cwd) if rows is None else rows
    path = write_rows(transcript_path(config, cwd, sid), rows)
    os.utime(path, (1_000_000 + number, 1_000_000 + number))
    return path


def prompt(text: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    return prompt_row(text, session_id=session_id(number), message_id=session_id(999), **fields)


def ids(config: Path, **arguments: Any) -> list[str]:
    return [session.session_id for session in list_sessions(config, **arguments).sessions]


def title_of(config: Path, rows: list[dict[str, Any]]) -> str | None:
    store(config, 1, rows)
    (session,) = list_sessions(config).sessions
    return session.title


def test_nothing_stored_is_an_empty_page(tmp_path: Path) -> None:
    page = list_sessions(tmp_path)
    assert (list(page.sessions), page.next_cursor) == ([], None)


def test_newest_first_with_cwd_title_and_time(tmp_path: Path) -> None:
    for number in (1, 3, 2):
        store(tmp_path, number, cwd=f"/project/{number}")
    page = list_sessions(tmp_path)
    assert [session.session_id for session in page.sessions] == [session_id(number) for number in (3, 2, 1)]
    first = page.sessions[0]
    assert first.cwd == "/project/3"
    assert first.title is not None
    assert first.title.startswith("Prompt 0 The quick")
    assert first.updated_at == "1970-01-12T13:46:43.000Z"
    assert datetime.fromisoformat(first.updated_at).tzinfo == UTC


def test_pages_cover_everything_once_while_sessions_are_added(tmp_path: Path) -> None:
    for number in range(10):
        store(tmp_path, number)
    seen: list[str] = []
    cursor: str | None = ""
    added = 100
    while cursor is not None:
        page = list_sessions(tmp_path, cursor=cursor, limit=3)
        seen += [session.session_id for session in page.sessions]
        cursor = page.next_cursor
        store(tmp_path, added)
        added += 1
    assert seen == [session_id(number) for number in reversed(range(10))]


def test_sessions_of_one_moment_are_paged_by_id(tmp_path: Path) -> None:
    for number in range(5):
        os.utime(store(tmp_path, number), (1000, 1000))
    first = list_sessions(tmp_path, limit=2)
    second = list_sessions(tmp_path, limit=3, cursor=first.next_cursor)
    assert len({session.session_id for page in (first, second) for session in page.sessions}) == 5
    assert second.next_cursor is None


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "not base64!",
        "é",
        "\ud83d",
        "a" * 100_000,
        base64.urlsafe_b64encode(b"12.34").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        base64.urlsafe_b64encode(b"9" * 50 + b"." + session_id(1).encode()).decode(),
        base64.urlsafe_b64encode(b"1." + session_id(1).encode() + b"\n").decode(),
    ],
)
def test_a_cursor_that_is_none_of_ours(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        list_sessions(tmp_path, cursor=cursor)
    assert caught.value.field == "cursor"


def test_the_cwd_filter_is_exact(tmp_path: Path) -> None:
    store(tmp_path, 1, cwd="/project")
    store(tmp_path, 2, cwd="/project/sub")
    store(tmp_path, 3, cwd="/project-sub")  # the same folder as number 2
    assert ids(tmp_path, cwd="/project") == [session_id(1)]
    assert ids(tmp_path, cwd="/project/sub") == [session_id(2)]
    assert ids(tmp_path, cwd="/nowhere") == []


def test_a_page_of_one_cwd_knows_its_end(tmp_path: Path) -> None:
    for number in range(4):
        store(tmp_path, number, cwd="/project/sub" if number % 2 else "/project-sub")
    first = list_sessions(tmp_path, cwd="/project/sub", limit=1)
    second = list_sessions(tmp_path, cwd="/project/sub", limit=1, cursor=first.next_cursor)
    assert [page.sessions[0].session_id for page in (first, second)] == [session_id(3), session_id(1)]
    assert second.next_cursor is None


def test_a_linked_cwd_and_a_linked_project_folder(tmp_path: Path) -> None:
    # anthropics/claude-code#66241
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    path = store(tmp_path / "moved", 1, cwd=str(real))
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / path.parent.name).symlink_to(path.parent)
    assert ids(tmp_path, cwd=str(real)) == ids(tmp_path, cwd=str(link)) == [session_id(1)]


def test_a_very_long_cwd(tmp_path: Path) -> None:
    cwd = "/" + "x" * 300
    path = store(tmp_path / "as made", 1, cwd="/short")
    write_rows(path, turn_rows(session_id(1), 0, cwd=cwd))
    folder = tmp_path / "projects" / ("-" + "x" * 199 + "-1a2b3c")
    folder.mkdir(parents=True)
    path.rename(folder / path.name)
    assert ids(tmp_path, cwd=cwd) == [session_id(1)]


def test_what_is_no_session_with_a_prompt_is_not_listed(tmp_path: Path) -> None:
    sid = session_id(1)
    path = store(tmp_path, 1, [{"type": "queue-operation", "operation": "enqueue", "content": "x", "sessionId": sid}])
    store(tmp_path, 2, [])
    store(tmp_path, 3, [prompt("child", isSidechain=True)])
    store(tmp_path, 4, [prompt("continue", isMeta=True), turn_rows(sid, 0)[1]])
    write_transcript(path.with_suffix("") / "subagents" / "agent-a.jsonl", turns=1, session_id=sid)
    write_transcript(path.with_name("agent-b.jsonl"), turns=1, session_id=sid)
    write_transcript(path.with_name(f"{sid}.jsonl.tmp"), turns=1, session_id=sid)
    path.with_name(f"{session_id(5)}.jsonl").mkdir()
    os.mkfifo(path.with_name(f"{session_id(6)}.jsonl"))
    path.with_name(f"{session_id(7)}.jsonl").symlink_to("nowhere")
    path.with_name(f"{session_id(8)}.jsonl").write_bytes(bytes(1000))
    assert ids(tmp_path) == []


def test_a_session_in_two_folders_is_listed_once(tmp_path: Path) -> None:
    store(tmp_path, 1, cwd="/old")
    write_rows(transcript_path(tmp_path, "/new", session_id(1)), turn_rows(session_id(1), 0, cwd="/new"))
    (session,) = list_sessions(tmp_path).sessions
    assert session.cwd == "/new"


def test_damage_hides_no_session(tmp_path: Path) -> None:
    good = [dump(row) for turn in range(2) for row in turn_rows(session_id(1), turn)]
    path = store(tmp_path, 1)
    for content in (
        b'{"torn' + b"\n".join(good),
        b"\xef\xbb\xbf" + b"\r\n".join(good),
        bytes(300) + b"\n".join(good) + bytes(100_000),
        b"\n".join([good[0][:100] + good[4], *good[5:]]),
    ):
        path.write_bytes(content)
        assert ids(tmp_path) == [session_id(1)]


def test_a_first_prompt_larger_than_the_probe(tmp_path: Path) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 300_000}}
    row = prompt("x")
    row["message"]["content"] = [{"type": "text", "text": "What is this?"}, picture]
    assert title_of(tmp_path, [row, *turn_rows(session_id(1), 1)]) == "What is this?"


def test_titles(tmp_path: Path) -> None:
    custom = [{"type": "custom-title", "customTitle": name, "sessionId": session_id(1)} for name in ("Old", "New")]
    made = {"type": "ai-title", "aiTitle": "Made", "sessionId": session_id(1)}
    summary = {"type": "summary", "summary": "Sum", "leafUuid": "x"}
    many = [row for turn in range(100) for row in turn_rows(session_id(1), turn)]
    assert title_of(tmp_path, [prompt("First"), *many, custom[0], custom[1], made, summary]) == "New"
    assert title_of(tmp_path, [custom[0], prompt("First"), *many, made]) == "Old"
    assert title_of(tmp_path, [prompt("First"), made, *many]) == "Made"
    assert title_of(tmp_path, [summary, prompt("First")]) == "Sum"
    assert title_of(tmp_path, [prompt("First"), prompt("Second")]) == "First"
    assert title_of(tmp_path, [prompt('{"type":"custom-title","customTitle":"Quoted"}')]) != "Quoted"
    assert title_of(tmp_path, [folded_prompt_row("Folded", session_id=session_id(1), message_id="x")]) == "Folded"
    assert title_of(tmp_path, [prompt("")]) is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  one\n\ttwo\r\n three ", "one two three"),
        ("\x1b[31mred\x1b[0m \u202eleft\u2028line\0", "[31mred [0m left line"),
        ("half \ud83d of it", "half of it"),
        ("<system-reminder>secret\nlines</system-reminder>\nHello", "Hello"),
        ("<ide_opened_file>a.py</ide_opened_file>Fix it", "Fix it"),
        (
            "<command-name>/usage</command-name>\n <command-message>usage</command-message>\n"
            "<command-args>now</command-args>",
            "/usage now",
        ),
        ("a <b>bold</b> claim", "a <b>bold</b> claim"),
        ("x" * 1_000_000, "x" * 119 + "…"),
        ("", None),
        (" \n ", None),
    ],
)
def test_a_title_is_one_clean_line(text: str, title: str | None) -> None:
    assert session_title(text) == title


def test_the_sdk_lists_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = pytest.importorskip("claude_agent_sdk")
    for number in range(20):
        rows = [
            row for turn in range(number * 5 + 1) for row in turn_rows(session_id(number), turn, cwd=f"/p/{number}")
        ]
        if number % 3 == 0:
            rows.append({"type": "custom-title", "customTitle": f"Title {number}", "sessionId": session_id(number)})
        store(tmp_path, number, rows, cwd=f"/p/{number}")
    store(tmp_path, 50, [{"type": "queue-operation", "operation": "enqueue", "sessionId": session_id(50)}])
    store(tmp_path, 51, [prompt("child", 51, isSidechain=True)])
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    theirs = oracle.list_sessions()
    ours = list_sessions(tmp_path).sessions
    assert [(one.session_id, one.cwd) for one in ours] == [(one.session_id, one.cwd) for one in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        expected = other.custom_title or other.first_prompt
        assert mine.title is not None
        assert expected is not None
        assert mine.title.rstrip("…") in " ".join(expected.split())


def test_a_list_reads_little_of_each_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Thousands of sessions are listed in one go: what is parsed of each must not grow with it.
    for number in range(1, 21):
        sid = session_id(number)
        rows = [row for turn in range(30) for row in turn_rows(sid, turn, cwd="/project")]
        store(tmp_path, number, [*rows, {"type": "ai-title", "aiTitle": f"Title {number}", "sessionId": sid}])
    parsed: list[bytes] = []

    def parse(line: bytes, offset: int = 0) -> list[Any]:
        parsed.append(line)
        return parse_line(line, offset)

    monkeypatch.setattr(listing, "parse_line", parse)
    page = list_sessions(tmp_path)
    assert [session.title for session in page.sessions] == [f"Title {number}" for number in range(20, 0, -1)]
    assert len(parsed) <= 3 * 20
