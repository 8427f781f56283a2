"""A runtime that is loaded late keeps the promises of the seam as the one behind it does."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self, cast

import anyio
import anyio.lowlevel
import pytest
from pytest_mock import MockerFixture

from contract.played import FakeDriver, PlayedRuntime
from sayagain.agent import Agent
from sayagain.errors import RuntimeFault
from sayagain.runtime.lazy import LazyRuntime
from sayagain.runtime.seam import Runtime, SessionSetup
from sayagain.testing.contract import CHECKS, Check
from sayagain.testing.fake_runtime import FakeRuntime
from sayagain_codex.runtime import CodexRuntime
from support_agent import World
from support_wire import INFO


def lazy(behind: FakeRuntime) -> LazyRuntime:
    return LazyRuntime("late", "Late", behind.capabilities, behind.auth_methods, lambda: behind)


class LazyDriver(FakeDriver):
    def runtime(self) -> Runtime:  # type: ignore[override]
        return lazy(PlayedRuntime(self))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_lazy_runtime(check: Check, tmp_path: Path) -> None:
    await check(LazyDriver(tmp_path))


async def test_initialize_is_answered_before_anything_is_loaded(mocker: MockerFixture) -> None:
    behind = FakeRuntime()
    warmed = anyio.Event()

    async def warm_up() -> None:
        warmed.set()
        raise OSError

    mocker.patch.object(behind, "warm_up", warm_up)
    load = mocker.Mock(return_value=behind)
    runtime = LazyRuntime("late", "Late", behind.capabilities, behind.auth_methods, load)
    with anyio.fail_after(5):
        async with runtime, Agent(runtime) as agent, anyio.create_task_group() as tasks:
            world = World(agent, behind, tasks)
            assert load.call_count == 0
            client = await world.connect(initialize=False)
            answer = await client.request("initialize", {"protocolVersion": 2, "info": INFO, "capabilities": {}})
            assert answer["info"]["name"] == "sayagain-late"
            await warmed.wait()
            await world.connect()
            tasks.cancel_scope.cancel()
    assert load.call_count == 1


class Ahead:
    def __init__(self) -> None:
        self.events: list[str] = []

    async def __aenter__(self) -> None:
        self.events.append("entered")
        await anyio.lowlevel.checkpoint()

    async def __aexit__(self, *_: object) -> None:
        self.events.append("left")


class Behind(FakeRuntime):
    def __init__(self, ahead: Ahead) -> None:
        super().__init__()
        self.ahead = ahead

    async def __aexit__(self, *error: Any) -> None:
        self.ahead.events.append("runtime left")
        await super().__aexit__(*error)


@pytest.mark.parametrize("needed", [True, False])
async def test_what_takes_its_time_begins_at_once_and_ends_last(needed: bool) -> None:
    ahead = Ahead()
    behind = Behind(ahead)
    with anyio.fail_after(5):
        runtime = LazyRuntime(
            "late", "Late", behind.capabilities, behind.auth_methods, lambda: behind, ahead=cast("Any", ahead)
        )
        async with runtime:
            assert ahead.events == ["entered"]
            if needed:
                await runtime.stored("none")
    assert ahead.events == ["entered", *(["runtime left"] if needed else []), "left"]


class Slow(FakeRuntime):
    """Takes its time to be entered."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = anyio.Event()
        self.go = anyio.Event()

    async def __aenter__(self) -> Self:
        self.begun.set()
        await self.go.wait()
        return self


async def test_the_request_that_loads_it_may_be_cancelled() -> None:
    behind = Slow()
    scope = anyio.CancelScope()

    async def ask() -> None:
        with scope:
            await runtime.stored("none")

    with anyio.fail_after(5):
        async with lazy(behind) as runtime:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await behind.begun.wait()
                scope.cancel()
            assert scope.cancelled_caught
            behind.go.set()
            assert await runtime.stored("none") is False


async def test_what_fails_to_load_is_told_and_tried_again(mocker: MockerFixture) -> None:
    behind = FakeRuntime()
    load = mocker.Mock(side_effect=[RuntimeFault("not now"), behind])
    with anyio.fail_after(5):
        async with LazyRuntime("late", "Late", behind.capabilities, behind.auth_methods, load) as runtime:
            with pytest.raises(RuntimeFault, match="not now"):
                await runtime.stored("none")
            assert await runtime.stored("none") is False


class Odd(RuntimeFault):
    """Not made again from its arguments, as many errors are not."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(detail)
        self.number = number


class Failing(Slow):
    async def __aenter__(self) -> Self:
        await super().__aenter__()
        raise Odd(7, "not now")


async def test_everybody_who_waited_is_told_by_an_exception_of_their_own() -> None:
    behind = Failing()
    faults: list[Odd] = []

    async def ask() -> None:
        with pytest.raises(Odd, match="not now") as caught:
            await runtime.stored("none")
        faults.append(caught.value)

    with anyio.fail_after(5):
        async with lazy(behind) as runtime:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                behind.go.set()
    assert len(set(map(id, faults))) == 3
    assert [fault.number for fault in faults] == [7, 7, 7]
    # None has the frames of another, and all have where it began.
    frames = [[frame.f_code.co_name for frame, _ in traceback.walk_tb(fault.__traceback__)] for fault in faults]
    assert frames[0] == frames[1] == frames[2]
    assert frames[0].count("ask") == 1
    assert frames[0][-1] == "__aenter__"


class Never(Ahead):
    """Takes for ever to be entered."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = anyio.Event()

    async def __aenter__(self) -> None:
        self.begun.set()
        await anyio.sleep_forever()


async def test_what_begins_at_once_may_be_cancelled_meanwhile() -> None:
    ahead = Never()
    behind = FakeRuntime()
    runtime = LazyRuntime(
        "late", "Late", behind.capabilities, behind.auth_methods, lambda: behind, ahead=cast("Any", ahead)
    )
    scope = anyio.CancelScope()

    async def enter() -> None:
        with scope:
            async with runtime:
                pytest.fail("it was never entered")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            await ahead.begun.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert ahead.events == []


async def test_codex_that_cannot_be_made_ready_is_told_and_left_in_order() -> None:
    behind = FakeRuntime()

    def load() -> Runtime:
        return CodexRuntime({"SAYAGAIN_PATIENCE": "soon"})

    with anyio.fail_after(5):
        async with LazyRuntime("late", "Late", behind.capabilities, behind.auth_methods, load) as runtime:
            for _ in range(2):
                with pytest.raises(RuntimeFault, match="SAYAGAIN_PATIENCE must be"):
                    await runtime.new(SessionSetup("/"))


def test_codex_says_what_it_is_without_its_sessions() -> None:
    program = (
        "import sys, sayagain_codex; runtime = sayagain_codex.create_runtime(); "
        "print(runtime.name, runtime.title, *(method['methodId'] for method in runtime.auth_methods({}))); "
        "print(*sorted(name for name in sys.modules if name.startswith('sayagain_codex.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.startswith("codex Codex api-key ")
    assert "sayagain_codex.about" in done.stdout
    assert "sayagain_codex.session" not in done.stdout
