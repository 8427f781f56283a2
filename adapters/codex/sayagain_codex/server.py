"""The one app-server process of a runtime: started when it is needed, and again after it ended.

Everything that it says is routed by ``threadId`` alone. A child thread has no start that is told: its first sign comes
before the item of its parent that names it (measured), so its messages wait until Codex has said whose child it is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVarTuple

import anyio
import anyio.abc

from sayagain.errors import RuntimeDied, RuntimeFault, RuntimeMissing, RuntimeTimeout
from sayagain.protocol.loose import as_mapping, as_text
from sayagain_codex.app_server import AppServer, AppServerError, RequestId
from sayagain_codex.command import CLIENT_INFO
from sayagain_codex.executable import INSTALL, check_version
from sayagain_codex.launch import Launcher
from sayagain_codex.patience import Patience
from sayagain_codex.translate.approvals import METHODS

__all__ = ["Servers", "Thread"]

logger = logging.getLogger(__name__)

WAITING: Final = 10_000
"""Messages of threads that nobody has claimed yet, before the oldest thread is given up: a child is claimed within
milliseconds, so this many mean that something else is wrong."""

RACES: Final = (0.1, 0.2, 0.4, 0.8)
"""Seconds before another try when several processes make the databases of a new folder at once: all but one may end
with an error (measured: 7 of 16, when two are started together)."""

_RACE: Final = "failed to initialize sqlite"

Params = Mapping[str, Any]
Arguments = TypeVarTuple("Arguments")


class Thread(Protocol):
    """A session, as its threads see it. Plain calls, made by the reader."""

    def notified(self, method: str, params: Params) -> None:
        """A notification of one of the session's threads."""
        ...

    def asked(self, request_id: RequestId, method: str, params: Params) -> None:
        """A request of one of the session's threads."""
        ...

    def announced(self, method: str, params: Params) -> None:
        """A notification that belongs to no thread."""
        ...

    async def store(self, server: AppServer) -> None:
        """This process is about to be ended in order: what it alone knows is stored."""
        ...

    def died(self, detail: str) -> None:
        """The process is gone."""
        ...


