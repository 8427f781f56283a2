"""No process outlives its adapter, and one adapter at a time stores messages in a session: on the real Claude Code."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from faults.harness import Agent, Rig, rig
from sayagain.processes import lease
from support_wire import WireError

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes pipes and watches processes by pidfd"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def run() -> AsyncIterator[Rig]:
    async with rig() as run:
        yield run


async def sigkill(agent: Agent) -> None:
    await agent.kill()


async def close(agent: Agent) -> None:
    assert await agent.close_input() == 0


async def terminate(agent: Agent) -> None:
    agent.signal(signal.SIGTERM)
    assert await agent.ended() == 0


async def interrupt(agent: Agent) -> None:
    agent.signal(signal.SIGINT)
    assert await agent.ended() == 0


async def hang_up(agent: Agent) -> None:
    agent.signal(signal.SIGHUP)
    assert await agent.ended() == 0


@pytest.mark.parametrize("end", [sigkill, close, terminate, interrupt])
async def test_nothing_survives_an_adapter_that_ends_during_a_tool(
    run: Rig, end: Callable[[Agent], Awaitable[None]]
) -> None:
    run.note("tool one", "key-of-one")
    async with run.agent() as agent:
        agent.wire.handle(
            "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        )
        session_id = await agent.wire.new(run.cwd)
        message_id = await agent.wire.prompt(session_id, "tool one", "key-of-one")
        await run.tool_runs()
        # The tool's child may be its shell still, which is about to become `tail`.
        assert {process.name() for process in run.left_running()} & {"tail", "sh", "bash", "zsh"}
        agent.pipes.connection.cut = True
        await end(agent)
        assert await run.nothing_left() == []
        (await lease.acquire(Path(run.env["CLAUDE_CONFIG_DIR"]), session_id, patience=0)).release()
    async with run.agent() as agent:
        await agent.wire.resume(session_id, run.cwd, replay=True)
        assert await agent.wire.prompt(session_id, "tool one", "key-of-one") == message_id
        await agent.closed_in_order()
    assert run.violations() == []


@pytest.mark.parametrize(("end", "replay"), [(sigkill, True), (close, False)])
async def test_a_second_adapter_may_look_and_takes_over_in_the_end(
    run: Rig, end: Callable[[Agent], Awaitable[None]], *, replay: bool
) -> None:
    for number in ("one", "two", "three"):
        run.note(f"Prompt {number}", f"key-of-{number}")
    async with run.agent() as first, run.agent() as second:
        session_id = await first.wire.new(run.cwd)
        await first.wire.prompt(session_id, "Prompt one", "key-of-one")
        await first.wire.idle(session_id)
        await second.wire.resume(session_id, run.cwd, replay=replay)
        assert len(second.wire.updates(session_id, "replay_complete")) == replay
        with pytest.raises(WireError) as caught:
            await second.wire.prompt(session_id, "Prompt two", "key-of-two")
        assert (caught.value.code, caught.value.data) == (-32603, {"reason": "session_in_use"})
        # Stored behind the second one's back, after it has read the history.
        two = await first.wire.prompt(session_id, "Prompt two", "key-of-two")
        await first.wire.idle(session_id, 2)
        await end(first)
        assert await second.wire.prompt(session_id, "Prompt two", "key-of-two") == two
        three = await second.begin_prompt(session_id, "Prompt three", "key-of-three")
        run.probes.append((second.name, three))
        await second.outcome(three)
        await second.closed_in_order()
    assert await run.nothing_left() == []
    assert run.violations() == []


async def test_adapters_that_share_nothing_but_the_sessions_exclude_each_other(run: Rig, tmp_path: Path) -> None:
    run.note("Prompt one", "key-of-one")
    # As one in an editor's sandbox beside one in a terminal.
    elsewhere = {name: str(tmp_path) for name in ("HOME", "XDG_STATE_HOME", "SAYAGAIN_STATE_DIR")}
    async with run.agent() as first, run.agent(**elsewhere) as second:
        session_id = await first.wire.new(run.cwd)
        await first.wire.prompt(session_id, "Prompt one", "key-of-one")
        await first.wire.idle(session_id)
        await second.wire.resume(session_id, run.cwd)
        with pytest.raises(WireError) as caught:
            await second.wire.prompt(session_id, "Prompt two", "key-of-two")
        assert caught.value.data == {"reason": "session_in_use"}


@pytest.mark.parametrize("end", [terminate, hang_up])
async def test_a_signal_ends_an_idle_adapter(run: Rig, end: Callable[[Agent], Awaitable[None]]) -> None:
    async with run.agent() as agent:
        session_id = await agent.wire.new(run.cwd)
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
        await end(agent)
        assert await run.nothing_left() == []
