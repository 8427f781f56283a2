"""What cannot be stored must not run: full disks and folders that cannot be written, on the real Claude Code."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import support_disk
from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Hold, Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process
from support_wire import Wire, WireError

pytestmark = pytest.mark.real


def allow(wire: Wire) -> None:
    wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}})


@pytest.fixture
def side_effect(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def script(side_effect: Path) -> Script:
    work = ToolUse("Bash", {"command": f"echo ran >> {side_effect}", "description": "Run it"})
    return Script([Step("Work", [[Text("Soon"), Hold("model"), work], [Text("Done.")]])])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The config folder on a file system of one megabyte."""
    with support_disk.small_disk(tmp_path / "config", "1m") as disk:
        yield disk


async def refused_as_not_stored(agent: AgentProcess, session_id: str, work: str, why: str) -> None:
    with pytest.raises(WireError) as refused:
        await agent.wire.prompt(session_id, work, key="work")
    assert refused.value.code == -32603
    assert refused.value.data == {"reason": "not_stored"}
    assert why in refused.value.message


async def runs_once(agent: AgentProcess, session_id: str, work: str) -> None:
    """The same prompt is sent again, twice, now that it can be stored."""
    ended = agent.wire.states(session_id).count("idle:end_turn")
    message_id = await agent.wire.prompt(session_id, work, key="work")
    await agent.wire.until(lambda: agent.wire.states(session_id).count("idle:end_turn") > ended)
    assert await agent.wire.prompt(session_id, work, key="work") == message_id


class TestFullDisk:
    @pytest.fixture
    def env(self, small_disk: Path, env: dict[str, str]) -> dict[str, str]:
        return env

    @pytest.mark.parametrize("found_out", ["before it is sent", "by the missing row"])
    async def test_a_prompt_that_cannot_be_stored_does_not_run(
        self,
        env: dict[str, str],
        cwd: str,
        small_disk: Path,
        service: MessagesService,
        side_effect: Path,
        found_out: str,
    ) -> None:
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            allow(agent.wire)
            session_id = await agent.wire.new(cwd)
            await agent.wire.prompt(session_id, "First.", key="first")
            await agent.wire.idle(session_id)
            filler = support_disk.fill(small_disk)
            work = "Work " + "x" * 20_000  # more than the slack of the transcript's last page
            if found_out == "by the missing row":
                # Something is left, but too little for the row.
                os.truncate(filler, filler.stat().st_size - 4096)
            await refused_as_not_stored(agent, session_id, work, "ENOSPC")
            service.release("model")
            filler.unlink()
            await runs_once(agent, session_id, work)
            await agent.close()
        assert side_effect.read_text().splitlines() == ["ran"]


class TestNoFolder:
    async def test_a_prompt_does_not_run_where_no_folder_can_be_made(
        self, env: dict[str, str], cwd: str, service: MessagesService, side_effect: Path, tmp_path: Path
    ) -> None:
        projects = tmp_path / "config" / "projects"
        projects.write_text("A file.")
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            allow(agent.wire)
            session_id = await agent.wire.new(cwd)
            await refused_as_not_stored(agent, session_id, "Work", "ENOTDIR")
            assert service.count("Work") == 0
            service.release("model")
            projects.unlink()
            await runs_once(agent, session_id, "Work")
            await agent.close()
        assert side_effect.read_text().splitlines() == ["ran"]


def runtime_pid(session_id: str) -> int:
    """The process that was started to begin the session."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            argv = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
            if f"--session-id={session_id}".encode() in argv and Path(os.fsdecode(argv[0])).name == "claude":
                return int(folder.name)
    raise LookupError(session_id)


def bookkeeping(session_id: str) -> bytes:
    """What is stored of a prompt before the prompt itself."""
    row = {"type": "queue-operation", "operation": "enqueue", "sessionId": session_id, "content": "Hello"}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


CUT = b'{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"us'


class TestWithoutMessages:
    """The CLI neither resumes nor begins a session whose transcript holds no message."""

    @pytest.mark.parametrize("held", ["nothing", "bookkeeping", "a prompt that was cut"])
    @pytest.mark.skipif(sys.platform != "linux", reason="looks for a process in /proc")
    async def test_a_session_that_was_never_begun_is_begun(self, agent: AgentProcess, cwd: str, held: str) -> None:
        wire = agent.wire
        other = await wire.new(cwd)
        await wire.prompt(other, "Hello")  # the project's folder is there now
        await wire.idle(other)
        session_id = await wire.new(cwd)
        await wire.until(lambda: wire.updates(session_id, "available_commands_update"))
        (transcript,) = (Path(cwd).parent / "config" / "projects").glob(f"*/{other}.jsonl")
        folder = transcript.parent
        content = {"nothing": b"", "bookkeeping": bookkeeping(session_id)}.get(held, bookkeeping(session_id) + CUT)
        (folder / f"{session_id}.jsonl").write_bytes(content)
        pid = runtime_pid(session_id)
        os.kill(pid, signal.SIGKILL)
        with suppress(WireError):
            # It may still meet the process that was killed.
            await wire.prompt(session_id, "Hello again", key="key")
        message_id = await wire.prompt(session_id, "Hello again", key="key")
        await wire.idle(session_id)
        assert message_id in (folder / f"{session_id}.jsonl").read_text()

    @pytest.mark.parametrize("held", ["nothing", "bookkeeping"])
    async def test_such_a_session_of_another_process_was_never_stored(
        self, agent: AgentProcess, cwd: str, held: str
    ) -> None:
        session_id, path = await self._stored(agent, cwd)
        path.write_bytes(b"" if held == "nothing" else bookkeeping(session_id))
        with pytest.raises(WireError) as refused:
            await agent.wire.resume(session_id, cwd)
        assert refused.value.code == -32002

    @pytest.mark.parametrize("held", ["NUL bytes", "a torn message", "a FIFO", "a folder"])
    async def test_what_cannot_be_read_is_not_resumed(self, agent: AgentProcess, cwd: str, held: str) -> None:
        session_id, path = await self._stored(agent, cwd)
        path.unlink()
        match held:
            case "a FIFO":
                os.mkfifo(path)
            case "a folder":
                path.mkdir()
            case "a torn message":
                path.write_bytes(CUT + b"\n" + bookkeeping(session_id))
            case _:
                path.write_bytes(bytes(1000))
        for method in ("session/resume", "session/fork"):
            with pytest.raises(WireError) as refused:
                await agent.wire.request(method, {"sessionId": session_id, "cwd": cwd})
            assert refused.value.data == {"reason": "history_unreadable"}
        if held == "a FIFO":
            await agent.wire.request("session/delete", {"sessionId": session_id})
            assert not os.path.lexists(path)
        assert await agent.close() == 0

    @staticmethod
    async def _stored(agent: AgentProcess, cwd: str) -> tuple[str, Path]:
        """A session that was closed, and its file."""
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        await agent.wire.request("session/close", {"sessionId": session_id})
        (path,) = (Path(cwd).parent / "config" / "projects").glob(f"*/{session_id}.jsonl")
        return session_id, path
