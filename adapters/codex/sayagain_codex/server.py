"""The one app-server process of a runtime: started when it is needed, again after it ended, and changed for a login.

A login belongs to the process that has it, so another one means another process. That is started first: while it may
still be refused, the one that is there stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.abc

from sayagain.errors import RuntimeDied, RuntimeFault, RuntimeMissing, RuntimeTimeout
from sayagain_codex.app_server import AppServer, AppServerError, Use
from sayagain_codex.command import CLIENT_INFO
from sayagain_codex.executable import INSTALL, check_version
from sayagain_codex.launch import Launched, Launcher
from sayagain_codex.patience import Patience
from sayagain_codex.routes import Heard, Owner, Routes
from sayagain_codex.watch import watch

__all__ = ["Servers"]

logger = logging.getLogger(__name__)

RACES: Final = (0.1, 0.2, 0.4, 0.8)
"""Seconds before another try when several processes make the databases of a new folder at once: all but one may end
with an error (measured: 7 of 16, when two are started together)."""

_RACE: Final = "failed to initialize sqlite"

Params = Mapping[str, Any]


class Servers:
    """``starting`` is called before each new process; ``heard`` with what has no thread."""

    def __init__(
        self,
        launcher: Launcher,
        patience: Patience,
        tasks: anyio.abc.TaskGroup,
        *,
        starting: Callable[[], None],
        heard: Heard,
    ) -> None:
        self._launcher = launcher
        self._patience = patience
        self._tasks = tasks
        self._starting = starting
        self._heard = heard
        self._lock = anyio.Lock()
        self._server: AppServer | None = None
        self._api_key: str | None = None
        """What the process signs in with; ``None``: it has the login that is stored."""
        self._failed = 0
        """How many starts have failed."""
        self._fault: RuntimeFault | None = None
        """What the last start failed with; ``None`` when it did not."""
        self._routes: dict[AppServer, Routes] = {}

    async def get(self) -> AppServer:
        """The running process; starts one. While another one takes its place, it is waited for.

        What is asked of it without waiting for anything else in between is answered by it; later it may raise
        :class:`~sayagain_codex.app_server.Leaving`.

        Raises :class:`~sayagain.errors.RuntimeMissing`, :class:`~sayagain.errors.RuntimeDied` and
        :class:`~sayagain.errors.RuntimeTimeout`.
        """
        failed = self._failed
        async with self._lock:
            server = await self._running()
            if server is None:
                server = self._server = await self._try_to_start(failed, self._api_key)
            return server

    async def sign_in(self, api_key: str | None) -> AppServer:
        """Go on with a process that has this key in memory, or none and so the login that is stored.

        One that has it already stays, and so does one whose successor does not start, or is refused the key, as its
        configuration may tell Codex to. Raises what :meth:`get` raises, and
        :class:`~sayagain_codex.app_server.AppServerError`.
        """
        failed = self._failed
        async with self._lock:
            server = await self._running()
            if server is None or self._api_key != api_key:
                return await self._change(server, await self._try_to_start(failed, api_key), api_key)
            return server

    @asynccontextmanager
    async def for_login(self) -> AsyncGenerator[AppServer]:
        """A process that stores a login, for the user to sign in there.

        It is the one that is there; or one beside it, when that has a key in memory, which is not lost if nobody signs
        in: the other takes its place when the block is left in order. Raises what :meth:`get` raises.
        """
        failed = self._failed
        async with self._lock:
            server = await self._running()
            if server is None or self._api_key is not None:
                beside = await self._try_to_start(failed, None)
                server = beside if server is not None else await self._change(None, beside, None)
        if server is self._server:
            yield server
            return
        try:
            yield server
            async with self._lock:
                await self._change(await self._running(), server, None)
        except BaseException:
            if self._server is not server:
                await self._end(server)
            raise

    async def look_again(self, server: AppServer, accept: Callable[[AppServer], Awaitable[bool]]) -> AppServer | None:
        """A process that reads anew what is stored takes the place of this one, if it is accepted; ``None`` if not.

        Another one that has taken its place already is as good. Raises what :meth:`get` and ``accept`` raise.
        """
        failed = self._failed
        async with self._lock:
            running = await self._running()
            if running is not None and running is not server:
                return running if await accept(running) else None
            new = await self._try_to_start(failed, self._api_key)
            try:
                accepted = await accept(new)
            except BaseException:
                await self._end(new)
                raise
            if accepted or running is None:
                await self._change(running, new, self._api_key)
            else:
                await self._end(new)
            return new if accepted else None

    async def stop(self) -> None:
        """End the process in order."""
        async with self._lock:
            server, self._server = self._server, None
            if server is not None:
                await self._end(server)

    # Threads.

    def route(self, server: AppServer, thread_id: str, owner: Owner) -> None:
        """From now on this thread's messages are the session's; what waits is delivered first."""
        if (routes := self._routes.get(server)) is not None:
            routes.route(thread_id, owner)

    def unroute(self, server: AppServer, owner: Owner) -> None:
        """The session is closed."""
        if (routes := self._routes.get(server)) is not None:
            routes.unroute(owner)

    def threads_of(self, server: AppServer, owner: Owner) -> list[str]:
        """The session's own thread and its children's, as far as the process has them."""
        routes = self._routes.get(server)
        return [] if routes is None else routes.threads_of(owner)

    # One process after the other.

    async def _running(self) -> AppServer | None:
        if self._server is not None and not self._server.running:
            await self._server.gone.wait()
            self._server = None
        return self._server

    async def _change(self, old: AppServer | None, new: AppServer, api_key: str | None) -> AppServer:
        """Put another process in the place of this one.

        Who waits for an answer gets it, within the patience for one, and no thread is lost; a turn that runs is cut.
        What is done by half would be worse than either, so it is not cancelled.
        """
        try:
            if old is not None:
                old.leave()
                with anyio.CancelScope(shield=True):
                    with anyio.move_on_after(self._patience.answer):
                        await old.unused()
                    await self._store(old)
                    await self._end(old)
        finally:
            self._server, self._api_key = new, api_key
        return new

    async def _store(self, server: AppServer) -> None:
        routes = self._routes.get(server)
        if routes is None:
            return

        async def store(owner: Owner) -> None:
            try:
                await owner.store(Use(server))
            except RuntimeFault as error:
                logger.warning("a session was not stored before its process ended (%s)", type(error).__name__)

        async with anyio.create_task_group() as tasks:
            for owner in routes.owners:
                tasks.start_soon(server.guard, store, owner)

    async def _end(self, server: AppServer) -> None:
        server.leave()
        with anyio.CancelScope(shield=True):
            await server.finish()
            await server.gone.wait()

    # The start.

    async def _try_to_start(self, failed: int, api_key: str | None) -> AppServer:
        """``failed`` counts the failures before it was asked for: one that was waited for meanwhile is the outcome."""
        if self._fault is not None and self._failed != failed:
            raise self._fault.with_traceback(None)
        try:
            server = await self._start_among_others(api_key)
        except AppServerError:
            raise  # of who signs in: with another login it starts
        except RuntimeFault as fault:
            self._failed += 1
            self._fault = fault
            raise
        self._fault = None
        return server

    async def _start_among_others(self, api_key: str | None) -> AppServer:
        pauses = iter(RACES)
        while True:
            launched = await self._launcher.take(ephemeral_login=api_key is not None)
            try:
                return await self._start(launched, api_key)
            except (RuntimeDied, RuntimeMissing) as fault:
                if not launched.ahead:
                    pause = next(pauses, None) if _RACE in str(fault) else None
                    if pause is None:
                        raise
                    logger.info("another Codex makes its databases in the same folder; this one is started again")
                    await anyio.sleep(pause)

    async def _start(self, launched: Launched, api_key: str | None) -> AppServer:
        self._starting()
        routes = Routes(self._tasks, self._heard)
        server = AppServer(launched.process, routes, self._patience)
        self._routes[server] = routes
        self._tasks.start_soon(server.guard, self._run, server, routes)
        self._tasks.start_soon(server.guard, watch, server, routes.work, self._patience.answer)
        try:
            hello = await _greet(server, launched.executable)
            check_version(hello.get("userAgent"), launched.executable)
            await server.notify("initialized")
            if api_key is not None:
                await server.request("account/login/start", {"type": "apiKey", "apiKey": api_key})
        except RuntimeTimeout as error:
            await self._end(server)
            raise RuntimeTimeout(f"{launched.executable} did not answer when it was started, and was ended") from error
        except RuntimeDied as error:
            await self._end(server)
            raise await self._early_end(server, launched.executable) from error
        except BaseException:
            # Not killed: it may be at work on its own files.
            await self._end(server)
            raise
        return server

    async def _early_end(self, server: AppServer, executable: str) -> RuntimeFault:
        """Killed from outside, so another try may work: what cannot start says so by its exit code, and why."""
        text = f"{executable} ended while it started"
        if server.status is not None:
            text = f"{text} ({server.status})"
            if server.status.signal is not None:
                return RuntimeDied(text)
        try:
            # One without an app-server ends in its own way.
            fits = check_version(await self._launcher.version(executable), executable)
        except RuntimeMissing as too_old:
            return too_old
        advice = () if fits and server.complaint else (INSTALL,)
        return RuntimeMissing(". ".join((f"{text}: {server.complaint}" if server.complaint else text, *advice)))

    async def _run(self, server: AppServer, routes: Routes) -> None:
        try:
            await server.guard(server.run)
            del self._routes[server]
            routes.died("Codex was started again" if server.leaving else f"Codex ended ({server.status})")
        finally:
            server.gone.set()


async def _greet(server: AppServer, executable: str) -> Params:
    try:
        hello: Params = await server.request(
            "initialize", {"clientInfo": CLIENT_INFO, "capabilities": {"experimentalApi": True}}
        )
    except (RuntimeDied, RuntimeTimeout):
        raise
    except RuntimeFault as error:
        raise RuntimeMissing(f"{executable} does not answer as Codex does: {error}. {INSTALL}") from error
    return hello
