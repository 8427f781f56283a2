"""The Claude Code runtime: sessions that the CLI keeps in its config folder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import anyio
import anyio.abc
import anyio.to_thread

from sayagain import fault_points
from sayagain.errors import InvalidParams, MethodNotFound, RuntimeFault, SessionNotFound
from sayagain.fault_points import Point
from sayagain.identity import new_session_id
from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.runtime.history import HistoryEntry
from sayagain.runtime.seam import SessionPage, SessionSetup
from sayagain_claude.account import auth_methods, auth_status
from sayagain_claude.choices import first_choices
from sayagain_claude.command import check_setup
from sayagain_claude.executable import find_executable
from sayagain_claude.history import history
from sayagain_claude.options import Choices, Options, bypass_possible
from sayagain_claude.patience import Patience
from sayagain_claude.session import ClaudeSession
from sayagain_claude.transcripts import contents, copying, ids, listing, paths, titles

__all__ = ["ClaudeRuntime"]

STATUS_PATIENCE: Final = 10.0
"""Seconds for ``claude auth status``."""

LOGOUT_PATIENCE: Final = 30.0
"""Seconds for ``claude auth logout``, which takes a quarter of one."""


class ClaudeRuntime:
    """Implements ``Runtime``. ``env`` is the environment of every process that it starts."""

    name = "claude"
    title = "Claude Code"
    capabilities = RuntimeCapabilities(
        image=True,
        embedded_context=True,
        mcp_stdio=True,
        mcp_http=True,
        fork=True,
        delete=True,
        additional_directories=True,
        title=True,
        auth_status=True,
        system_prompt_modes=frozenset({"append", "override"}),
    )

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = dict(os.environ if env is None else env)
        self._config = paths.config_dir(self._env)
        self._stack = AsyncExitStack()
        self._sessions: WeakSet[ClaudeSession] = WeakSet()
        self._tasks: anyio.abc.TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            for session in list(self._sessions):
                await session.close()
        self._tasks.cancel_scope.cancel()
        return await self._stack.__aexit__(kind, error, traceback)

    async def warm_up(self) -> None:
        """Nothing: each session has a process of its own, which ``session/new`` does not wait for."""

    def auth_methods(self, client_capabilities: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Claude's terminal logins."""
        return auth_methods(client_capabilities)

    async def login(self, method_id: str, params: Mapping[str, Any]) -> None:
        """No login runs in the agent itself: all of Claude's need a terminal (AUT-1)."""
        raise InvalidParams("methodId", "Claude Code signs in by its terminal methods only")

    async def logout(self) -> None:
        """``claude auth logout``: removes the stored credentials, not those of the environment."""
        command = [find_executable(self._env), "auth", "logout"]
        with anyio.fail_after(LOGOUT_PATIENCE):
            result = await anyio.run_process(command, env=self._env, check=False)
        if result.returncode != 0:
            raise RuntimeFault(f"claude auth logout failed with exit code {result.returncode}")

    async def new(self, setup: SessionSetup) -> ClaudeSession:
        """A session under an id of ours; its process starts in the background."""
        session = await self._session(new_session_id(), setup)
        session.warm_up()
        return session

    async def resume(self, session_id: str, setup: SessionSetup) -> ClaudeSession:
        """A stored session; its process starts in the background, beside a replay."""
        path = await self._begun(session_id)
        stored = await anyio.to_thread.run_sync(listing.stored_session, path)
        session = await self._session(session_id, setup, path)
        if stored is not None and stored.title is not None:
            session.describe(stored.title)
        session.warm_up()
        return session

    async def fork(self, session_id: str, setup: SessionSetup) -> ClaudeSession:
        """A copy of all that is stored, under an id of ours, made at once: it survives a restart unprompted.

        The CLI's own fork writes nothing before its first prompt, and drops what was compacted (measured).
        """
        path = await self._begun(session_id)
        new_id = new_session_id()
        await anyio.to_thread.run_sync(check_setup, setup)
        await anyio.to_thread.run_sync(copying.fork, path, session_id, new_id)
        session = await self._session(new_id, setup, path)
        session.warm_up()
        return session

    async def list(self, *, cwd: str | None, cursor: str | None, archived: str = "exclude") -> SessionPage:
        """Stored sessions, newest first."""

        def read() -> SessionPage:
            return listing.list_sessions(self._config, cwd=cwd, cursor=cursor)

        return await anyio.to_thread.run_sync(read)

    async def stored(self, session_id: str) -> bool:
        """Whether there is a transcript with a prompt."""
        path = await anyio.to_thread.run_sync(paths.find, session_id, self._config)
        return path is not None and await anyio.to_thread.run_sync(listing.stored_session, path) is not None

    async def set_title(self, session_id: str, title: str) -> None:
        """A title row at the end of the transcript, as the CLI's own ``/rename`` leaves it (TTL-1)."""
        path = await self._path(session_id)
        await anyio.to_thread.run_sync(titles.append_title, path, session_id, title)
        for session in list(self._sessions):
            if session.session_id == session_id:
                await session.renamed(title)

    async def archive(self, session_id: str, *, archived: bool) -> None:
        """Claude Code has no archive; never called, since the capability is not there."""
        raise MethodNotFound("session/archive" if archived else "session/unarchive")

    async def auth_status(self) -> Mapping[str, Any]:
        """By ``claude auth status``, which takes a quarter of a second; nothing asks for it but the client."""
        command = [find_executable(self._env), "auth", "status", "--json"]
        with anyio.move_on_after(STATUS_PATIENCE):
            result = await anyio.run_process(command, env=self._env, check=False)
            return auth_status(result.stdout)
        return {"state": "unknown"}

    async def delete(self, session_id: str) -> None:
        """Remove the transcript and all that belongs to it, in every project folder that holds one."""
        while (path := await anyio.to_thread.run_sync(paths.find, session_id, self._config)) is not None:
            await anyio.to_thread.run_sync(copying.delete, path)

    async def history(self, session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        """Streamed from the raw transcript, a batch of entries at a time."""
        path = await self._path(session_id)
        running = frozenset(t for s in self._sessions if s.session_id == session_id for t in s.running_tasks())
        batches = history(path, session_id, live=live, running=running)
        while (batch := await anyio.to_thread.run_sync(next, batches, None)) is not None:
            fault_points.passing(Point.REPLAY_BATCH)
            for entry in batch:
                yield entry

    async def message_ids(self, session_id: str) -> Set[str]:
        """A search of the raw transcript for ids alone."""
        path = await anyio.to_thread.run_sync(paths.find, session_id, self._config)
        try:
            return set() if path is None else await anyio.to_thread.run_sync(ids.message_ids, path)
        except SessionNotFound:
            # Deleted since it was found.
            return set()

    async def _path(self, session_id: str) -> Path:
        path = await anyio.to_thread.run_sync(paths.find, session_id, self._config)
        if path is None:
            raise SessionNotFound(session_id)
        return path

    async def _begun(self, session_id: str) -> Path:
        """The transcript of a session that can be gone on from; one without any message was never stored."""
        path = await self._path(session_id)
        if not await anyio.to_thread.run_sync(contents.holds_conversation, path):
            raise SessionNotFound(session_id)
        return path

    async def _session(self, session_id: str, setup: SessionSetup, transcript: Path | None = None) -> ClaudeSession:
        """A session of this process; ``transcript`` is what it goes on from, when it does."""

        def read() -> Choices:
            check_setup(setup)
            return first_choices(self._config, setup.cwd, transcript)

        # Before anything is waited for: who closes the connection behind the request still gets this answer.
        executable = find_executable(self._env)
        known = await anyio.to_thread.run_sync(read)
        bypass = bypass_possible(self._env, root=os.geteuid() == 0)
        options = Options(bypass=bypass, known=known, models=self._models())
        session = ClaudeSession(
            session_id,
            setup,
            executable=executable,
            env=self._env,
            patience=Patience.from_env(self._env),
            stored=transcript is not None,
            options=options,
            tasks=self._tasks,
        )
        self._sessions.add(session)
        return session

    def _models(self) -> Sequence[Mapping[str, Any]]:
        """The models that a running session's CLI offers: a new one's will offer the same."""
        return next((models for session in self._sessions if (models := session.models)), ())
