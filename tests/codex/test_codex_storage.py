"""What Codex cannot store must not run: it says that it has stored a prompt before it has tried."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest

import support_disk
from sayagain.errors import HistoryUnreadable
from sayagain.processes.room import NotStored
from sayagain.runtime.events import Inserted, Rejected, RuntimeEvent
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Hold, Script, Step, Text
from sayagain_codex import submission
from sayagain_codex.app_server import AppServer
from sayagain_codex.record import Record
from sayagain_codex.rollouts import irregular
from sayagain_codex.runtime import CodexRuntime
from sayagain_codex.session import CodexSession
from sayagain_codex.storage import check_room
from support_codex import AgentProcess, agent_process, codex_environment, idle, outcome, rollout, stored_ids
from support_wire import WireError

BLOCK = 4096


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """A file system of its own for what Codex stores."""
    with support_disk.small_disk(folder / "codex", "24m") as disk:
        yield disk


async def is_refused(agent: AgentProcess, session_id: str, content: str, why: str) -> None:
    with pytest.raises(WireError, match=why) as refused:
        await agent.wire.prompt(session_id, content, key=content[:10])
    assert (refused.value.code, refused.value.data) == (-32603, {"reason": "not_stored"})


@pytest.mark.real
class TestFullDisk:
    @pytest.fixture
    def env(self, disk: Path, folder: Path, service: ResponsesService) -> dict[str, str]:
        return codex_environment(folder, service)

    @pytest.mark.parametrize("left", [0, 1], ids=["nothing is left", "too little is left"])
    async def test_a_prompt_that_cannot_be_stored_does_not_run(
        self, agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str, disk: Path, left: int
    ) -> None:
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
        filler = support_disk.fill(disk)
        os.truncate(filler, filler.stat().st_size - left * BLOCK)
        work = "Work to do " + "x" * 20_000
        await is_refused(agent, session_id, work, "ENOSPC")
        assert service.count(work) == 0
        filler.unlink()
        message_id = await agent.wire.prompt(session_id, work, key=work[:10])
        await agent.wire.idle(session_id, 2)
        assert stored_ids(env, session_id) == [first, message_id]
        assert await agent.close() == 0
        assert (service.count(work), service.occurrences(work)) == (1, 1)

    async def test_a_session_that_could_not_be_archived_is_closed_and_whole(
        self, agent: AgentProcess, env: dict[str, str], cwd: str, disk: Path
    ) -> None:
        """Nothing can be owned on a full disk, so it is not opened again."""
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
        filler = support_disk.fill(disk)
        params = {"sessionId": session_id}
        with pytest.raises(WireError, match="failed to archive"):
            await agent.wire.request("session/archive", params)
        assert await agent.wire.request("session/status", params) == {"status": "saved"}
        filler.unlink()
        await agent.wire.resume(session_id, cwd)
        assert await agent.wire.prompt(session_id, "First", key="1") == first
        assert await agent.wire.request("session/archive", params) == {}
        assert await agent.close() == 0

    async def test_nothing_follows_what_codex_could_not_write(
        self, agent: AgentProcess, service: ResponsesService, script: Script, env: dict[str, str], cwd: str, disk: Path
    ) -> None:
        """The disk gets full in a turn: Codex keeps what it has to write, and writes it when it can."""
        script.steps = [Step("First", [[Text("Long "), Hold("model"), Text("answer")]])]
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await service.held("model")
        filler = support_disk.fill(disk)
        service.release("model")
        await agent.wire.idle(session_id)
        await is_refused(agent, session_id, "Second", "ENOSPC")
        assert service.count("Second") == 0
        filler.unlink()
        second = await agent.wire.prompt(session_id, "Second", key="2")
        await agent.wire.idle(session_id, 2)
        assert await agent.close() == 0
        assert stored_ids(env, session_id) == [first, second]


@pytest.mark.real
async def test_a_prompt_does_not_run_when_what_lists_it_has_no_room(
    service: ResponsesService, env: dict[str, str], cwd: str, folder: Path
) -> None:
    """Codex's databases may lie on another disk than its files."""
    with support_disk.small_disk(folder / "databases", "24m") as disk:
        config = Path(env["CODEX_HOME"]) / "config.toml"
        config.write_text(f'sqlite_home = "{disk}"\n{config.read_text(encoding="utf-8")}', encoding="utf-8")
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            first = await agent.wire.prompt(session_id, "First", key="1")
            await agent.wire.idle(session_id)
            filler = support_disk.fill(disk)
            await is_refused(agent, session_id, "Second", "ENOSPC")
            assert service.count("Second") == 0
            filler.unlink()
            second = await agent.wire.prompt(session_id, "Second", key="2")
            assert await agent.close() == 0
    assert stored_ids(env, session_id) == [first, second]


