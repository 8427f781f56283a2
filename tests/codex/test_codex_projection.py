"""What Codex lists is not always all that is stored: then there is no marker, and no key runs twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from sayagain.errors import HistoryUnreadable
from sayagain.runtime.events import Rejected
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.responses_api import ResponsesService
from sayagain_codex import projection as projection_module
from sayagain_codex import record as record_module
from sayagain_codex.projection import DATABASE, Projection
from sayagain_codex.record import BeginningMissing, Record
from sayagain_codex.rollouts import Part, parts
from sayagain_codex.runtime import CodexRuntime
from sayagain_codex.submission import Submission
from support_codex import AgentProcess, agent_process, codex_pids, idle, outcome, raw_codex, rollout, stored_ids
from support_wire import WireError, entities

TABLES = ("thread_items", "thread_turns", "thread_history_projection_state")


THREAD = "01a22e60-6a00-7242-a675-e5e8ea11c114"
REVISION = "01a22e60-7000-7000-8000-000000000000"


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """The folder of the day on which the ids were made."""
    folder = tmp_path / "sessions/2026/11/30"
    folder.mkdir(parents=True)
    return folder


def written(path: Path, *rows: bytes, base: tuple[str, int] | None = None) -> Path:
    payload = {"history_base": {"thread_id": base[0], "end_byte_offset": base[1]}} if base else {}
    meta = json.dumps({"type": "session_meta", "payload": payload}).encode() + b"\n"
    path.write_bytes(b"".join((meta, *rows)))
    return path


def test_what_a_thread_is_made_of(tmp_path: Path, rollouts: Path) -> None:
    other = "01a22e60-6b00-7242-a675-e5e8ea11c114"
    first = written(rollouts / f"rollout-2026-11-30T21-33-20-{other}.jsonl", b"{}\n" * 9)
    fork = written(rollouts / f"rollout-2026-11-30T21-33-21-{THREAD}.jsonl", base=(other, 40))
    last = written(rollouts / f"rollout-2026-12-01T00-00-00-{THREAD}_{REVISION}.jsonl", base=(THREAD, 50))
    assert parts(tmp_path, other, first) == [Part(other, first.stat().st_size)]
    assert parts(tmp_path, THREAD, fork) == [Part(THREAD, fork.stat().st_size), Part(other, 40)]
    size = last.stat().st_size
    assert parts(tmp_path, THREAD, last) == [Part(REVISION, size), Part(THREAD, 50), Part(other, 40)]
    # What is being written is none of it yet, however long it is.
    with last.open("ab") as file:
        file.write(b"{" + b" " * 200_000)
    assert parts(tmp_path, THREAD, last)[0] == Part(REVISION, size)
    # As far as files can be read.
    first.unlink()
    assert parts(tmp_path, THREAD, fork) == [Part(THREAD, fork.stat().st_size), Part(other, 40)]
    assert parts(tmp_path, other, first) == []
    assert parts(tmp_path, THREAD, fork.with_name("other.jsonl")) == []
    fork.write_bytes(b"nothing\n")
    assert parts(tmp_path, THREAD, fork) == []
    # A circle has an end.
    written(fork, base=(THREAD, 7))
    assert len(parts(tmp_path, THREAD, fork)) == 1


def listed(folder: Path, **offsets: object) -> Projection:
    projection = Projection(folder)
    with closing(sqlite3.connect(projection.path)) as connection, connection:
        connection.execute("CREATE TABLE thread_history_projection_state (thread_id, next_rollout_byte_offset)")
        connection.executemany("INSERT INTO thread_history_projection_state VALUES (?, ?)", offsets.items())
    return projection


def test_how_far_the_list_goes(tmp_path: Path) -> None:
    projection = listed(tmp_path, a=10, b=20, odd="odd", null=None)
    assert projection.lacks([Part("a", 10), Part("b", 19)]) is None
    assert projection.lacks([Part("a", 10), Part("b", 21), Part("c", 1)]) == Part("b", 21)
    assert projection.lacks([Part("unknown", 1)]) == Part("unknown", 1)
    assert [projection.goes_beyond(Part("a", end)) for end in (9, 10, 11)] == [True, False, False]
    assert not projection.goes_beyond(Part("unknown", 1))
    # Nobody can tell.
    for name in ("odd", "null"):
        assert projection.lacks([Part(name, 1)]) is None
        assert not projection.goes_beyond(Part(name, 1))


LISTED = b'{"type":"event_msg","payload":{"type":"item_completed","thread_id":"t","turn_id":"turn 1","item":{}}}\n'


async def test_what_the_thread_builds_on_may_be_missing(tmp_path: Path, rollouts: Path) -> None:
    other = "01a22e60-6b00-7242-a675-e5e8ea11c114"
    first = written(rollouts / f"rollout-2026-11-30T21-33-20-{other}.jsonl", b"{}\n", LISTED, LISTED)
    fork = written(rollouts / f"rollout-2026-11-30T21-33-21-{THREAD}.jsonl", base=(other, first.stat().st_size))
    thread, record = {"id": THREAD, "path": str(fork)}, Record(tmp_path, THREAD)
    listed(tmp_path, **{THREAD: fork.stat().st_size})
    with pytest.raises(BeginningMissing) as missing:
        await record.check_listed(thread)
    assert missing.value.turn_id == "turn 1"
    # A thread that was never prompted has nothing to list.
    written(fork, base=(other, first.stat().st_size - 2 * len(LISTED)))
    await record.check_listed(thread)
    assert await record.is_listed(thread)


async def test_what_the_thread_builds_on_may_be_where_nobody_looks(
    tmp_path: Path, rollouts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex packs old files."""
    monkeypatch.setattr(record_module, "PATIENCE", 0.0)
    fork = written(rollouts / f"rollout-2026-11-30T21-33-21-{THREAD}.jsonl", base=(REVISION, 1))
    listed(tmp_path, **{THREAD: fork.stat().st_size})
    with pytest.raises(HistoryUnreadable):
        await Record(tmp_path, THREAD).check_listed({"id": THREAD, "path": str(fork)})


