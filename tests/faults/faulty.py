"""The faults, and what follows each of them: the same prompt again, on what still lives and on a new process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from faults.harness import Agent, Rig
from faults.points import Case, LetGo, Point, prepared

__all__ = ["FAULTS", "applies", "strike"]

Fault = Callable[[Agent], Awaitable[None]]


async def kill_adapter(agent: Agent) -> None:
    await agent.kill()


async def kill_runtime(agent: Agent) -> None:
    agent.kill_runtime()


async def kill_both(agent: Agent) -> None:
    agent.kill_runtime()
    await agent.kill()


async def stop_runtime(agent: Agent) -> None:
    agent.stop_runtime()


async def close_input(agent: Agent) -> None:
    agent.pipes.connection.cut = True
    agent.pipes.close_write()


async def close_output(agent: Agent) -> None:
    agent.pipes.connection.cut = True
    agent.pipes.close_read()


async def close_both(agent: Agent) -> None:
    await close_input(agent)
    await close_output(agent)


FAULTS: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (kill_adapter, kill_runtime, kill_both, stop_runtime, close_input, close_output, close_both)
}
"""That the client restarts is :func:`close_both` for the agent."""

IN_WORK = {"half_written", "written_not_read", "during_the_turn", "held_behind_other_work"}
"""Points with work under way whose prompt is answered: when that hangs, it is the user who stops it."""


def applies(point: Point, fault: str) -> bool:
    return point.has_runtime or fault not in ("kill_runtime", "stop_runtime")


async def strike(rig: Rig, point: Point, fault: str) -> None:
    """One fault at one point, all retries after it, and a clean end. The evidence is the rig's."""
    env = {"SAYAGAIN_PATIENCE": "1"} if fault == "stop_runtime" else {}
    async with prepared(rig, point, **env) as (case, agent):
        let_go = await point.reach(case, agent)
        assert case.is_stored == point.stored
        await FAULTS[fault](agent)
        if fault in ("kill_runtime", "stop_runtime"):
            await _go_on(case, agent, let_go, cancel=fault == "stop_runtime" and point.name in IN_WORK)
        elif fault.startswith("close_"):
            await _wait_for_the_end(agent, let_go)
        else:
            await let_go()
    await retry_on_new_processes(case)


async def _go_on(case: Case, agent: Agent, let_go: LetGo, *, cancel: bool) -> None:
    """The adapter lives: the open request is answered, and a retry on the same connection too."""
    agent.thaw()
    await let_go()
    agent.pipes.read_on()
    if cancel:
        await agent.wire.notify("session/cancel", {"sessionId": case.session_id})
    assert case.request_id is not None
    await agent.outcome(case.request_id)
    assert await insist(agent, case) == case.message_id
    await probe(agent, case, "The prompt on the same connection")
    await agent.closed_in_order()


async def _wait_for_the_end(agent: Agent, let_go: LetGo) -> None:
    """The client is gone, wholly or by half: the adapter ends by itself once its input has ended."""
    agent.thaw()
    await let_go()
    agent.pipes.close_write()
    assert await agent.ended() == 0


async def retry_on_new_processes(case: Case) -> None:
    """Reconnect, initialize, resume with replay, the same prompt under the same key; then the next one, and again."""
    async with case.rig.agent() as agent:
        await agent.wire.resume(case.session_id, case.rig.cwd, replay=True)
        assert await insist(agent, case) == case.message_id
        await probe(agent, case, "The prompt after the restart")
        again = await agent.wire.begin("session/resume", case.replay)
        await agent.wire.answer(again)
        await agent.closed_in_order()
        first = agent.name, again
    async with case.rig.agent() as agent:
        again = await agent.wire.begin("session/resume", case.replay)
        await agent.wire.answer(again)
        assert await insist(agent, case) == case.message_id
        await agent.closed_in_order()
        case.rig.same_bytes.append([first, (agent.name, again)])


async def insist(agent: Agent, case: Case) -> str | int:
    """The same prompt under the same key, sent again as long as the answer is an error; few times, so none hangs."""
    for _ in range(3):
        outcome = await agent.outcome(await agent.begin_prompt(case.session_id, case.text, case.key))
        if isinstance(outcome, str):
            return outcome
    return outcome


async def probe(agent: Agent, case: Case, text: str) -> None:
    """The next well-formed prompt works: it is stored, and its turn ends well."""
    case.rig.note(text, None)
    request = await agent.begin_prompt(case.session_id, text, None)
    case.rig.probes.append((agent.name, request))
    message_id = await agent.outcome(request)
    start = agent.wire.answer_index(request)

    def ended_well() -> bool:
        return any(
            line["params"]["update"].get("stopReason") == "end_turn"
            for line in agent.wire.lines[start:]
            if isinstance(line, dict) and line.get("method") == "session/update"
        )

    if isinstance(message_id, str):
        await agent.wire.until(ended_well)