@pytest.mark.real
async def test_a_prompt_does_not_run_where_no_folder_can_be_made(
    service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    sessions = Path(env["CODEX_HOME"]) / "sessions"
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        sessions.write_text("A file.", encoding="utf-8")
        await is_refused(agent, session_id, "First", "ENOTDIR")
        assert service.count("First") == 0
        sessions.unlink()
        message_id = await agent.wire.prompt(session_id, "First", key="1")
        assert await agent.close() == 0
    assert stored_ids(env, session_id) == [message_id]


@pytest.mark.real
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_prompt_for_a_file_that_is_gone_does_not_run(
    service: ResponsesService, env: dict[str, str], cwd: str, resumed: bool, replaced: bool
) -> None:
    """Replaced by a copy, as programs do that keep folders the same, or removed."""
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
        if resumed:
            await agent.wire.request("session/close", {"sessionId": session_id})
            await agent.wire.resume(session_id, cwd)
        file = rollout(env, session_id)
        if replaced:
            copy = file.with_suffix(".copy")
            copy.write_bytes(file.read_bytes())
            copy.replace(file)
        else:
            file.unlink()
        with pytest.raises(WireError) as refused:
            await agent.wire.prompt(session_id, "Second", key="2")
        assert service.count("Second") == 0
        if not replaced:
            assert refused.value.code in (-32002, -32603)
            return
        assert refused.value.code == -32603
        ended = agent.wire.states(session_id).count("idle:end_turn")
        second = await agent.wire.prompt(session_id, "Second", key="2")
        await agent.wire.until(lambda: agent.wire.states(session_id).count("idle:end_turn") > ended)
        assert await agent.close() == 0
    assert stored_ids(env, session_id) == [first, second]
    assert service.count("Second") == 1


HELLO = [{"type": "text", "text": "hello"}]


def replace(file: Path) -> None:
    copy = file.with_suffix(".copy")
    copy.write_bytes(file.read_bytes())
    copy.replace(file)


@pytest.mark.real
class TestFilesThatAreReplaced:
    """The next prompt is not written to what nobody finds, whenever it happens."""

    @pytest.fixture
    async def runtime(self, env: dict[str, str]) -> AsyncIterator[CodexRuntime]:
        with anyio.fail_after(60):
            async with CodexRuntime(env) as runtime:
                yield runtime

    async def is_noticed(self, session: CodexSession, events: AsyncIterator[RuntimeEvent], env: dict[str, str]) -> None:
        message_id = str(uuid4())
        await session.submit(message_id, HELLO)
        refused = await outcome(events)
        assert isinstance(refused, Rejected)
        assert isinstance(refused.error, HistoryUnreadable)
        await session.submit(message_id, HELLO)
        assert isinstance(await outcome(events), Inserted)
        await idle(events)
        assert stored_ids(env, session.session_id)[-1:] == [message_id]

    async def test_in_its_first_turn(
        self, runtime: CodexRuntime, service: ResponsesService, script: Script, env: dict[str, str], cwd: str
    ) -> None:
        script.steps = [Step("hello", [[Hold("model"), Text("Hello")]])]
        session = await runtime.new(SessionSetup(cwd=cwd))
        events = session.events()
        await session.submit(str(uuid4()), HELLO)
        assert isinstance(await outcome(events), Inserted)
        await service.held("model")
        replace(rollout(env, session.session_id))
        service.release("model")
        await idle(events)
        await self.is_noticed(session, events, env)

    async def test_before_the_first_prompt_of_a_fork(
        self, runtime: CodexRuntime, env: dict[str, str], cwd: str
    ) -> None:
        session = await runtime.new(SessionSetup(cwd=cwd))
        await session.submit(str(uuid4()), HELLO)
        await idle(session.events())
        fork = await runtime.fork(session.session_id, SessionSetup(cwd=cwd))
        replace(rollout(env, fork.session_id))
        await self.is_noticed(fork, fork.events(), env)

    async def test_after_a_load_that_nobody_waited_for(
        self, runtime: CodexRuntime, env: dict[str, str], cwd: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await runtime.new(SessionSetup(cwd=cwd))
        events = session.events()
        await session.submit(str(uuid4()), HELLO)
        await idle(events)
        sent, send = anyio.Event(), AppServer._send

        async def noted(server: AppServer, message: Mapping[str, Any], patience: float) -> None:
            await send(server, message, patience)
            if message.get("method") == "thread/resume":
                sent.set()

        monkeypatch.setattr(AppServer, "_send", noted)
        server = await runtime._servers.get()
        await server.kill()
        await server.gone.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.own)
            await sent.wait()
            tasks.cancel_scope.cancel()
        while not session.loaded:
            await anyio.lowlevel.checkpoint()
        replace(rollout(env, session.session_id))
        await self.is_noticed(session, events, env)

    async def test_after_a_ghost_was_reverted(
        self, runtime: CodexRuntime, env: dict[str, str], cwd: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Codex goes on in another file then (measured)."""
        session = await runtime.new(SessionSetup(cwd=cwd))
        events = session.events()
        for _ in range(2):
            await session.submit(str(uuid4()), HELLO)
            await idle(events)
        server = await runtime._servers.get()
        await server.kill()
        await server.gone.wait()

        async def revert(client: Any, thread_id: str) -> Any:
            params = {"threadId": thread_id, "sortDirection": "desc", "limit": 1}
            last = (await client.request("thread/turns/list", params))["data"][0]
            answer = await client.request("thread/revert", {"threadId": thread_id, "beforeTurnId": last["id"]})
            return answer["thread"]

        monkeypatch.setattr(submission, "revert_ghost", revert)
        await session.submit(str(uuid4()), HELLO)
        await idle(events)
        replace(rollout(env, session.session_id))
        await self.is_noticed(session, events, env)

    async def test_one_that_was_taken_back_meanwhile_is_not_refused(
        self, runtime: CodexRuntime, env: dict[str, str], cwd: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await runtime.new(SessionSetup(cwd=cwd))
        events = session.events()
        await session.submit(str(uuid4()), HELLO)
        await idle(events)
        replace(rollout(env, session.session_id))
        looking, taken_back, is_kept = anyio.Event(), anyio.Event(), Record.is_kept

        async def later(record: Record) -> bool:
            looking.set()
            await taken_back.wait()
            return await is_kept(record)

        monkeypatch.setattr(Record, "is_kept", later)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.submit, "0190c0de-0000-7000-8000-00000000000a", HELLO)
            await looking.wait()
            assert await session.withdraw("0190c0de-0000-7000-8000-00000000000a")
            taken_back.set()
        await session.close()
        assert not [event async for event in events if isinstance(event, Rejected)]


@pytest.mark.real
async def test_a_session_that_cannot_be_archived_stays_open(
    agent: AgentProcess, service: ResponsesService, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    params = {"sessionId": session_id}
    first = await agent.wire.prompt(session_id, "First", key="1")
    await agent.wire.idle(session_id)
    archive = Path(env["CODEX_HOME"]) / "archived_sessions"
    archive.write_text("A file.", encoding="utf-8")
    with pytest.raises(WireError, match="failed to archive"):
        await agent.wire.request("session/archive", params)
    assert (await agent.wire.request("session/status", params))["status"] == "open"
    assert await agent.wire.prompt(session_id, "First", key="1") == first
    second = await agent.wire.prompt(session_id, "Second", key="2")
    await agent.wire.until(lambda: agent.wire.states(session_id)[-2:] == ["running", "idle:end_turn"])
    assert stored_ids(env, session_id) == [first, second]
    assert service.count("First") == 1
    archive.unlink()
    assert await agent.wire.request("session/archive", params) == {}
    assert await agent.close() == 0


def test_what_has_a_place_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, index = tmp_path / "sessions", tmp_path / "databases" / "index"
    rollout = folder / "rollout.jsonl"
    check_room(rollout, folder, index, [{"type": "text", "text": "Hello"}])
    check_room(None, folder, index, [])
    assert list(tmp_path.iterdir()) == []
    for path in (rollout, index):
        path.parent.mkdir()
        path.write_text("{}\n")
    check_room(rollout, folder, index, [])
    for path in (rollout, index):
        assert (path.read_text(), len(list(path.parent.iterdir()))) == ("{}\n", 1)


def test_what_is_no_file_is_found(tmp_path: Path) -> None:
    thread_id = "01a22e60-6a00-7242-a675-e5e8ea11c114"  # of the 30th of November in UTC
    assert irregular(tmp_path, thread_id) is None
    for folder in ("sessions/2026/11/29", "sessions/2026/11/30", "sessions/2026/12/01", "archived_sessions"):
        name = f"rollout-2026-11-30T21-33-20-{thread_id}"
        path = tmp_path / folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert irregular(tmp_path, thread_id) is None
        later = path.with_name(f"{name}_01a22e60-7000-7000-8000-000000000000.jsonl")
        later.symlink_to(tmp_path / "nowhere")
        assert irregular(tmp_path, thread_id) == later
        later.unlink()
        path.unlink()
        os.mkfifo(path)
        assert irregular(tmp_path, thread_id) == path
        path.unlink()
    for odd in ("ffffffff-ffff-7fff-bfff-ffffffffffff", "00000000-0000-7000-8000-000000000000", str(uuid4())):
        assert irregular(tmp_path, odd) is None


def test_the_reason_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("sayagain.processes.room.tempfile.TemporaryFile", refuse)
    with pytest.raises(NotStored, match=r"Codex could not store the prompt in .*: EACCES, Permission denied"):
        check_room(None, tmp_path, tmp_path / "index", [])
