"""The process of one session, and the right to have one: started when it is needed, under the session's lease."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio

from sayagain.errors import RuntimeDied
from sayagain.processes import lease as leases
from sayagain.processes.lease import Lease
from sayagain.processes.spawn import spawn
from sayagain.runtime.seam import SessionSetup
from sayagain.runtime.tasks import SessionTasks
from sayagain_claude.command import command_line, environment, initialize, mcp_servers
from sayagain_claude.patience import Patience
from sayagain_claude.process import ClaudeProcess

__all__ = ["Host"]

logger = logging.getLogger(__name__)


class Host:
    """Holds the lease and the process of a session.

    ``read`` takes everything that a process says, until it ends; ``started`` takes its answer to ``initialize`` before
    anything else is asked of it. Two locks, so that a replay, which needs an owner alone, does not wait for a process
    to start.
    """

    def __init__(
        self,
        session_id: str,
        setup: SessionSetup,
        *,
        executable: str,
        env: Mapping[str, str],
        config: Path,
        patience: Patience,
        tasks: SessionTasks,
        read: Callable[[ClaudeProcess], Awaitable[None]],
        started: Callable[[ClaudeProcess, Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        self._session_id = session_id
        self._setup = setup
        self._executable = executable
        self._env = env
        self._config = config
        self._patience = patience
        self._tasks = tasks
        self._read = read
        self._started = started
        self._lease: Lease | None = None
        self._ownership = anyio.Lock()
        self._lifecycle = anyio.Lock()
        self._starting: ClaudeProcess | None = None
        self._gone = anyio.Event()
        self._closed = False
        self.process: ClaudeProcess | None = None
        """The one that runs, or is being started."""

    @property
    def closed(self) -> bool:
        """Whether no process will be started any more."""
        return self._closed

    @property
    def lifecycle(self) -> AbstractAsyncContextManager[None]:
        """Starting and ending the process are never done side by side: held around :meth:`running` and :meth:`end`."""
        return self._lifecycle

    async def own(self, patience: float) -> None:
        """Take the lease; raises :class:`~sayagain.errors.SessionInUse` while another live adapter has it."""
        async with self._ownership:
            self._check_open()
            if self._lease is None:
                self._lease = await leases.acquire(self._config, self._session_id, patience=patience)

    async def running(
        self, arguments: Callable[[], Sequence[str]], stored: Callable[[], Awaitable[bool]]
    ) -> ClaudeProcess:
        """The process, started when there is none. Call under :attr:`lifecycle`, as the owner.

        ``arguments`` are further ones for its command line; ``stored`` tells whether there is anything to resume.
        """
        self._check_open()
        if self.process is not None:
            return self.process
        assert self._lease is not None
        argv = command_line(self._executable, self._session_id, self._setup, stored=await stored())
        guarded = await spawn(
            [*argv, *arguments()],
            cwd=self._setup.cwd,
            env=environment(self._env),
            hold_fds=[self._lease.fileno()],
            stderr=lambda line: logger.debug("claude: a line of %d characters on standard error", len(line)),
        )
        process = ClaudeProcess(guarded)
        self.process = self._starting = process
        self._gone = anyio.Event()
        self._tasks.start_soon(self._follow, process, self._gone)
        try:
            self._lease.add_holder(process.guard_pid)
            self._check_open()
            await self._initialize(process)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                status = await process.kill()
                await self._gone.wait()
                if isinstance(error, RuntimeDied):
                    raise RuntimeDied(f"Claude Code ended while it started ({status}){process.complaint}") from error
            raise
        finally:
            self._starting = None
        return process

    async def end(self) -> None:
        """End the process in order, if there is one. Call under :attr:`lifecycle`."""
        if self.process is not None:
            await self.process.finish(patience=self._patience.finish)
            await self._gone.wait()

    def closing(self) -> None:
        """From here on nothing is started."""
        self._closed = True

    async def abandon_start(self) -> None:
        """End a process that is being started: it has nothing to store yet, and may hang."""
        if self._starting is not None:
            await self._starting.kill()

    async def release(self) -> None:
        """Give the session up. Call under :attr:`lifecycle`, after :meth:`end`."""
        async with self._ownership:
            if self._lease is not None:
                self._lease.release()
                self._lease = None

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeDied("The session was closed")

    async def _initialize(self, process: ClaudeProcess) -> None:
        answer = await process.request(initialize(self._setup), patience=self._patience.start)
        if self._setup.mcp_servers:
            # Not on the command line: other users of the machine can read that, and headers hold tokens.
            servers = mcp_servers(self._setup.mcp_servers)
            await process.request({"subtype": "mcp_set_servers", "servers": servers}, patience=self._patience.start)
        await self._started(process, answer)

    async def _follow(self, process: ClaudeProcess, gone: anyio.Event) -> None:
        try:
            await self._read(process)
        finally:
            gone.set()
