"""What ends with the work that a client cancels, and what does not, in front of the real Codex."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Hold, Script, Step, Text, exec_command, spawn_agent
from support_codex import AgentProcess, agent_process, codex_pids, stored_ids, trust_hook
from support_wire import Wire, WireError, prompt_params

pytestmark = pytest.mark.real

LONG = 30_000
SERVER = "call_5e12fe07d1a94c3b8f60d2a7"
COMMAND = "call_c0774b2d19ea4f5d83b6e1f0"
"""Milliseconds that the model waits for a command: longer than any test."""


class Command:
    """A command that runs until it is ended, and tells its process by a FIFO."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.line = f"echo $$ > {path}; exec sleep 1000"
        self.pid = 0

    async def runs(self) -> None:
        with anyio.fail_after(30):
            text = await anyio.to_thread.run_sync(self._path.read_text, abandon_on_cancel=True)
        self.pid = int(text)

    async def ended(self) -> None:
        """It was killed when its end is told; on a busy machine it is gone a little later (measured: 10 ms)."""
        with suppress(ProcessLookupError), anyio.fail_after(10):
            watched = os.pidfd_open(self.pid)
            try:
                await anyio.wait_readable(watched)
            finally:
                os.close(watched)

    @property
    def alive(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False


@pytest.fixture
def command(folder: Path, env: dict[str, str]) -> Command:
    return Command(folder / "command")


@pytest.fixture
def server(folder: Path, env: dict[str, str]) -> Iterator[Command]:
    server = Command(folder / "server")
    yield server
    if server.alive:
        with suppress(ProcessLookupError):
            os.kill(server.pid, 9)


@pytest.fixture
async def session_id(agent: AgentProcess, cwd: str) -> str:
    session_id = await agent.wire.new(cwd)
    params = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "full-access"}
    await agent.wire.request("session/set_config_option", params)
    return session_id


async def runs(wire: Wire, command: Command) -> None:
    """The command is told as well: Codex ends one that is interrupted before that (measured)."""
    await command.runs()
    await wire.until(lambda: any(command.line == update.get("command") for update in wire.updates()))


async def cancel(wire: Wire, session_id: str) -> None:
    await wire.notify("session/cancel", {"sessionId": session_id})


async def test_a_command_ends_with_its_turn_and_one_of_an_earlier_turn_stays(
    agent: AgentProcess, script: Script, session_id: str, command: Command, server: Command
) -> None:
    script.steps = [
        Step("Serve", [[exec_command(server.line, id=SERVER, yield_time_ms=300)], [Text("It serves.")]]),
        Step("Run it", [[exec_command(command.line, id=COMMAND, yield_time_ms=LONG)], [Text("Never said.")]]),
    ]
    await agent.wire.prompt(session_id, "Serve")
    await server.runs()
    await agent.wire.idle(session_id)
    await agent.wire.prompt(session_id, "Run it")
    await runs(agent.wire, command)
    await cancel(agent.wire, session_id)
    await agent.wire.idle(session_id, 2)
    await command.ended()
    assert server.alive
    idle = agent.wire.updates(session_id, "state_update")[-1]
    assert idle["stopReason"] == "cancelled"
    assert idle["background"] == [{"type": "terminal", "terminalId": SERVER}]
    updates = agent.wire.updates(session_id)
    ended = next(
        n for n, update in enumerate(updates) if update.get("terminalId") == COMMAND and "exitStatus" in update
    )
    assert ended < updates.index(idle)
    (status,) = [update["status"] for update in updates[ended:] if update.get("toolCallId") == COMMAND]
    assert status == "cancelled"
    # A cancel of an idle session has nothing to stop: what serves is no part of any work.
    await cancel(agent.wire, session_id)
    await agent.wire.prompt(session_id, "Go on")
    await agent.wire.idle(session_id, 3)
    assert server.alive


async def test_what_the_turn_left_in_the_background_ends_with_it(
    agent: AgentProcess, service: ResponsesService, script: Script, session_id: str, server: Command
) -> None:
    call = exec_command(server.line, id="server", yield_time_ms=300)
    script.steps = [Step("Serve", [[call], [Text("It serves. "), Hold("model"), Text("Never said.")]])]
    await agent.wire.prompt(session_id, "Serve")
    await server.runs()
    await service.held("model")
    await cancel(agent.wire, session_id)
    await agent.wire.idle(session_id)
    await server.ended()
    assert agent.wire.updates(session_id, "state_update")[-1]["background"] == []


async def test_a_subagents_command_ends_with_the_work_of_its_root(
    agent: AgentProcess, service: ResponsesService, script: Script, session_id: str, command: Command
) -> None:
    script.steps = [
        Step("Look around", [[exec_command(command.line, yield_time_ms=LONG)], [Text("Never said.")]]),
        Step("Delegate", [[spawn_agent("Look around")], [Text("parent "), Hold("parent"), Text("done")]]),
    ]
    await agent.wire.prompt(session_id, "Delegate")
    await runs(agent.wire, command)
    await service.held("parent")
    await cancel(agent.wire, session_id)
    await agent.wire.idle(session_id)
    await command.ended()
    (announced, *_) = agent.wire.updates(session_id, "subagent_update")
    assert agent.wire.states(announced["sessionId"]) == ["running", "idle:cancelled"]
    assert agent.wire.updates(session_id, "state_update")[-1]["background"] == []


