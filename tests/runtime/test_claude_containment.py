"""What one session cannot be given, or what goes wrong in it, ends no other: on the real Claude Code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from anyio.lowlevel import checkpoint

from sayagain.errors import RuntimeFault
from sayagain.processes.lease import Lease
from sayagain.runtime.events import Foreground, Inserted, Rejected, RuntimeEvent, Update
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Hold, Script, Step, Text
from sayagain_claude import outbox
from sayagain_claude.patience import Patience
from sayagain_claude.runtime import ClaudeRuntime
from sayagain_claude.session import ClaudeSession
from sayagain_claude.transcripts import paths
from support_claude import AgentProcess, agent_process, transcript
from support_wire import WireError

pytestmark = pytest.mark.real


@pytest.fixture
def script() -> Script:
    flood = Text("x" * 20_000, chunk=10)
    return Script([Step("Wait", [[Text("I begin "), Hold("held")]]), Step("Flood", [[flood, Hold("held")]])])


@pytest.fixture
async def runtime(env: dict[str, str]) -> AsyncIterator[ClaudeRuntime]:
    with anyio.fail_after(60):
        async with ClaudeRuntime(env) as runtime:
            yield runtime


@pytest.fixture
def systems(service: MessagesService, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The system prompt of each request to the model."""
    seen: list[str] = []
    take = service.take

    def noted(body: Mapping[str, Any]) -> Any:
        system = body.get("system")
        seen.append(system if isinstance(system, str) else "\n".join(block["text"] for block in system or ()))
        return take(body)

    monkeypatch.setattr(service, "take", noted)
    return seen


class TestSystemPrompt:
    @pytest.mark.parametrize("mode", ["append", "override"])
    @pytest.mark.parametrize("content", ["x" * 200_001, "a\0b"], ids=["long", "nul"])
    async def test_any_text_is_taken_and_told_to_the_model(
        self, agent: AgentProcess, cwd: str, systems: list[str], mode: str, content: str
    ) -> None:
        prompt = {"mode": mode, "content": [{"type": "text", "text": f"({content})"}]}
        session_id = await agent.wire.new(cwd, systemPrompt=prompt)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        assert any(content in system for system in systems)
        assert agent.process.returncode is None

    @pytest.mark.parametrize("mode", ["append", "override"])
    async def test_another_process_is_told_it_again_and_nobody_else(
        self, env: dict[str, str], cwd: str, systems: list[str], mode: str
    ) -> None:
        prompt = {
            "mode": mode,
            "content": [{"type": "text", "text": "Speak like"}, {"type": "text", "text": "pirates"}],
        }
        session_id = ""
        for number in range(2):
            async with agent_process(env) as agent:
                await agent.wire.initialize()
                if session_id:
                    await agent.wire.resume(session_id, cwd, systemPrompt=prompt)
                else:
                    session_id = await agent.wire.new(cwd, systemPrompt=prompt)
                await agent.wire.prompt(session_id, f"Hello {number}")
                # A resume tells it once too.
                await agent.wire.idle(session_id, 1 + number)
                said = [" ".join(child.cmdline()) for child in psutil.Process(agent.pid).children(recursive=True)]
                assert any(session_id in line for line in said)
                assert not any("Speak like" in line for line in said)
                await agent.close()
            assert any("Speak like\n\npirates" in system for system in systems)
            systems.clear()


@pytest.mark.parametrize("directory", ["/a\0b", "/\ud800", "/" + 5000 * "x"], ids=["nul", "surrogate", "long"])
@pytest.mark.parametrize("method", ["session/new", "session/resume", "session/fork"])
async def test_a_directory_that_is_no_path_is_refused_before_there_is_a_session(
    agent: AgentProcess, env: dict[str, str], cwd: str, method: str, directory: str
) -> None:
    stored = await agent.wire.new(cwd)
    await agent.wire.prompt(stored, "Hello")
    await agent.wire.idle(stored)
    await agent.wire.request("session/close", {"sessionId": stored})
    of = {} if method == "session/new" else {"sessionId": stored}
    with pytest.raises(WireError) as caught:
        await agent.wire.request(method, {"cwd": cwd, "additionalDirectories": ["/", directory], **of})
    assert (caught.value.code, caught.value.data["field"]) == (-32602, "additionalDirectories.1")
    listed = (await agent.wire.request("session/list", {}))["sessions"]
    assert [session["sessionId"] for session in listed] == [stored]
    assert agent.process.returncode is None


class Listener:
    """Takes a session's events as our agent does."""

    def __init__(self, session: ClaudeSession) -> None:
        self.session = session
        self.seen: list[RuntimeEvent] = []
        self.ended = False
        self.slow = anyio.Event()
        self.slow.set()
        self.stands = anyio.Event()
        self._news = anyio.Event()

    async def run(self) -> None:
        async for event in self.session.events():
            self.seen.append(event)
            self._news.set()
            if not self.slow.is_set():
                self.stands.set()
                await self.slow.wait()
        self.ended = True
        self._news.set()

    async def until_stored(self, message_id: str) -> None:
        await self._until(lambda event: isinstance(event, Inserted) and event.message_id == message_id)

    async def until_rejected(self, message_id: str) -> None:
        await self._until(lambda event: isinstance(event, Rejected) and event.message_id == message_id)

    async def until_idle(self) -> None:
        """At the end of a turn, not before the first."""
        await self._until(lambda event: isinstance(event, Foreground) and event.stop_reason is not None)

    async def until_text(self) -> None:
        await self._until(lambda e: isinstance(e, Update) and e.update["sessionUpdate"] == "agent_message_chunk")

    async def until_ended(self) -> None:
        while not self.ended:
            await self._wait()

    async def _until(self, wanted: Callable[[RuntimeEvent], bool]) -> None:
        while not any(map(wanted, self.seen)):
            assert not self.ended
            await self._wait()

    async def _wait(self) -> None:
        self._news = anyio.Event()
        await self._news.wait()


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def message_id(number: int = 1) -> str:
    return f"01900000-0000-7000-8000-{number:012}"


