"""The Codex runtime: threads that ``codex app-server`` keeps in its home folder."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from sayagain import fault_points
from sayagain.errors import (
    HistoryUnreadable,
    InvalidParams,
    RuntimeFault,
    SessionInUse,
    SessionNotFound,
)
from sayagain.fault_points import Point
from sayagain.runtime.history import HistoryEntry
from sayagain.runtime.seam import SessionPage, SessionSetup
from sayagain_codex import auth
from sayagain_codex.about import CAPABILITIES, NAME, TITLE
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServerError, Leaving, Use
from sayagain_codex.command import home, thread_params
from sayagain_codex.history import history, message_ids
from sayagain_codex.host import Host
from sayagain_codex.launch import Launcher
from sayagain_codex.listing import list_sessions
from sayagain_codex.login import Login
from sayagain_codex.patience import Patience
from sayagain_codex.record import Record
from sayagain_codex.rollouts import reverted
from sayagain_codex.routes import Owner
from sayagain_codex.server import Servers
from sayagain_codex.session import CodexSession
from sayagain_codex.threads import is_thread_id, thread_fault
from sayagain_codex.warnings import Warnings

__all__ = ["CodexRuntime"]

logger = logging.getLogger(__name__)

FIRST_LOOK: Final = 0.5
"""Seconds that a resume waits for another owner: without one the session can still be replayed."""

Params = Mapping[str, Any]


class CodexRuntime:
    """Implements ``Runtime``. ``env`` is the environment of every process that it starts.

    ``launcher`` may have one started already, with the same environment; whoever entered it leaves it afterwards.
    """

    name = NAME
    title = TITLE
    capabilities = CAPABILITIES

    def __init__(self, env: Mapping[str, str] | None = None, launcher: Launcher | None = None) -> None:
        self._env = dict(os.environ if env is None else env)
        self._launcher = launcher or Launcher(self._env)
        self._stack = AsyncExitStack()
        self._sessions: WeakValueDictionary[str, CodexSession] = WeakValueDictionary()
        self._warnings = Warnings()
        self._account: Account
        self._login: Login
        self._patience: Patience
        self._servers: Servers
        self._tasks: anyio.abc.TaskGroup

    async def __aenter__(self) -> Self:
        self._patience = Patience.from_env(self._env)
        async with AsyncExitStack() as stack:
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            self._servers = Servers(
                self._launcher, self._patience, self._tasks, starting=self._warnings.forget, heard=self._heard
            )
            self._account = Account(self._servers, self._env, unread=self._warnings.unread)
            self._login = Login(self._env, self._servers, self._account)
            self._stack = stack.pop_all()
        return self

    async def warm_up(self) -> None:
        """Start Codex ahead of the first session, which then finds it ready. What fails here is told there."""
        try:
            await self._servers.get()
        except RuntimeFault as error:
            logger.info("Codex was not started ahead: %s", type(error).__name__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            for session in list(self._sessions.values()):
                await session.close()
            await self._servers.stop()
        self._tasks.cancel_scope.cancel()
        return await self._stack.__aexit__(kind, error, traceback)

    # Accounts.

    def _heard(self, method: str, params: Params, sessions: Set[Owner]) -> None:
        self._warnings.heard(method, params, sessions)
        self._login.heard(method, params)

    def auth_methods(self, client_capabilities: Params) -> Sequence[Params]:
        """See :mod:`sayagain_codex.auth`."""
        return auth.auth_methods(self._env, client_capabilities)

    async def login(self, method_id: str, params: Params) -> None:
        """See :mod:`sayagain_codex.login`."""
        await self._login.sign_in(method_id)

    async def logout(self) -> None:
        """See :mod:`sayagain_codex.login`."""
        await self._login.sign_out()

    async def auth_status(self) -> Params:
        """See the seam."""
        return auth.auth_status(await self._account.read(await self._servers.get()))

    # Sessions.

    @asynccontextmanager
    async def _usable(self) -> AsyncGenerator[Use]:
        """For requests that belong together, to a process that can serve sessions."""
        with ExitStack() as held:
            use: Use | None = None
            while use is None:
                server = await self._account.require(await self._servers.get())
                with suppress(Leaving):
                    use = held.enter_context(server.use())
            yield use

    async def new(self, setup: SessionSetup) -> CodexSession:
        """A new thread; it is on disk from its first prompt on (measured)."""
        return await self._made("thread/start", {}, setup)

    async def fork(self, session_id: str, setup: SessionSetup) -> CodexSession:
        """A copy of all that is stored, on disk at once."""
        if not is_thread_id(session_id):
            raise SessionNotFound(session_id)
        await self._check_file(session_id)
        try:
            return await self._made("thread/fork", {"threadId": session_id, "excludeTurns": True}, setup)
        except AppServerError as error:
            raise thread_fault(error, session_id) from error

    async def _made(self, method: str, params: Params, setup: SessionSetup) -> CodexSession:
        _check_directory(setup)
        made: list[CodexSession] = []

        def take(use: Use, result: Params) -> None:
            made.append(self._session(result["thread"]["id"], setup))
            self._warnings.opening(made[0])
            made[0].adopt(use.server, result, new=method == "thread/start")

        body = {**params, **thread_params(setup)}
        try:
            async with self._usable() as use:
                if "developerInstructions" in body:
                    # They would replace the user's own.
                    config = await use.request("config/read", {"cwd": setup.cwd})
                    own: str | None = config["config"].get("developer_instructions")
                    body["developerInstructions"] = "\n\n".join(filter(None, (own, body["developerInstructions"])))
                # Codex makes it whether or not anybody still waits: then it is closed, below.
                with anyio.CancelScope(shield=True):
                    await use.request(method, body, patience=self._patience.long, on_answer=partial(take, use))
            await anyio.lowlevel.checkpoint()
            await made[0].own()
            await made[0].described()
        except BaseException:
            for session in made:
                await session.close()
                if method == "thread/fork":
                    with anyio.CancelScope(shield=True), suppress(RuntimeFault, SessionNotFound):
                        await self.delete(session.session_id)
            raise
        self._warnings.tell(made[0])
        return made[0]

    async def resume(self, session_id: str, setup: SessionSetup) -> CodexSession:
        """A stored thread, loaded if nobody else has it."""
        if not is_thread_id(session_id):
            raise SessionNotFound(session_id)
        _check_directory(setup)
        session = await self._resumed(session_id, setup, opened=True)
        self._warnings.tell(session)
        return session

    async def _resumed(self, session_id: str, setup: SessionSetup, *, opened: bool = False) -> CodexSession:
        session = self._session(session_id, setup)
        if opened:
            self._warnings.opening(session)
        try:
            try:
                await session.own(patience=FIRST_LOOK)
                if opened:
                    await session.resumed()
            except SessionInUse:
                await session.look()
        except BaseException:
            await session.close()
            raise
        return session

    async def list(self, *, cwd: str | None, cursor: str | None, archived: str = "exclude") -> SessionPage:
        """See :mod:`sayagain_codex.listing`."""
        several = await anyio.to_thread.run_sync(reverted, home(self._env))
        return await list_sessions(await self._servers.get(), several, cwd=cwd, cursor=cursor, archived=archived)

    async def stored(self, session_id: str) -> bool:
        """Whether the thread has a first prompt or a name."""
        thread = await self._read(session_id)
        return thread is not None and bool(thread.get("name") or thread.get("preview"))

    async def set_title(self, session_id: str, title: str) -> None:
        """Codex keeps it with the thread and tells it as an event.

        To Codex an archived thread has no name to set: it is unarchived for the 10 ms that this takes (measured). A
        death in between leaves it in the list.
        """
        try:
            await self._change(session_id, "thread/name/set", {"name": title})
        except SessionNotFound:
            with anyio.CancelScope(shield=True):
                await self._change(session_id, "thread/unarchive", {})
                try:
                    await self._change(session_id, "thread/name/set", {"name": title})
                finally:
                    await self._change(session_id, "thread/archive", {})

    async def archive(self, session_id: str, *, archived: bool) -> None:
        """Codex refuses repeats, with the words that it has for unknown threads: those are told apart by a read."""
        try:
            await self._change(session_id, "thread/archive" if archived else "thread/unarchive", {})
        except SessionInUse:
            if archived:
                raise  # else another process has it open, so that it is not archived
        except SessionNotFound:
            if await self._read(session_id) is None:
                raise

    async def delete(self, session_id: str) -> None:
        """Remove the thread. One whose forks build on its file is archived, which hides it as well (measured)."""
        try:
            await self._change(session_id, "thread/delete", {})
        except SessionNotFound:
            pass
        except AppServerError as error:
            if "forked history still references it" not in error.message:
                raise
            await self.archive(session_id, archived=True)

    async def _change(self, session_id: str, method: str, params: Params) -> None:
        if not is_thread_id(session_id):
            raise SessionNotFound(session_id)
        await self._check_file(session_id)
        server = await self._servers.get()
        try:
            await server.request(method, {"threadId": session_id, **params})
        except AppServerError as error:
            raise thread_fault(error, session_id) from error

    async def _read(self, session_id: str) -> Params | None:
        if not is_thread_id(session_id):
            return None
        await self._check_file(session_id)
        server = await self._servers.get()
        try:
            answer: Mapping[str, Params] = await server.request("thread/read", {"threadId": session_id})
        except AppServerError as error:
            if isinstance(thread_fault(error, session_id), SessionNotFound):
                return None
            raise
        return answer["thread"]

    async def _check_file(self, session_id: str) -> None:
        await Record(home(self._env), session_id).check_files(session_id)

    # Histories.

    async def history(self, session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        """Streamed a page at a time, from a thread that was loaded: only then the history is whole (measured)."""
        async with (
            self._reading(session_id) as (host, thread),
            aclosing(history(host, thread, session_id, live=live)) as batches,
        ):
            async for batch in batches:
                fault_points.passing(Point.REPLAY_BATCH)
                for entry in batch:
                    yield entry

    async def message_ids(self, session_id: str) -> Set[str]:
        """The ids alone; those of local commands as long as the session is active (KEY-9). Never read beside an owner
        by one who does not hold the session, as at its end."""
        session = self._active(session_id)
        try:
            async with self._reading(session_id, whole=True) as (host, thread):
                ids = await message_ids(host, session_id, await host.damaged(thread))
        except SessionNotFound:
            ids = set[str]()
        return ids if session is None else ids | session.live_only

    @asynccontextmanager
    async def _reading(self, session_id: str, *, whole: bool = False) -> AsyncGenerator[tuple[Host, Params]]:
        """Who tells what is stored of a thread that is loaded, as far as that is possible.

        What is read from a thread that another process has may be stale: with ``whole`` that is an error, unless the
        caller holds the session, and so knows whether it owns it.
        """
        session = self._active(session_id)
        passing = session is None
        if session is None:
            thread = await self._read(session_id)
            if thread is None:
                raise SessionNotFound(session_id)
            try:
                session = await self._resumed(session_id, SessionSetup(cwd=thread["cwd"]))
            except SessionNotFound:
                # It is listed, and its file is not there or is no file.
                raise HistoryUnreadable("The stored session is gone or damaged") from None
        try:
            if whole and passing and not session.loaded:
                raise HistoryUnreadable("Another process works on the session")
            yield await session.reader(), session.thread
        finally:
            if passing:
                with anyio.CancelScope(shield=True):
                    await session.close()

    def _active(self, session_id: str) -> CodexSession | None:
        session = self._sessions.get(session_id)
        return None if session is None or session.closed else session

    def _session(self, session_id: str, setup: SessionSetup) -> CodexSession:
        session = CodexSession(
            session_id,
            setup,
            servers=self._servers,
            account=self._account,
            env=self._env,
            patience=self._patience,
            tasks=self._tasks,
        )
        self._sessions[session_id] = session
        return session


def _check_directory(setup: SessionSetup) -> None:
    """Codex takes directories that do not exist (measured), and fails later."""
    if not os.path.isdir(setup.cwd):  # noqa: PTH112 - a path that no file can have is none, and no error
        raise InvalidParams("cwd", "is no directory")