async def test_a_subagent_that_works_on_behind_an_idle_root_can_be_stopped(
    agent: AgentProcess, script: Script, session_id: str, command: Command
) -> None:
    script.steps = [
        Step("Look around", [[exec_command(command.line, yield_time_ms=LONG)], [Text("Never said.")]]),
        Step("Delegate", [[spawn_agent("Look around")], [Text("It is on its way.")]]),
    ]
    await agent.wire.prompt(session_id, "Delegate")
    await runs(agent.wire, command)
    await agent.wire.idle(session_id)
    (announced, *_) = agent.wire.updates(session_id, "subagent_update")
    child = announced["sessionId"]
    listed = [{"type": "subagent", "sessionId": child}]
    await agent.wire.until(lambda: agent.wire.updates(session_id, "state_update")[-1]["background"] == listed)
    await cancel(agent.wire, session_id)
    await agent.wire.until(lambda: agent.wire.updates(session_id, "state_update")[-1]["background"] == [])
    assert agent.wire.states(child) == ["running", "idle:cancelled"]
    # Its end is the last that is told of it.
    ended, call, idle = agent.wire.updates(child)[-3:]
    assert "exitStatus" in ended
    assert call["status"] == "cancelled"
    assert idle["sessionUpdate"] == "state_update"
    await command.ended()
    assert agent.wire.states(session_id)[:2] == ["running", "idle:end_turn"]
    # Those of later work run.
    script.steps = [Step("Again", [[Text("Yes.")]])]
    await agent.wire.prompt(session_id, "Again")
    await agent.wire.idle(session_id, 2)


@pytest.mark.parametrize("how", ["the prompt", "all work"])
async def test_a_prompt_that_a_hook_holds_can_be_withdrawn(
    env: dict[str, str], folder: Path, cwd: str, service: ResponsesService, how: str
) -> None:
    os.mkfifo(folder / "hook")
    trust_hook(env, "UserPromptSubmit", f"if grep -q Slow; then echo held > {folder / 'hook'}; sleep 1000; fi")
    async with agent_process(env) as agent:
        await agent.wire.initialize()
        session_id = await agent.wire.new(cwd)
        first = await agent.wire.prompt(session_id, "First", key="1")
        await agent.wire.idle(session_id)
        request = await agent.wire.begin("session/prompt", prompt_params(session_id, "Slow", "2"))
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync((folder / "hook").read_text, abandon_on_cancel=True)
        if how == "the prompt":
            await agent.wire.cancel(request)
        else:
            await cancel(agent.wire, session_id)
        with pytest.raises(WireError) as refused:
            await agent.wire.answer(request)
        assert refused.value.code == -32800
        await agent.wire.idle(session_id, 2)
        second = await agent.wire.prompt(session_id, "Second", key="3")
        await agent.wire.idle(session_id, 3)
        assert await agent.close() == 0
    assert stored_ids(env, session_id) == [first, second]
    assert not any("Slow" in text for asked in service.requests for text in asked.inputs)


async def git(cwd: Path, *arguments: str) -> None:
    await anyio.run_process(["git", "-c", "user.name=n", "-c", "user.email=n@n", *arguments], cwd=cwd)


@pytest.mark.parametrize("fresh", [True, False])
async def test_what_fails_before_it_is_a_turn_ends_with_codex_s_own_words(
    agent: AgentProcess, env: dict[str, str], tmp_path: Path, fresh: bool
) -> None:
    """Codex tells no turn of it, neither its beginning nor its end."""
    session_id, turns = await agent.wire.new(str(tmp_path)), 0
    if not fresh:
        await agent.wire.prompt(session_id, "Hello")
        turns = 1
        await agent.wire.idle(session_id)
    for command in ("/review-branch main", "/review-branch other"):
        await agent.wire.prompt(session_id, command)
        turns += 1
        await agent.wire.idle(session_id, turns)
        idle = agent.wire.updates(session_id, "state_update")[-1]
        assert idle["stopReason"] == "error"
        assert "is not a git repository" in idle["error"]["message"]
        assert "usage" not in idle
    # Codex calls the next turn failed for the same reason; it is stored as completed.
    for prompt in ("/compact", "Go on") if not fresh else ("Go on", "Again"):
        await agent.wire.prompt(session_id, prompt)
        turns += 1
        await agent.wire.idle(session_id, turns)
        assert agent.wire.updates(session_id, "state_update")[-1]["stopReason"] == "end_turn"
    await git(tmp_path, "init", "-q", "-b", "main")
    await git(tmp_path, "commit", "-q", "--allow-empty", "-m", "m")
    await agent.wire.prompt(session_id, "/review-branch main")
    await agent.wire.idle(session_id, turns + 1)
    assert agent.wire.updates(session_id, "state_update")[-1]["stopReason"] == "end_turn"
    await agent.wire.request("session/close", {"sessionId": session_id})
    assert len(codex_pids(env)) == 1


async def test_a_review_can_be_cancelled(
    agent: AgentProcess, service: ResponsesService, script: Script, cwd: str
) -> None:
    """It begins under another id than it ends under."""
    script.steps = [Step("Look at it", [[Text("I look "), Hold("review"), Text("and see.")]])]
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "/review Look at it")
    await service.held("review")
    await cancel(agent.wire, session_id)
    await agent.wire.idle(session_id)
    assert agent.wire.states(session_id) == ["running", "idle:cancelled"]
    await agent.wire.prompt(session_id, "Go on")
    await agent.wire.idle(session_id, 2)
