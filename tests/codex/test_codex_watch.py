"""When Codex is asked whether it lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from sayagain.errors import RuntimeDied
from sayagain_codex.watch import watch

SHORT = 0.01


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Server:
    """Is gone when it was asked ``lives`` times and once more."""

    def __init__(self, lives: int) -> None:
        self.heard = anyio.current_time()
        self.gone = anyio.Event()
        self.asked = 0
        self._lives = lives

    async def request(self, method: str, params: Mapping[str, Any]) -> None:
        assert method == "thread/loaded/list"
        assert anyio.current_time() >= self.heard + SHORT
        self.asked += 1
        if self.asked > self._lives:
            self.gone.set()
            raise RuntimeDied
        self.heard = anyio.current_time()


async def watched(server: Server, works: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        await watch(server, works, SHORT)  # type: ignore[arg-type]


async def test_silence_is_asked_about_again_and_again() -> None:
    server = Server(lives=3)
    await watched(server, lambda: True)
    assert server.asked == 4


async def test_nobody_asks_while_nothing_works() -> None:
    server, looks = Server(lives=0), iter([False, False, False, True])
    await watched(server, lambda: next(looks))
    assert server.asked == 1
    assert next(looks, None) is None


async def test_who_speaks_is_not_asked() -> None:
    server, looks = Server(lives=0), 0

    def works() -> bool:
        nonlocal looks
        looks += 1
        if looks < 4:
            # A word that came just now.
            server.heard = anyio.current_time()
        return True

    await watched(server, works)
    assert (looks, server.asked) == (4, 1)


async def test_a_process_that_is_gone_is_left_alone() -> None:
    server = Server(lives=0)
    server.gone.set()
    await watched(server, lambda: True)
    assert server.asked == 0
