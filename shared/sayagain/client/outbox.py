"""Prompts that were submitted and are not confirmed yet, in one SQLite file: they survive the client.

Any number of processes may share the file. A prompt is written here before it is sent, and is marked only after the
agent has answered; so at every instant a crash leaves it pending, and sending it again with its key is safe (KEY-2).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

from sayagain.client.errors import OutboxError
from sayagain.client.outbox_file import OutboxFile, StoredPrompt

__all__ = ["PATIENCE", "Outbox", "StoredPrompt", "start_of_today"]

PATIENCE: Final = 5.0
"""Seconds that a write waits for other processes; each of theirs takes milliseconds."""

T = TypeVar("T")


def start_of_today() -> float:
    """Midnight, local time: what was submitted earlier is shown to the user, not sent (KEY, "How long a key lasts")."""
    return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


class Outbox:
    """Use as an async context manager. ``path`` is a file that need not exist; ``None`` keeps everything in memory.

    Every method raises :class:`~sayagain.client.errors.OutboxError`; its subclasses say what is wrong with the file.
    """

    def __init__(self, path: Path | str | None = None, *, patience: float = PATIENCE) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._patience = patience
        self._file: OutboxFile | None = None
        # SQLite connections may change their thread, but serve one at a time.
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        # Of its own: what waits for the disk must not take the threads of others, nor wait for theirs.
        self._limiter = anyio.CapacityLimiter(math.inf)
        self._file = await anyio.to_thread.run_sync(OutboxFile, self.path, self._patience, limiter=self._limiter)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        file, self._file = self._file, None
        if file is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._locked, file.close)

    @property
    def owner_descriptors(self) -> tuple[int, ...]:
        """What an agent has to inherit to count as part of this owner (:mod:`sayagain.client.owner`)."""
        return () if self._file is None or self._file.owner is None else (self._file.owner.fileno(),)

    # What applications ask.

    async def prompts(
        self, session_id: str | None = None, *, states: Sequence[str] = ("pending",)
    ) -> Sequence[StoredPrompt]:
        """The prompts in these states, in the order of their submission; of one session or of all."""
        return await self._do(partial(self._open.prompts, session_id, tuple(states)))

    async def sessions(self) -> Mapping[str, str]:
        """Sessions with pending prompts: the working directory of each, by id."""
        rows = await self.prompts()
        return {row.session_id: row.cwd for row in rows}

    async def discard(self, key: str) -> None:
        """The user does not want this prompt any more, whatever became of it."""
        await self._do(partial(self._open.settle, key, "discarded", reason="discarded by the user"))

    async def reopen(self, key: str) -> None:
        """The user wants an old, failed or withdrawn prompt to be sent after all: as if submitted now, same key."""
        await self._do(partial(self._open.reopen, key, time.time()))

    async def prune(self, before: float) -> int:
        """Forget done and discarded prompts that were settled before a time (Unix seconds); how many."""
        return await self._do(partial(self._open.prune, before))

    # What the client tells.

    async def add(self, session_id: str, cwd: str, key: str, content: Sequence[Mapping[str, Any]]) -> StoredPrompt:
        """Keep a prompt; on return it is on the disk."""
        return await self._do(partial(self._open.add, session_id, cwd, key, content, time.time()))

    async def done(self, key: str, message_id: str) -> None:
        """The agent has inserted the prompt under this id."""
        await self._do(partial(self._open.settle, key, "done", message_id=message_id))

    async def failed(self, key: str, code: int | None, reason: str) -> None:
        """The agent refuses the prompt for good."""
        await self._do(partial(self._open.settle, key, "failed", code=code, reason=reason))

    async def withdrawn(self, key: str, reason: str) -> None:
        """The user took the prompt back."""
        await self._do(partial(self._open.settle, key, "withdrawn", reason=reason))

    async def note(self, key: str, code: int | None, reason: str) -> None:
        """Why a prompt that stays pending was not confirmed this time."""
        await self._do(partial(self._open.note, key, code, reason))

    async def take(self, session_id: str, *, patience: float = 0.0) -> tuple[Sequence[StoredPrompt], int]:
        """Make the session's pending prompts this process's own; these, and how many belong to living others.

        Others get ``patience`` seconds to end: an agent outlives its killed client for a moment.
        """
        deadline = anyio.current_time() + patience
        while True:
            mine, elsewhere = await self._do(partial(self._open.take, session_id))
            if not elsewhere or anyio.current_time() >= deadline:
                return mine, elsewhere
            # Nothing tells when another process ends.
            await anyio.sleep(0.05)

    async def opened(self, session_id: str, cwd: str) -> None:
        """The agent has made this session, though it may have used its id before: nothing is stored in it."""
        await self._do(partial(self._open.opened, session_id, cwd))

    async def unsettled(self, session_id: str) -> bool:
        """Whether a client of this outbox made the session, and no prompt in it was ever confirmed."""
        return await self._do(partial(self._open.unsettled, session_id))

    async def move(self, session_id: str, to: str) -> str:
        """Move the pending prompts of a session that was never stored; the session that has them now.

        It is another than ``to`` when another process was quicker.
        """
        return await self._do(partial(self._open.move, session_id, to))

    async def follow(self, session_id: str) -> str | None:
        """Where the session's prompts were moved, if they were; what was added to it since is moved along.

        ``None`` also when a prompt in it was confirmed after all: then it was stored.
        """
        return await self._do(partial(self._open.follow, session_id))

    # The shell.

    @property
    def _open(self) -> OutboxFile:
        if self._file is None:
            raise OutboxError(self.path, "is not open")
        return self._file

    async def _do(self, call: Callable[[], T]) -> T:
        # Not given up midway: a caller that is cancelled still knows what the file says.
        return await anyio.to_thread.run_sync(self._locked, call, limiter=self._limiter)

    def _locked(self, call: Callable[[], T]) -> T:
        with self._lock:
            return call()
