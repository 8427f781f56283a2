"""The thread of one session in the app-server, and the right to have it loaded.

Who may store is settled twice: our lease keeps other adapters away, Codex's own writer lock every other process, so
that an app-server which outlived its adapter for a moment is waited for before anything is looked up. (The lease is
this process's alone: one app-server serves many sessions and was started before their leases were taken.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from sayagain.errors import RuntimeDied, RuntimeFault, SessionInUse
from sayagain.processes import lease as leases
from sayagain.processes.lease import Lease
from sayagain.runtime.seam import OWNER_PATIENCE, SessionSetup
from sayagain.runtime.tasks import SessionTasks
from sayagain_codex.app_server import AppServer, AppServerError, Use
from sayagain_codex.command import home, thread_params
from sayagain_codex.damage import DamagedRow, damaged_rows
from sayagain_codex.patience import Patience
from sayagain_codex.rollouts import newest
from sayagain_codex.routes import Owner
from sayagain_codex.server import Servers
from sayagain_codex.storage import FileId, file_id
from sayagain_codex.threads import is_written_elsewhere, thread_fault

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
        self._search: _Search | None = None
        self.server: AppServer | None = None
        """The process that has the thread loaded."""
        self.thread: Params = {}
        """The thread as Codex last described it whole."""
        self._file: FileId | None = None
        """What Codex writes to; ``None`` before there is a file."""

    @property
    def closed(self) -> bool:
        """Whether nothing will be loaded any more."""
        return self._closed

    @property
    def legacy(self) -> bool:
        """Whether the thread's history is of the older kind, which has no items of its own."""
        return self.thread.get("historyMode") == "legacy"

    @property
    def home(self) -> Path:
        """Codex's folder."""
        return home(self._env)

    async def own(self, patience: float = OWNER_PATIENCE) -> None:
        """Take the lease, and have the thread loaded.

        Raises :class:`~sayagain.errors.SessionInUse` after ``patience`` seconds, and what loading raises.
        """
        async with self._ownership:
            self._check_open()
            taken = self._lease is None
            if self._lease is None:
                self._lease = await leases.acquire(self.home, self._session_id, patience=patience)
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
        deadline = anyio.current_time() + patience
        while True:
            server = await self._servers.get()
            if self.server is server:
                return server
            loading = self._loading
            if self._search is None:
                # Codex takes far longer to load a thread than this takes.
                self._search = _Search()
                self._tasks.start_soon(self._search.run, self.home, self._session_id)
            if loading is None or loading.server is not server:
                loading = self._loading = _Loading(server)
                self._tasks.start_soon(self._ask, loading)
            await loading.done.wait()
            match loading.fault:
                case None:
                    return server
                case AppServerError() as error:
                    if not is_written_elsewhere(error) or anyio.current_time() >= deadline:
                        self._search = None
                        raise thread_fault(error, self._session_id) from error
                    await anyio.sleep(RETRY)
                case RuntimeDied() if server.leaving:
                    pass  # another process has taken its place
                case fault:
                    self._search = None
                    raise fault

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
        self._file = None
        self.note_file()
        self._unloaded = anyio.Event()
        self._servers.route(server, self._session_id, self._owner)
        self._loaded(server, result)

    def note_file(self) -> None:
        """Remember which file Codex writes to, when that is not known yet and it is the one that is there.

        Called by the reader, which knows that moment: when Codex has just opened it, or written to it. Later another
        one may be there.
        """
        if self._file is None:
            self._file = file_id(self.thread.get("path"))

    def moved(self, thread: Params) -> None:
        """Codex goes on in another file."""
        self.thread, self._file = {**self.thread, **thread}, None
        self.note_file()

    async def has_file(self) -> bool:
        """Whether what Codex writes can be found later."""
        path = self.thread.get("path")
        return self._file is None or self._file == await anyio.to_thread.run_sync(file_id, path)

    async def damaged(self, thread: Params) -> Sequence[DamagedRow]:
        """The rows of a thread's file that cannot be read; the session's own was looked through as it was loaded."""
        rollout = thread.get("path")
        if (search := self._search) is not None:
            await search.done.wait()
            if rollout == str(search.rollout):
                return search.rows
        return await damaged_rows(Path(rollout)) if rollout else ()

    async def unload(self, server: AppServer) -> None:
        """The thread is not what is stored: what is loaded next is."""
        async with self._ownership:
            if self.server is server:
                logger.warning("the file of a thread was removed or replaced; the thread is unloaded")
                await self._unload()

    async def store(self, use: Use) -> None:
        """Have a thread stored that was never prompted: until then its process alone knows it (measured)."""
        path = self.thread.get("path")
        if self.server is use.server and path and not await anyio.Path(path).exists():
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

    async def reader(self) -> AppServer:
        """The process to read from, which has the thread loaded unless somebody else owns the session."""
        if self._lease is not None:
            with suppress(SessionInUse):
                await self.own()
        return await self._servers.get()

    async def look(self) -> None:
        """Somebody else has the thread: what can be told of it without loading it."""
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
        self.server = self._search = None
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
        self._search = None
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


class _Search:
    """For what cannot be read of the thread, while it is loaded: nobody else writes to it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.rollout: Path | None = None
        self.rows: Sequence[DamagedRow] = ()

    async def run(self, home: Path, thread_id: str) -> None:
        try:
            self.rollout = await anyio.to_thread.run_sync(newest, home, thread_id)
            if self.rollout is not None:
                self.rows = await damaged_rows(self.rollout, tail=True)
        finally:
            self.done.set()


class _Loading:
    """A ``thread/resume`` that is under way."""

    def __init__(self, server: AppServer) -> None:
        self.server = server
        self.done = anyio.Event()
        self.fault: RuntimeFault | None = RuntimeDied("The thread was not loaded")
