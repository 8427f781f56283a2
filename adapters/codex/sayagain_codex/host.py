"""The thread of one session in the app-server, and the right to have it loaded.

Who may store is settled twice: our lease keeps other adapters away, Codex's own writer lock every other process, so
that an app-server which outlived its adapter for a moment is waited for before anything is looked up. (The lease is
this process's alone: one app-server serves many sessions and was started before their leases were taken.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio

from sayagain.errors import HistoryUnreadable, RuntimeDied, RuntimeFault, SessionInUse
from sayagain.processes import lease as leases
from sayagain.processes.lease import Lease
from sayagain.protocol.loose import as_mapping
from sayagain.runtime.seam import OWNER_PATIENCE, SessionSetup
from sayagain.runtime.tasks import SessionTasks
from sayagain_codex.app_server import AppServer, AppServerError, Use
from sayagain_codex.command import home, sqlite_home, thread_params
from sayagain_codex.damage import DamagedRow
from sayagain_codex.patience import Patience
from sayagain_codex.record import BeginningMissing, Record
from sayagain_codex.routes import Owner
from sayagain_codex.server import Servers
from sayagain_codex.threads import is_closing, is_written_elsewhere, thread_fault

__all__ = ["RETRY", "Host"]

logger = logging.getLogger(__name__)

RETRY: Final = 0.05
"""Seconds between two tries at what Codex refuses for a moment."""

Params = Mapping[str, Any]


class Host:
    """Holds the lease, and the app-server that has the thread loaded.

    ``owner`` gets what the thread says; ``loaded`` takes the answer to what loaded it, before the thread says anything.
    """

    def __init__(
        self,
        session_id: str,
        setup: SessionSetup,
        *,
        owner: Owner,
        loaded: Callable[[AppServer, Params], None],
        servers: Servers,
        env: Mapping[str, str],
        patience: Patience,
        tasks: SessionTasks,
    ) -> None:
        self._session_id = session_id
        self._setup = setup
        self._owner = owner
        self._loaded = loaded
        self._servers = servers
        self._env = env
        self._patience = patience
        self._tasks = tasks
        self._lease: Lease | None = None
        self._ownership = anyio.Lock()
        self._unloaded = anyio.Event()
        self._closed = False
        self._released = False
        self._loading: _Loading | None = None
        self._listed = False
        """Whether all that was stored is known to be listed since the thread was loaded."""
        self._configured: AppServer | None = None
        """Who was asked where it keeps its databases."""
        self.record = Record(home(env), session_id)
        self.server: AppServer | None = None
        """The process that has the thread loaded."""
        self.thread: Params = {}
        """The thread as Codex last described it whole."""

    @property
    def closed(self) -> bool:
        """Whether nothing will be loaded any more."""
        return self._closed

    @property
    def legacy(self) -> bool:
        """Whether the thread's history is of the older kind, which has no items of its own."""
        return self.thread.get("historyMode") == "legacy"

    async def own(self, patience: float = OWNER_PATIENCE) -> None:
        """Take the lease, and have the thread loaded.

        Raises :class:`~sayagain.errors.SessionInUse` after ``patience`` seconds, and what loading raises.
        """
        async with self._ownership:
            self._check_open()
            taken = self._lease is None
            if self._lease is None:
                self._lease = await leases.acquire(home(self._env), self._session_id, patience=patience)
            try:
                await self._load(patience)
            except BaseException:
                # What is loaded, or will be without us, keeps it until the session is closed.
                if taken and self._loading is None and self.server is None:
                    self._lease.release()
                    self._lease = None
                raise

    async def reload(self) -> AppServer:
        """The app-server that has the thread loaded, after the one that had it is gone."""
        async with self._ownership:
            self._check_open()
            return await self._load(OWNER_PATIENCE)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeDied("The session was closed")

    async def _load(self, patience: float) -> AppServer:
        start = anyio.current_time()
        refused = fresh = False
        while True:
            server = await self._servers.get()
            if self.server is server:
                if self._listed:
                    return server
                try:
                    await self._check_own(server)
                    self._listed = True
                except HistoryUnreadable:
                    if fresh or self.server is not None:
                        raise
                continue
            fresh = True
            loading = self._loading
            if loading is None or loading.server is not server:
                await self.record.check_files(self._session_id)
                if not refused:
                    # Codex takes far longer to load a thread than this takes.
                    self.record.search(self._tasks)
                loading = self._loading = _Loading(server)
                self._tasks.start_soon(self._ask, loading)
            await loading.done.wait()
            match loading.fault:
                case None if refused:
                    self.record.search(self._tasks)  # somebody wrote to it meanwhile
                case None:
                    pass
                case AppServerError() as error:
                    if anyio.current_time() >= start + self._passes_within(error, patience):
                        raise thread_fault(error, self._session_id) from error
                    refused = True
                    await anyio.sleep(RETRY)
                case RuntimeDied() if server.leaving:
                    pass  # another process has taken its place
                case fault:
                    raise fault

    def _passes_within(self, error: AppServerError, patience: float) -> float:
        """Seconds in which a refusal may pass by itself."""
        if is_closing(error):
            return self._patience.answer
        return patience if is_written_elsewhere(error) else 0

    async def check(self) -> None:
        """Raise :class:`~sayagain.errors.HistoryUnreadable` when what Codex lists of the session is not all of it."""
        async with self._ownership:
            try:
                await self._check_own(self.server or await self._servers.get())
            except HistoryUnreadable:
                if self._lease is None or self._closed or self.server is not None:
                    raise
                await self._load(OWNER_PATIENCE)

    async def _check_own(self, server: AppServer) -> None:
        """Codex loads a thread also when it cannot bring what it lists of it up to date (measured)."""
        if self._configured is not server:
            answer: Params = {}
            with suppress(AppServerError):  # a configuration that cannot be read any more
                answer = await server.request("config/read", {})
            self.record.lists_from(sqlite_home(self._env, as_mapping(answer.get("config"))))
            self._configured = server
        await self.record.check_files(self._session_id)
        try:
            await self.check_listed(self.thread)
        except HistoryUnreadable:
            # What is loaded next is made anew.
            if self.server is server and not self._owner.works:
                await self._unload()
            raise

    async def _ask(self, loading: _Loading) -> None:
        """Load the thread. Codex does so whether or not anybody still waits for it, so the answer is always taken."""
        server = loading.server
        try:
            await server.request(
                "thread/resume",
                {"threadId": self._session_id, "excludeTurns": True, **thread_params(self._setup)},
                patience=self._patience.long,
                on_answer=lambda result: self._answered(server, result),
            )
            loading.fault = None
        except RuntimeFault as error:
            loading.fault = error
        finally:
            if self._loading is loading:
                self._loading = None
            loading.done.set()

    def _answered(self, server: AppServer, result: Params) -> None:
        if self._released:
            self._tasks.start_soon(self._give_back, server)
        else:
            self.adopt(server, result)

    async def _give_back(self, server: AppServer) -> None:
        with suppress(RuntimeFault):
            await Use(server).request("thread/unsubscribe", {"threadId": self._session_id})

    def adopt(self, server: AppServer, result: Params) -> None:
        """The answer to what loaded the thread; called by the reader, so that nothing is missed."""
        self.thread = result["thread"]
        self.server = server
        self._listed = False
        self.record.opened(self.thread.get("path"))
        self._unloaded = anyio.Event()
        self._servers.route(server, self._session_id, self._owner)
        self._loaded(server, result)

    def moved(self, thread: Params) -> None:
        """Codex goes on in another file."""
        self.thread = {**self.thread, **thread}
        self.record.opened(self.thread.get("path"))

    async def unload(self, server: AppServer) -> None:
        """The thread is not what is stored: what is loaded next is."""
        async with self._ownership:
            if self.server is server:
                logger.warning("the file of a thread was removed or replaced; the thread is unloaded")
                await self._unload()

    async def store(self, use: Use) -> None:
        """Have a thread stored that was never prompted: until then its process alone knows it (measured)."""
        if self.server is use.server and not await self.record.exists():
            # Its own way needs a prompt or a name, which could not be taken back. This leaves an empty history, whole.
            await use.request("thread/archive", {"threadId": self._session_id})
            await use.request("thread/unarchive", {"threadId": self._session_id})

    async def request(self, method: str, params: Params, *, patience: float | None = None) -> Any:
        """Read what is stored of the session: up to date as long as nobody else owns it.

        Who reads page by page reads on in the process that takes the place of the one before: to both a cursor says
        where in the thread it is (measured). Raises what :meth:`own` and
        :meth:`AppServer.request <sayagain_codex.app_server.AppServer.request>` raise.
        """
        while True:
            server = self.server
            if server is None or server.leaving or not server.running:
                server = await self.reader()
            try:
                return await server.request(method, params, patience=patience)
            except RuntimeDied:
                if not server.leaving:
                    raise

    async def damaged(self, thread: Params) -> Sequence[DamagedRow]:
        """See :class:`~sayagain_codex.history.Stored`."""
        return await self.record.damaged(thread, loaded=self.server is not None)

    async def check_files(self, thread_id: str) -> None:
        """See :class:`~sayagain_codex.history.Stored`."""
        await self.record.check_files(thread_id)

    async def is_listed(self, thread: Params) -> bool:
        """See :class:`~sayagain_codex.history.Stored`."""
        return await self.record.is_listed(thread)

    async def check_listed(self, thread: Params) -> None:
        """See :class:`~sayagain_codex.history.Stored`."""
        try:
            await self.record.check_listed(thread)
        except BeginningMissing as missing:
            server = self.server or await self._servers.get()
            with suppress(AppServerError):
                await self._list_beginning(Use(server), thread["id"], missing.turn_id)
            await self.record.check_listed(thread)

    async def _list_beginning(self, use: Use, thread_id: str, turn_id: str) -> None:
        """Codex lists what a thread builds on when somebody makes a fork of that (measured).

        This one is in memory alone, and nobody's.
        """
        params = {"threadId": thread_id, "lastTurnId": turn_id, "ephemeral": True, "excludeTurns": True}
        with anyio.CancelScope(shield=True):
            fork = await use.request("thread/fork", params, patience=self._patience.long)
            await use.request("thread/unsubscribe", {"threadId": fork["thread"]["id"]})

    async def reader(self) -> AppServer:
        """The process to read from, which has the thread loaded unless somebody else owns the session."""
        if self._lease is not None:
            with suppress(SessionInUse):
                await self.own()
        return await self._servers.get()

    async def look(self) -> None:
        """Somebody else has the thread: what can be told of it without loading it."""
        await self.record.check_files(self._session_id)
        server = await self._servers.get()
        try:
            answer = await server.request("thread/read", {"threadId": self._session_id})
        except AppServerError as error:
            raise thread_fault(error, self._session_id) from error
        self.thread = answer["thread"]

    def claim(self, thread_id: str) -> None:
        """A child's thread is the session's too: what waits of it is delivered now."""
        if self.server is not None:
            self._servers.route(self.server, thread_id, self._owner)

    def gone(self) -> None:
        """The process is gone, or has closed the thread."""
        self.server = None
        self._unloaded.set()

    def unloaded(self) -> None:
        """Codex says that the thread is closed, as it was asked to."""
        self._unloaded.set()

    def closing(self) -> None:
        """From here on nothing is loaded."""
        self._closed = True

    async def release(self) -> None:
        """The thread is unloaded, its messages are nobody's, the lease is free."""
        async with self._ownership:
            if self._loading is not None:
                with anyio.move_on_after(self._patience.finish):
                    await self._loading.done.wait()
            self._released = True
            await self._unload()
            if self._lease is not None:
                self._lease.release()
                self._lease = None

    async def _unload(self) -> None:
        """Codex unloads a thread that nobody listens to, ends its background terminals and frees its writer lock."""
        server, self.server = self.server, None
        if server is None:
            return
        try:
            use = Use(server)
            for thread_id in reversed(self._servers.threads_of(server, self._owner)):
                with suppress(AppServerError):
                    # One that hangs must not keep an adapter whose client has left.
                    await use.request("thread/unsubscribe", {"threadId": thread_id}, patience=self._patience.finish)
            with anyio.move_on_after(self._patience.finish):
                await self._unloaded.wait()
        except RuntimeFault as error:
            logger.debug("a thread was not unloaded: %s", error)
        finally:
            self._servers.unroute(server, self._owner)


class _Loading:
    """A ``thread/resume`` that is under way."""

    def __init__(self, server: AppServer) -> None:
        self.server = server
        self.done = anyio.Event()
        self.fault: RuntimeFault | None = RuntimeDied("The thread was not loaded")
