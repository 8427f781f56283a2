"""Time in which nobody listens to the CLI is not the CLI's (a client that reads slowly)."""

from __future__ import annotations

from math import inf

import anyio
import pytest
from anyio.lowlevel import checkpoint

from sayagain.errors import RuntimeTimeout
from sayagain_claude.clock import Clock


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


async def forever() -> None:
    await anyio.sleep(inf)


async def test_a_limit_that_is_over() -> None:
    with pytest.raises(RuntimeTimeout):
        await Clock().within(0, forever())


async def test_what_is_done_in_time() -> None:
    async def answer() -> str:
        await checkpoint()
        return "answer"

    clock = Clock()
    assert await clock.within(3600, answer()) == "answer"
    clock.stop()
    assert await clock.within(0, answer()) == "answer"


async def test_a_limit_that_begins_while_the_clock_is_stopped() -> None:
    clock, ended = Clock(), anyio.Event()

    async def limited() -> None:
        with pytest.raises(RuntimeTimeout):
            await clock.within(0, forever())
        ended.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            clock.stop()
            tasks.start_soon(limited)
            await anyio.wait_all_tasks_blocked()
            assert not ended.is_set()
            clock.go()
            await ended.wait()


async def test_a_limit_stands_still_while_the_clock_is_stopped() -> None:
    clock = Clock()

    async def work() -> None:
        clock.stop()
        clock.stop()
        assert anyio.current_effective_deadline() == inf
        clock.go()
        clock.go()
        assert anyio.current_effective_deadline() - anyio.current_time() == pytest.approx(3600, abs=60)

    await clock.within(3600, work())


async def test_what_ended_while_the_clock_stood_is_forgotten() -> None:
    clock = Clock()
    clock.stop()
    with anyio.move_on_after(0):
        await clock.within(0, forever())
    clock.go()
    with anyio.CancelScope() as scope:
        await clock.within(3600, checkpoint())
    assert not scope.cancelled_caught
