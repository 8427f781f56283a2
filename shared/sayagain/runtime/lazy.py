"""A runtime whose implementation is imported once ``initialize`` is answered, or with the first request that needs it.

What a client is told first is four constants; what sessions are made of takes a third of the time until that answer to
import (35 of 105 ms, measured).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import anyio

if TYPE_CHECKING:
    from sayagain.runtime.capabilities import RuntimeCapabilities
    from sayagain.runtime.history import HistoryEntry
    from sayagain.runtime.seam import Runtime, RuntimeSession, SessionPage, SessionSetup

__all__ = ["LazyRuntime"]


class _Attempt:
    """To load the runtime, and what came of it."""

    def __init__(self) -> None:
        self.wanted = anyio.Event()
        self.over = anyio.Event()
        self.outcome: Runtime | Exception | None = None


class LazyRuntime:
    """Implements :class:`~sayagain.runtime.seam.Runtime`: answers for itself at first, passes all else on.

    ``load`` imports and makes the implementation. It lives in a task of its own, since the request that needs it first
    may be cancelled at any moment, and ends long before it. ``ahead`` is entered at once, around all of that: for what
    takes its time in another process. What ``load``, or to enter what it made, raises is told to every request that
    waits for it, as an exception of its own; the next one tries again.
    """

    def __init__(
        self,
        name: str,
        title: str,
        capabilities: RuntimeCapabilities,
        auth_methods: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]],
        load: Callable[[], Runtime],
        *,
        ahead: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        self.name = name
        self.title = title
        self.capabilities = capabilities
        self._auth_methods = auth_methods
        self._load = load
        self._ahead = ahead or nullcontext()
        self._attempt = _Attempt()
        self._leaving = anyio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._ahead)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._leave)
            tasks.start_soon(self._host)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    def _leave(self) -> None:
        self._leaving.set()
        self._attempt.wanted.set()

    async def _loaded(self) -> Runtime:
        attempt = self._attempt
        attempt.wanted.set()
        await attempt.over.wait()
        if isinstance(attempt.outcome, Exception):
            raise _again(attempt.outcome)
        assert attempt.outcome is not None
        return attempt.outcome

    async def _host(self) -> None:
        # Sessions are closed, and then the runtime is left, when everything around is cancelled already.
        with anyio.CancelScope(shield=True):
            while not self._leaving.is_set():
                await self._attempt.wanted.wait()
                if not self._leaving.is_set():
                    await self._serve(self._attempt)

    async def _serve(self, attempt: _Attempt) -> None:
        try:
            async with self._load() as attempt.outcome:
                attempt.over.set()
                await self._leaving.wait()
        except Exception as error:
            if attempt.over.is_set():
                raise
            # Told by the request that needed it; the next one tries again.
            self._attempt = _Attempt()
            attempt.outcome = error
            attempt.over.set()

    async def warm_up(self) -> None:
        """See the seam."""
        await (await self._loaded()).warm_up()

    def auth_methods(self, client_capabilities: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """See the seam."""
        return self._auth_methods(client_capabilities)

    async def login(self, method_id: str, params: Mapping[str, Any]) -> None:
        """See the seam."""
        await (await self._loaded()).login(method_id, params)

    async def logout(self) -> None:
        """See the seam."""
        await (await self._loaded()).logout()

    async def new(self, setup: SessionSetup) -> RuntimeSession:
        """See the seam."""
        return await (await self._loaded()).new(setup)

    async def resume(self, session_id: str, setup: SessionSetup) -> RuntimeSession:
        """See the seam."""
        return await (await self._loaded()).resume(session_id, setup)

    async def fork(self, session_id: str, setup: SessionSetup) -> RuntimeSession:
        """See the seam."""
        return await (await self._loaded()).fork(session_id, setup)

    async def list(self, *, cwd: str | None, cursor: str | None, archived: str = "exclude") -> SessionPage:
        """See the seam."""
        return await (await self._loaded()).list(cwd=cwd, cursor=cursor, archived=archived)

    async def stored(self, session_id: str) -> bool:
        """See the seam."""
        return await (await self._loaded()).stored(session_id)

    async def set_title(self, session_id: str, title: str) -> None:
        """See the seam."""
        await (await self._loaded()).set_title(session_id, title)

    async def archive(self, session_id: str, *, archived: bool) -> None:
        """See the seam."""
        await (await self._loaded()).archive(session_id, archived=archived)

    async def auth_status(self) -> Mapping[str, Any]:
        """See the seam."""
        return await (await self._loaded()).auth_status()

    async def delete(self, session_id: str) -> None:
        """See the seam."""
        await (await self._loaded()).delete(session_id)

    async def history(self, session_id: str, *, live: bool) -> AsyncGenerator[HistoryEntry]:
        """See the seam."""
        runtime = await self._loaded()
        from sayagain.runtime.history import closing

        async with closing(runtime.history(session_id, live=live)) as entries:
            async for entry in entries:
                yield entry

    async def message_ids(self, session_id: str) -> Set[str]:
        """See the seam."""
        return await (await self._loaded()).message_ids(session_id)


def _again(error: Exception) -> Exception:
    """The same error for one more task: each that raises it adds its frames to the traceback, and so keeps them alive.

    Made without ``__init__``, whose parameters differ from class to class.
    """
    kind, args, *state = cast("tuple[type[Exception], tuple[Any, ...], Any]", error.__reduce__())
    another = kind.__new__(kind, *args)
    if state:
        another.__setstate__(state[0])
    another.__cause__, another.__context__ = error.__cause__, error.__context__
    another.__suppress_context__ = error.__suppress_context__
    return another.with_traceback(error.__traceback__)