async def fail(*_: object, **__: object) -> Any:
    raise ValueError("unexpected")


async def always() -> bool:
    return True


def itself(session: ClaudeSession) -> ClaudeSession:
    return session


@pytest.mark.parametrize(
    ("owner", "broken"),
    [
        (itself, "_running"),
        (attrgetter("_submission"), "_watch"),
        (itself, "_died"),
        (attrgetter("_options"), "_read"),
        (attrgetter("_beside"), "watch"),
    ],
)
async def test_an_unexpected_failure_ends_its_own_session_alone(
    runtime: ClaudeRuntime,
    cwd: str,
    monkeypatch: pytest.MonkeyPatch,
    owner: Callable[[ClaudeSession], object],
    broken: str,
) -> None:
    other = await runtime.new(SessionSetup(cwd))
    async with anyio.create_task_group() as tasks:
        beside = Listener(other)
        tasks.start_soon(beside.run)
        await other.submit(message_id(1), text("Hello"))
        await beside.until_stored(message_id(1))
        await beside.until_idle()
        with monkeypatch.context() as patch:
            session = await runtime.new(SessionSetup(cwd))
            patch.setattr(owner(session), broken, fail)
            if broken == "watch":
                patch.setattr(owner(session), "after", always)
            listener = Listener(session)
            tasks.start_soon(listener.run)
            with suppress(ValueError, RuntimeFault):
                await session.submit(message_id(2), text("Wait"))
            if broken == "_died":
                await listener.until_text()
                await end_process(session)
            await listener.until_ended()
            await session.close()
            assert session._host.process is None
        await other.submit(message_id(3), text("Still there?"))
        await beside.until_stored(message_id(3))
        await other.close()


async def test_a_transcript_that_goes_while_it_is_read_holds_no_message(
    runtime: ClaudeRuntime, env: dict[str, str], cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await runtime.new(SessionSetup(cwd))
    async with anyio.create_task_group() as tasks:
        listener = Listener(session)
        tasks.start_soon(listener.run)
        await session.submit(message_id(1), text("Hello"))
        await listener.until_stored(message_id(1))
        path = transcript(env, session.session_id)
        find = paths.find

        def find_and_lose(*arguments: Any) -> Path | None:
            found = find(*arguments)
            path.unlink(missing_ok=True)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(paths, "find", find_and_lose)
            assert await runtime.message_ids(session.session_id) == set()
        path.touch()
        process = session._host.process
        assert process is not None
        process.awaited = b"nothing of this"
        with monkeypatch.context() as patch:
            patch.setattr(paths, "find", find_and_lose)
            session._turns.submit(message_id(2))
            await end_process(session)
            await listener.until_rejected(message_id(2))
            await session.close()


async def test_a_client_that_reads_slowly_is_no_hung_process(
    runtime: ClaudeRuntime, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "EVENTS", 2)
    session = await runtime.new(SessionSetup(cwd))
    patience = session._patience
    async with anyio.create_task_group() as tasks:
        listener = Listener(session)
        tasks.start_soon(listener.run)
        await session.submit(message_id(1), text("Flood"))
        await listener.until_text()
        listener.slow = anyio.Event()
        await listener.stands.wait()
        while not session._outbox._send.statistics().tasks_waiting_send:
            await checkpoint()
        process = session._host.process
        session._patience = Patience(answer=0)
        async with anyio.create_task_group() as slow:
            slow.start_soon(session.interrupt)
            await anyio.wait_all_tasks_blocked()
            assert session._host.process is process is not None
            assert not session._host._gone.is_set()
            slow.cancel_scope.cancel()
        session._patience = patience
        listener.slow.set()
        await session.interrupt()
        await listener.until_idle()
        assert session._host.process is process
        await session.close()
    assert [e.stop_reason for e in listener.seen if isinstance(e, Foreground) and e.stop_reason] == ["cancelled"]


async def test_a_process_that_the_lease_cannot_name_is_ended(
    runtime: ClaudeRuntime, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RuntimeFault("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "add_holder", full)
        session = await runtime.new(SessionSetup(cwd))
        with pytest.raises(RuntimeFault, match="No space left"):
            await session.submit(message_id(1), text("Hello"))
        assert psutil.Process().children(recursive=True) == []
    async with anyio.create_task_group() as tasks:
        listener = Listener(session)
        tasks.start_soon(listener.run)
        await session.submit(message_id(1), text("Hello"))
        await listener.until_stored(message_id(1))
        await session.close()


async def end_process(session: ClaudeSession) -> None:
    """As by a crash of it."""
    assert session._host.process is not None
    psutil.Process(session._host.process.guard_pid).children()[0].kill()