@pytest.mark.parametrize("what", ["nothing", "no database", "other tables"])
def test_another_kind_of_list_says_nothing(tmp_path: Path, what: str) -> None:
    projection = Projection(tmp_path)
    if what == "no database":
        projection.path.write_bytes(b"no database " * 100)
    elif what == "other tables":
        change(projection.path, "CREATE TABLE other (thread_id)")
    assert projection.lacks([Part("a", 1)]) is None
    assert not projection.goes_beyond(Part("a", 1))


def test_a_locked_list_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection_module, "_PATIENCE", 0.0)
    projection = listed(tmp_path, a=10)
    with closing(sqlite3.connect(projection.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(HistoryUnreadable, match="locked"):
            projection.lacks([Part("a", 1)])


# On the real Codex.


@asynccontextmanager
async def opened(env: dict[str, str]) -> AsyncIterator[AgentProcess]:
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        yield agent
        assert await agent.close() == 0


def database(env: dict[str, str]) -> Path:
    return Path(env.get("CODEX_SQLITE_HOME", env["CODEX_HOME"])) / DATABASE


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def forget(path: Path) -> None:
    """As if it had been removed, or were made by a Codex of another version."""
    change(path, *(f"DELETE FROM {table}" for table in TABLES))


def refuse(path: Path) -> None:
    """From now on nothing can be written to it, as when it is locked or has no room."""
    for table in TABLES:
        for event in ("INSERT", "UPDATE"):
            name = f"refuse_{event}_{table}"
            change(path, f"CREATE TRIGGER {name} BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END")


def accept(path: Path) -> None:
    for table in TABLES:
        change(path, f"DROP TRIGGER refuse_INSERT_{table}", f"DROP TRIGGER refuse_UPDATE_{table}")


async def told(agent: AgentProcess, session_id: str, cwd: str) -> None:
    with pytest.raises(WireError, match="does not list") as refused:
        await agent.wire.resume(session_id, cwd, replay=True)
    assert (refused.value.code, refused.value.data) == (-32603, {"reason": "history_unreadable"})
    assert not agent.wire.updates(session_id, "replay_complete")


@pytest.mark.real
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_list_that_was_not_brought_up_to_date(
    service: ResponsesService, env: dict[str, str], cwd: str, folder: Path, elsewhere: bool
) -> None:
    if elsewhere:
        env["CODEX_SQLITE_HOME"] = str(folder / "databases")
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
        second = await agent.wire.prompt(session_id, "Second", key="2")
        await agent.wire.idle(session_id, 2)
    forget(database(env))
    refuse(database(env))
    async with opened(env) as agent:
        await told(agent, session_id, cwd)
        accept(database(env))
        await agent.wire.resume(session_id, cwd, replay=True)
        assert [first, second] == [key for key in entities(agent.wire.updates(session_id)) if key in (first, second)]
        assert await agent.wire.prompt(session_id, "Second", key="2") == second
    assert stored_ids(env, session_id) == [first, second]
    assert service.count("Second") == 1


async def prompted(agent: AgentProcess, session_id: str, *contents: str) -> list[str]:
    done = agent.wire.states(session_id).count("idle:end_turn")
    found: list[str] = []
    for content in contents:
        found.append(await agent.wire.prompt(session_id, content, key=content[:10]))
        done += 1
        await agent.wire.until(lambda: agent.wire.states(session_id).count("idle:end_turn") >= done)  # noqa: B023
    return found


@pytest.mark.real
@pytest.mark.parametrize("levels", [1, 2])
async def test_a_fork_whose_beginning_is_not_listed_any_more(
    service: ResponsesService, env: dict[str, str], cwd: str, levels: int
) -> None:
    """Codex makes its list anew of the fork's own file alone (measured)."""
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        await prompted(agent, session_id, "First")
        for _ in range(levels):
            answer = await agent.wire.request("session/fork", {"sessionId": session_id, "cwd": cwd, "mcpServers": []})
            session_id = answer["sessionId"]
        (second,) = await prompted(agent, session_id, "Second")
    forget(database(env))
    async with opened(env) as agent:
        await agent.wire.resume(session_id, cwd, replay=True)
        shown = list(entities(agent.wire.updates(session_id)).values())
        assert shown == ["First", "Done.", "Second", "Done."]
        assert await agent.wire.prompt(session_id, "Second", key="Second") == second
    assert service.count("Second") == 1


@pytest.mark.real
async def test_a_reverted_thread_whose_beginning_is_not_listed_any_more(
    service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        first, _ = await prompted(agent, session_id, "First", "Second")
    with raw_codex(env) as request:
        request("thread/resume", {"threadId": session_id, "excludeTurns": True})
        turns = request("thread/turns/list", {"threadId": session_id, "sortDirection": "desc", "limit": 1})["data"]
        request("thread/revert", {"threadId": session_id, "beforeTurnId": turns[0]["id"]})
    async with opened(env) as agent:
        await agent.wire.resume(session_id, cwd, replay=True)
        assert list(entities(agent.wire.updates(session_id)).values()) == ["First", "Done."]
        # Codex lists the file that the revert left, until there is a prompt in the next one.
        listed = await agent.wire.request("session/list", {})
        assert [(row["sessionId"], row["title"]) for row in listed["sessions"]] == [(session_id, "First")]
        await prompted(agent, session_id, "Third")
    forget(database(env))
    async with opened(env) as agent:
        await agent.wire.resume(session_id, cwd, replay=True)
        assert list(entities(agent.wire.updates(session_id)).values()) == ["First", "Done.", "Third", "Done."]
        assert await agent.wire.prompt(session_id, "First", key="First") == first
        listed = await agent.wire.request("session/list", {})
        assert [(row["sessionId"], row["title"]) for row in listed["sessions"]] == [(session_id, "First")]
    assert [service.count(text) for text in ("First", "Third")] == [1, 1]


@pytest.mark.real
async def test_a_list_that_falls_behind_while_the_thread_is_loaded(
    service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        (first,) = await prompted(agent, session_id, "First")
        refuse(database(env))
        (second,) = await prompted(agent, session_id, "Second")
        assert await agent.wire.prompt(session_id, "Second", key="Second") == second
        await told(agent, session_id, cwd)
        accept(database(env))
        await agent.wire.resume(session_id, cwd, replay=True)
        shown = entities(agent.wire.updates(session_id))
        assert [key for key in shown if key in (first, second)] == [first, second]
        assert len(agent.wire.updates(session_id, "replay_complete")) == 1
        await prompted(agent, session_id, "Third")
    assert [service.count(text) for text in ("First", "Second", "Third")] == [1, 1, 1]


@pytest.mark.real
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_prompt_that_codex_would_not_list_does_not_run(
    service: ResponsesService, env: dict[str, str], cwd: str, folder: Path, elsewhere: bool
) -> None:
    """A power cut can take the end of the file and leave the list (nothing is synced: measured)."""
    if elsewhere:
        env["CODEX_SQLITE_HOME"] = str(folder / "databases")
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        first, second = await prompted(agent, session_id, "First", "Second" * 1000)
    path = rollout(env, session_id)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\n", data.index(first.encode())) + 1])
    async with opened(env) as agent:
        await agent.wire.resume(session_id, cwd)
        assert await agent.wire.prompt(session_id, "Second" * 1000, key="SecondSeco") == second
        with pytest.raises(WireError, match="Codex would not find the prompt again") as refused:
            await agent.wire.prompt(session_id, "Third", key="3")
        assert (refused.value.code, refused.value.data) == (-32603, {"reason": "not_stored"})
    assert service.count("Third") == 0
    # A list that is made anew, of a thread of one file, fits it.
    forget(database(env))
    async with opened(env) as agent:
        await agent.wire.resume(session_id, cwd)
        assert await agent.wire.prompt(session_id, "First", key="First") == first
        (third,) = await prompted(agent, session_id, "Third")
    assert stored_ids(env, session_id) == [first, third]


@pytest.mark.real
async def test_after_a_crash_a_list_that_is_behind_proves_nothing(
    service: ResponsesService, env: dict[str, str], cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex dies when it has stored the message, before anybody knows."""
    message_id = str(uuid4())
    content = [{"type": "text", "text": "Second"}]
    with anyio.fail_after(60):
        async with CodexRuntime(env) as runtime:
            session = await runtime.new(SessionSetup(cwd=cwd))
            events = session.events()
            await session.submit(str(uuid4()), [{"type": "text", "text": "First"}])
            await idle(events)
            refuse(database(env))
            server = await runtime._servers.get()
            monkeypatch.setattr(Submission, "item_completed", lambda _: os.kill(codex_pids(env)[0], signal.SIGKILL))
            await session.submit(message_id, content)
            refused = await outcome(events)
            assert isinstance(refused, Rejected)
            assert isinstance(refused.error, HistoryUnreadable)
            assert not server.running
            with pytest.raises(HistoryUnreadable):
                await runtime.message_ids(session.session_id)
            accept(database(env))
            assert message_id in await runtime.message_ids(session.session_id)
    assert stored_ids(env, session.session_id)[-1] == message_id


@pytest.mark.real
async def test_a_session_of_another_process_that_is_not_all_listed_here(
    service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    """The list was removed under the other one, which goes on with it; here Codex makes another, and makes it of
    nothing (measured)."""
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        await prompted(agent, session_id, "First")
        with raw_codex(env) as request:
            await agent.wire.request("session/close", {"sessionId": session_id})
            request("thread/resume", {"threadId": session_id, "excludeTurns": True})
            forget(database(env))
            await told(agent, session_id, cwd)


@pytest.mark.real
@pytest.mark.parametrize("how", ["named, never prompted", "archived and back", "its list removed meanwhile"])
async def test_a_healthy_session_is_read(service: ResponsesService, env: dict[str, str], cwd: str, how: str) -> None:
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        if how == "named, never prompted":
            await agent.wire.request("session/set_title", {"sessionId": session_id, "title": "A title"})
        else:
            await prompted(agent, session_id, "First")
        if how == "archived and back":
            await agent.wire.request("session/archive", {"sessionId": session_id})
            await agent.wire.request("session/unarchive", {"sessionId": session_id})
        elif how == "its list removed meanwhile":
            for path in database(env).parent.glob(f"{DATABASE}*"):
                path.unlink()
        await agent.wire.resume(session_id, cwd, replay=True)
        assert len(agent.wire.updates(session_id, "replay_complete")) == 1
        await prompted(agent, session_id, "Second")
    async with opened(env) as agent:
        await agent.wire.resume(session_id, cwd, replay=True)
        shown = [text for text in entities(agent.wire.updates(session_id)).values() if text != "Done."]
        assert shown == (["Second"] if how == "named, never prompted" else ["First", "Second"])


@pytest.mark.real
async def test_what_is_no_file_is_not_opened_after_a_crash(
    service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    async with opened(env) as agent:
        session_id = await agent.wire.new(cwd)
        other = await agent.wire.new(cwd)
        await prompted(agent, session_id, "First")
        await prompted(agent, other, "Other")
        path = rollout(env, session_id)
        os.kill(codex_pids(env)[0], signal.SIGKILL)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(WireError, match="is no file") as refused:
            await agent.wire.prompt(session_id, "Second", key="Second")
        assert (refused.value.code, refused.value.data) == (-32603, {"reason": "history_unreadable"})
        await prompted(agent, other, "More")