class Servers:
    """``starting`` is called before each new process; ``heard`` with what has no thread."""

    def __init__(
        self,
        launcher: Launcher,
        patience: Patience,
        tasks: anyio.abc.TaskGroup,
        *,
        starting: Callable[[], None],
        heard: Callable[[str, Params], None],
    ) -> None:
        self._launcher = launcher
        self._patience = patience
        self._tasks = tasks
        self._starting = starting
        self._heard = heard
        self._lock = anyio.Lock()
        self._server: AppServer | None = None
        self._failed = 0
        """Starts that failed."""
        self._fault: RuntimeFault | None = None
        """Of the last one of these."""
        self._threads: dict[str, Thread] = {}
        self._unclaimed: dict[str, list[tuple[RequestId | None, str, Params]]] = {}
        self._strangers: set[str] = set()

    async def get(self) -> AppServer:
        """The running process; starts one.

        What is asked of it without waiting for anything else is answered before another process takes its place.

        Raises :class:`~sayagain.errors.RuntimeMissing`, :class:`~sayagain.errors.RuntimeDied` and
        :class:`~sayagain.errors.RuntimeTimeout`.
        """
        failed = self._failed
        async with self._lock:
            return await self._running() or await self._try_to_start(failed)

    async def sign_in(self, api_key: str | None) -> AppServer:
        """Go on with a process that has this key in memory, or none and so the login that is stored.

        One that has it already stays. A key that Codex refuses, as its configuration may tell it to, is not kept: it
        would be in the way of everything. Raises what :meth:`get` raises, and
        :class:`~sayagain_codex.app_server.AppServerError`.
        """
        failed = self._failed
        async with self._lock:
            before, server = self._launcher.api_key, await self._running()
            if server is not None and before == api_key:
                return server
            if server is not None:
                await self._replace(server)
            self._launcher.api_key = api_key
            try:
                return await self._try_to_start(failed)
            except BaseException:
                if api_key is not None:
                    self._launcher.api_key = before
                raise

    async def _running(self) -> AppServer | None:
        if self._server is not None and not self._server.running:
            await self._server.gone.wait()
            self._server = None
        return self._server

    async def restart(self, server: AppServer) -> None:
        """End this process in order, unless another one has taken its place; the next :meth:`get` starts another."""
        async with self._lock:
            if self._server is server and server.running:
                await self._replace(server)

    async def stop(self) -> None:
        """End the process in order."""
        async with self._lock:
            if self._server is not None:
                await self._finish(self._server)

    async def _replace(self, server: AppServer) -> None:
        """Who waits for an answer gets it, and no thread is lost; a turn that runs is cut."""
        with anyio.move_on_after(self._patience.answer):
            await server.unused()
            for session in set(self._threads.values()):
                with suppress(RuntimeFault):
                    await session.store(server)
            await server.unused()
        await self._finish(server)

    async def _finish(self, server: AppServer) -> None:
        server.retired = True
        with anyio.CancelScope(shield=True):
            await server.finish()
            await server.gone.wait()
        self._server = None

    async def _try_to_start(self, failed: int) -> AppServer:
        """``failed`` counts the failures before it was asked for: one that was waited for meanwhile is the outcome."""
        if self._fault is not None and self._failed != failed:
            raise self._fault
        try:
            self._server = await self._start_among_others()
        except AppServerError:
            raise  # of who signs in: with another login it starts
        except RuntimeFault as fault:
            self._failed += 1
            self._fault = fault
            raise
        self._fault = None
        return self._server

    async def _start_among_others(self) -> AppServer:
        for pause in RACES:
            try:
                return await self._start()
            except RuntimeMissing as fault:
                if _RACE not in str(fault):
                    raise
                logger.info("another Codex makes its databases in the same folder; this one is started again")
                await anyio.sleep(pause)
        return await self._start()

    async def _start(self) -> AppServer:
        launched = await self._launcher.take()
        self._starting()
        server = AppServer(launched.process, self, self._patience)
        self._tasks.start_soon(self._guard, server, self._run, server)
        try:
            hello = await _greet(server, launched.executable)
            check_version(hello.get("userAgent"), launched.executable)
            await server.notify("initialized")
            if launched.api_key is not None:
                await server.request("account/login/start", {"type": "apiKey", "apiKey": launched.api_key})
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await server.kill()
                await server.gone.wait()
            if isinstance(error, RuntimeTimeout):
                raise RuntimeTimeout(
                    f"{launched.executable} did not answer when it was started, and was ended"
                ) from error
            if isinstance(error, RuntimeDied):
                text = f"{launched.executable} ended while it started"
                text = text if server.status is None else f"{text} ({server.status})"
                # Killed from outside, so another try may work: what cannot start says so by its exit code, and why.
                if server.status is not None and server.status.signal is not None:
                    raise RuntimeDied(text) from error
                raise RuntimeMissing(f"{text}: {server.complaint or INSTALL}") from error
            raise
        return server

    async def _run(self, server: AppServer) -> None:
        try:
            await self._guard(server, server.run)
            self._unclaimed.clear()
            self._strangers.clear()
            sessions = set(self._threads.values())
            self._threads.clear()
            for session in sessions:
                _tell(session.died, "Codex was started again" if server.retired else f"Codex ended ({server.status})")
        finally:
            server.gone.set()

    async def _guard(
        self, server: AppServer | None, work: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments
    ) -> None:
        """What fails here is no session's. It ends the process, after which all sessions settle, not the agent."""
        try:
            await work(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the agent
            logger.error("work for all sessions failed unexpectedly (%s); Codex is ended", type(error).__name__)
            if server is not None:
                with suppress(Exception):
                    await server.kill()

    # Routes.

    def route(self, thread_id: str, session: Thread) -> None:
        """From now on this thread's messages are the session's; what waits is delivered first."""
        self._threads[thread_id] = session
        self._strangers.discard(thread_id)
        for request_id, method, params in self._unclaimed.pop(thread_id, ()):
            self._deliver(session, request_id, method, params)

    def unroute(self, session: Thread) -> None:
        """The session is closed."""
        for thread_id in self.threads_of(session):
            del self._threads[thread_id]
            self._strangers.add(thread_id)

    def threads_of(self, session: Thread) -> list[str]:
        """The session's own thread and its children's."""
        return [thread_id for thread_id, owner in self._threads.items() if owner is session]

    def notified(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.app_server.Listener`."""
        thread_id = _thread_of(params)
        if thread_id is None:
            self._heard(method, params)
            for session in set(self._threads.values()):
                _tell(session.announced, method, params)
        else:
            self._pass_on(thread_id, None, method, params)

    def asked(self, request_id: RequestId, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.app_server.Listener`."""
        thread_id = _thread_of(params)
        if thread_id is not None and thread_id not in self._strangers and method in METHODS:
            self._pass_on(thread_id, request_id, method, params)
        elif self._server is not None:
            self._refuse(self._server, request_id, method)

    def _refuse(self, server: AppServer, request_id: RequestId, method: str) -> None:
        self._tasks.start_soon(self._guard, server, server.refuse, request_id, -32601, f"{method} is not served")

    def _pass_on(self, thread_id: str, request_id: RequestId | None, method: str, params: Params) -> None:
        session = self._threads.get(thread_id)
        if session is not None:
            self._deliver(session, request_id, method, params)
        elif thread_id not in self._strangers:
            if thread_id not in self._unclaimed:
                self._tasks.start_soon(self._guard, self._server, self._claim, self._server, thread_id)
            self._unclaimed.setdefault(thread_id, []).append((request_id, method, params))
            if sum(map(len, self._unclaimed.values())) > WAITING:
                self._give_up(next(iter(self._unclaimed)))

    def _deliver(self, session: Thread, request_id: RequestId | None, method: str, params: Params) -> None:
        if request_id is None:
            _tell(session.notified, method, params)
        else:
            _tell(session.asked, request_id, method, params)

    async def _claim(self, server: AppServer | None, thread_id: str) -> None:
        """Ask Codex whose child a thread is."""
        ancestor: object = thread_id
        try:
            while server is not None and isinstance(ancestor, str) and thread_id in self._unclaimed:
                if session := self._threads.get(ancestor):
                    self.route(thread_id, session)
                    return
                answer = await server.request("thread/read", {"threadId": ancestor})
                ancestor = as_mapping(answer.get("thread")).get("parentThreadId")
        except (AppServerError, RuntimeDied) as error:
            logger.debug("a thread is nobody's: %s", error)
        except RuntimeFault as error:
            logger.warning("a thread could not be claimed: %s", error)
        self._give_up(thread_id)

    def _give_up(self, thread_id: str) -> None:
        """A thread of nobody's: such as one that was closed a moment ago."""
        waiting = self._unclaimed.pop(thread_id, None)
        if waiting is None:
            return
        self._strangers.add(thread_id)
        for request_id, method, _ in waiting:
            if request_id is not None and self._server is not None:
                self._refuse(self._server, request_id, method)


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


def _tell(take: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
    """One message that a session misunderstands must not keep others from it, nor the session from the next one."""
    try:
        take(*arguments)
    except Exception:
        logger.exception("a session could not take a message of Codex")


def _thread_of(params: Params) -> str | None:
    return as_text(params.get("threadId")) or as_text(as_mapping(params.get("thread")).get("id")) or None
