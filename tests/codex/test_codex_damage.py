"""Damaged files of threads: nothing is stored twice, and a gap is told (design section 4)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.runtime.history import Unreadable, UserTurn
from sayagain.testing.responses_api import ResponsesService
from sayagain_codex import damage
from sayagain_codex.damage import DamagedRow, Gaps, damaged_rows
from sayagain_codex.history import history, message_ids
from sayagain_codex.projection import DATABASE
from sayagain_codex.rollouts import newest
from support_codex import AgentProcess, AllListed, agent_process, raw_codex, rollout, stored_ids
from support_wire import entities

THREAD = "01a22e60-6a00-7242-a675-e5e8ea11c114"
REVISION = "01a22e60-7000-7000-8000-000000000000"
NOTICE = "Parts of this session's history could not be read"


def row(kind: str, payload: dict[str, Any]) -> bytes:
    whole = {"timestamp": "2026-11-30T21:33:20.000Z", "ordinal": 1, "type": kind, "payload": payload}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


def item(turn: str, item: dict[str, Any]) -> bytes:
    return row("event_msg", {"type": "item_completed", "thread_id": THREAD, "turn_id": turn, "item": item})


def user(number: int) -> bytes:
    content = [{"type": "text", "text": f"prompt {number}"}]
    return item(
        f"t{number}", {"type": "UserMessage", "id": f"u{number}", "client_id": f"c{number}", "content": content}
    )


def agent_said(number: int) -> bytes:
    return item(f"t{number}", {"type": "AgentMessage", "id": f"a{number}", "content": []})


ENDED = row("event_msg", {"type": "task_complete", "turn_id": "t1"})
SEEN = row("response_item", {"type": "message", "id": "m1", "content": []})


def damaged(*ids: str, stored: tuple[str, ...] = ()) -> DamagedRow:
    return DamagedRow(frozenset(ids), frozenset(stored))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / f"rollout-2026-11-30T21-33-20-{THREAD}.jsonl"


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([user(1), agent_said(1), ENDED, b"\n"], []),
        ([b"\0" * 300 + user(1), agent_said(1)], [damaged("u1", "c1", stored=("c1",))]),
        ([b"{" + user(1), ENDED], [damaged("u1", "c1", stored=("c1",))]),
        ([user(1).replace(b"prompt", b"\\ud83d"), ENDED], [damaged("u1", "c1", stored=("c1",))]),
        ([user(1).replace(b"prompt", b"\xff"), ENDED], [damaged("u1", "c1", stored=("c1",))]),
        ([user(1)[:-30] + agent_said(1)], [damaged("u1", "c1", "a1", stored=("c1",))]),
        # The turn did not go on: it was torn as it was written.
        ([user(1)[:-30] + b"\n", user(2)], [damaged("u1", "c1")]),
        ([agent_said(1)[:-10] + b"\n"], [damaged("a1")]),
        ([b"{garbage\n", b'{"timestamp":"2026-11-30T21:33:20.000Z","ord\n'], [damaged(), damaged()]),
        # Nothing is listed of these.
        ([SEEN[:-10] + b"\n", ENDED[:-10] + b"\n"], []),
        ([SEEN[:-10] + user(1), ENDED], [damaged("m1", "u1", "c1", stored=("c1",))]),
        ([SEEN, user(1)[:-30]], []),
    ],
)
async def test_what_a_damaged_row_says(file: Path, rows: list[bytes], found: list[DamagedRow]) -> None:
    file.write_bytes(b"".join(rows))
    assert list(await damaged_rows(file)) == found


async def test_a_last_row_without_an_end_may_still_be_written(file: Path) -> None:
    file.write_bytes(user(1)[:-30])
    assert list(await damaged_rows(file)) == []
    assert list(await damaged_rows(file, tail=True)) == [damaged("u1", "c1")]


async def test_only_what_is_before_the_end_counts(file: Path) -> None:
    first, second = b"{" + user(1), b"{" + user(2)
    file.write_bytes(first + ENDED + second + ENDED)
    both = [damaged("u1", "c1", stored=("c1",)), damaged("u2", "c2")]
    end = len(first + ENDED + second)
    assert [len(await damaged_rows(file, end=where)) for where in (end, end - 1, 0)] == [2, 1, 0]
    assert list(await damaged_rows(file, end=end)) == both


async def test_what_is_no_file_of_rows_has_none(file: Path) -> None:
    assert list(await damaged_rows(file)) == []
    packed = file.with_suffix(".jsonl.zst")
    packed.write_bytes(b"\x28\xb5\x2f\xfd\n")
    assert list(await damaged_rows(packed)) == []


@pytest.mark.parametrize("what", ["a FIFO", "a device without an end", "a folder"])
async def test_what_is_no_file_is_not_read(file: Path, what: str) -> None:
    if what == "a FIFO":
        os.mkfifo(file)
    elif what == "a folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    with anyio.fail_after(10):
        assert list(await damaged_rows(file, tail=True)) == []


async def test_a_file_of_nothing_but_damage_is_told_in_little(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "MOST", 10)
    file.write_bytes(b"{\n" * 5000)
    assert len(await damaged_rows(file)) == 11


async def test_the_newest_file_is_the_one_of_the_last_revision(tmp_path: Path) -> None:
    assert newest(tmp_path, THREAD) is None
    first = tmp_path / "sessions/2026/11/30" / f"rollout-2026-11-30T21-33-20-{THREAD}.jsonl"
    first.parent.mkdir(parents=True)
    first.touch()
    assert newest(tmp_path, THREAD) == first
    later = first.with_name(f"{first.stem}_{REVISION}.jsonl")
    later.touch()
    assert newest(tmp_path, THREAD) == later


# What is listed nevertheless.


class Listed(AllListed):
    """An app-server that lists these items, and has these damaged rows."""

    def __init__(self, *items: dict[str, Any], rows: list[DamagedRow]) -> None:
        self._items = [{"turnId": "t", "item": item} for item in items]
        self._rows = rows

    async def request(self, method: str, *_: object, **__: object) -> Any:
        return {"data": self._items if method == "thread/items/list" else [], "nextCursor": None}

    async def damaged(self, thread: object) -> list[DamagedRow]:
        return self._rows


async def read(store: Listed) -> list[Any]:
    batches = history(store, {"id": THREAD}, THREAD, live=False)
    return [entry async for batch in batches for entry in batch]


SAID: dict[str, Any] = {"type": "agentMessage", "id": "a1", "text": "Done."}
ASKED: dict[str, Any] = {"type": "userMessage", "id": "u1", "clientId": "c1", "content": []}


@pytest.mark.parametrize(
    ("items", "rows", "ids", "gap"),
    [
        ([ASKED, SAID], [damaged("u1", "c1", "a1", stored=("c1",))], {"c1"}, None),
        ([SAID], [damaged("u1", "c1", stored=("c1",))], {"c1"}, "1 damaged entry"),
        ([SAID], [damaged("u1", "c1")], set[str](), "1 damaged entry"),
        ([ASKED, SAID], [damaged(), damaged("x"), damaged("a1")], {"c1"}, "2 damaged entries"),
    ],
)
async def test_what_is_missing_is_told_and_its_message_is_known(
    items: list[dict[str, Any]], rows: list[DamagedRow], ids: set[str], gap: str | None
) -> None:
    told = await read(Listed(*items, rows=rows))
    assert {message_id for turn in told if isinstance(turn, UserTurn) for message_id in turn.message_ids} == ids
    assert [entry.what for entry in told if isinstance(entry, Unreadable)] == ([gap] if gap else [])
    assert await message_ids(Listed(*items, rows=rows), THREAD, rows) == ids


def test_one_row_is_missing_or_not_as_a_whole() -> None:
    gaps = Gaps([damaged("u1", "a1", stored=("c1",)), damaged("u2", stored=("c2",))])
    gaps.saw({"type": "agentMessage", "id": "a1"})
    assert (gaps.count, gaps.message_ids) == (1, {"c2"})


def test_two_rows_may_be_about_one_item() -> None:
    gaps = Gaps([damaged("a1"), damaged("a1", "m1")])
    gaps.saw({"type": "agentMessage", "id": "a1"})
    assert gaps.count == 0


# On the real Codex.


def with_zeros(data: bytes, at: int) -> bytes:
    return data[:at] + b"\0" * 300 + data[at:] + b"\0" * 100_000


def with_a_letter(data: bytes, at: int) -> bytes:
    return data[:at] + b"{" + data[at:]


def without_an_end(data: bytes, at: int) -> bytes:
    end = data.index(b"\n", at)
    return data[: end - 30] + data[end + 1 :]


def with_half_a_character(data: bytes, at: int) -> bytes:
    return data[:at] + data[at:].replace(b"Second", b"Second\\ud83d", 1)


@pytest.mark.real
@pytest.mark.parametrize("spoil", [with_zeros, with_a_letter, without_an_end, with_half_a_character])
async def test_a_damaged_prompt_lands_once_when_the_list_is_made_anew(
    agent: AgentProcess,
    service: ResponsesService,
    env: dict[str, str],
    cwd: str,
    spoil: Callable[[bytes, int], bytes],
) -> None:
    """Codex skips what it cannot read, without a word (measured)."""
    session_id = await agent.wire.new(cwd)
    for number, content in enumerate(("First", "Second", "Third"), start=1):
        await agent.wire.prompt(session_id, content, key=content)
        await agent.wire.idle(session_id, number)
    second = stored_ids(env, session_id)[1]
    assert await agent.close() == 0
    path = rollout(env, session_id)
    data = path.read_bytes()
    path.write_bytes(spoil(data, data.rindex(b"\n", 0, data.index(second.encode())) + 1))
    for database in Path(env["CODEX_HOME"]).glob(f"{DATABASE}*"):
        database.unlink()
    async with agent_process(env) as again:
        await again.wire.initialize()
        await again.wire.resume(session_id, cwd, replay=True)
        told = again.wire.updates(session_id)
        assert "Second" not in entities(told).values()
        kinds = [update["sessionUpdate"] for update in told]
        (notice,) = (n for n, update in enumerate(told) if update.get("title") == NOTICE)
        assert kinds.index("replay_complete") < notice
        assert await again.wire.prompt(session_id, "Second", key="Second") == second
        fourth = await again.wire.prompt(session_id, "Fourth", key="Fourth")
        await again.wire.idle(session_id)
        assert await again.close() == 0
    assert service.count("Second") == 1
    async with agent_process(env) as last:
        await last.wire.initialize()
        await last.wire.resume(session_id, cwd)
        assert await last.wire.prompt(session_id, "Second", key="Second") == second
        assert await last.wire.prompt(session_id, "Fourth", key="Fourth") == fourth
        assert await last.close() == 0


@pytest.mark.real
async def test_a_row_that_another_process_is_about_to_write_is_not_damaged(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "First", key="1")
    await agent.wire.idle(session_id)
    assert await agent.close() == 0
    async with agent_process(env) as again:
        await again.wire.initialize()
        with raw_codex(env) as request:
            request("thread/resume", {"threadId": session_id, "excludeTurns": True})
            path = rollout(env, session_id)
            path.write_bytes(path.read_bytes() + user(1)[:-30])
            await again.wire.resume(session_id, cwd, replay=True)
        titles = [notice["title"] for notice in again.wire.updates(session_id, "notice")]
        assert "Another process works on this session" in titles
        assert NOTICE not in titles
        assert await again.close() == 0


@pytest.mark.real
async def test_a_damaged_prompt_in_a_file_that_a_revert_left(
    agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    for number, content in enumerate(("First", "Second", "Third"), start=1):
        await agent.wire.prompt(session_id, content, key=content)
        await agent.wire.idle(session_id, number)
    second = stored_ids(env, session_id)[1]
    assert await agent.close() == 0
    path = rollout(env, session_id)
    with raw_codex(env) as request:
        request("thread/resume", {"threadId": session_id, "excludeTurns": True})
        (last,) = request("thread/turns/list", {"threadId": session_id, "sortDirection": "desc", "limit": 1})["data"]
        request("thread/revert", {"threadId": session_id, "beforeTurnId": last["id"]})
    # Of the same length: where the next file goes on from is said in bytes.
    data = bytearray(path.read_bytes())
    data[data.rindex(b"\n", 0, data.index(second.encode())) + 1] = ord("x")
    path.write_bytes(data)
    for database in Path(env["CODEX_HOME"]).glob(f"{DATABASE}*"):
        database.unlink()
    async with agent_process(env) as again:
        await again.wire.initialize()
        await again.wire.resume(session_id, cwd, replay=True)
        told = again.wire.updates(session_id)
        assert list(entities(told).values()) == ["First", "Done.", "Done."]
        assert NOTICE in [update["title"] for update in told if update["sessionUpdate"] == "notice"]
        assert await again.wire.prompt(session_id, "Second", key="Second") == second
        assert await again.close() == 0
    assert service.count("Second") == 1
