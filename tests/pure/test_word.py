"""Waiting for a session's next word."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from sayagain.runtime.word import Word


async def test_everybody_who_waits_is_woken_once() -> None:
    word = Word()
    woken: list[str] = []

    async def wait(name: str) -> None:
        await word.wait()
        woken.append(name)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for name in "ab":
                tasks.start_soon(wait, name)
            with anyio.CancelScope() as given_up:
                tasks.start_soon(checkpoint)
                await anyio.wait_all_tasks_blocked()
                given_up.cancel()
                await word.wait()
            word.wake()
            await anyio.wait_all_tasks_blocked()
            assert sorted(woken) == ["a", "b"]
            word.wake()
            tasks.start_soon(wait, "later")
            await anyio.wait_all_tasks_blocked()
            assert "later" not in woken
            word.wake()
    assert "later" in woken
