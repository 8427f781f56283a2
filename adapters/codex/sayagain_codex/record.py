"""What one session has on disk: the file that Codex writes to, and whether what Codex lists is all of it.

The file is the record. Codex tells neither that it writes to a file that was replaced, nor that it cannot read a row,
nor that what it lists ends early (all measured), so it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from sayagain.errors import HistoryUnreadable
from sayagain.processes.room import NotStored
from sayagain.runtime.tasks import SessionTasks
from sayagain_codex import storage
from sayagain_codex.damage import DamagedRow, damaged_rows
from sayagain_codex.projection import Projection
from sayagain_codex.rollouts import Part, first_turn, irregular, newest, parts
from sayagain_codex.storage import FileId, file_id

__all__ = ["BeginningMissing", "Record"]

PATIENCE: Final = 3.0
"""Seconds for Codex to list what it has written. It takes milliseconds (measured); a busy machine may take longer."""

PAUSE: Final = 0.05
"""Seconds between two looks."""

Params = Mapping[str, Any]


class BeginningMissing(HistoryUnreadable):
    """What the thread builds on is not listed any more; ``turn_id`` is a turn of the oldest of that."""

    def __init__(self, projection: Projection, turn_id: str) -> None:
        super().__init__(f"Codex does not list the beginning of this session any more: {projection.path} was removed")
        self.turn_id = turn_id


class Record:
    """The files of a session's threads in Codex's folder ``home``."""

    def __init__(self, home: Path, session_id: str) -> None:
        self._home = home
        self._session_id = session_id
        self._path: str | None = None
        self._file: FileId | None = None
        """What Codex writes to; ``None`` before there is a file."""
        self._search: _Search | None = None
        self._projection = Projection(home)

    # The file.

    async def check_files(self, thread_id: str) -> None:
        """Raise :class:`~sayagain.errors.HistoryUnreadable` for what Codex should better not open."""
        found = await anyio.to_thread.run_sync(irregular, self._home, thread_id)
        if found is not None:
            raise HistoryUnreadable(f"The stored session cannot be read: {found} is no file")

    def opened(self, path: str | None) -> None:
        """Codex has just opened the file at ``path``."""
        self._path, self._file = path, None
        self.written()

    def written(self) -> None:
        """Codex has just written: what is there now is its file, if that was not known yet. Later another may be there.

        Called by the reader, which knows that moment.
        """
        if self._file is None:
            self._file = file_id(self._path)

    async def is_kept(self) -> bool:
        """Whether what Codex writes can be found later."""
        return self._file is None or self._file == await anyio.to_thread.run_sync(file_id, self._path)

    async def exists(self) -> bool:
        """Whether there is a file: a thread that was never prompted has none (measured)."""
        return self._path is None or await anyio.Path(self._path).exists()

    async def check_storage(self, content: Sequence[Params]) -> None:
        """Raise :class:`~sayagain.processes.room.NotStored` when a prompt would not be found again."""
        await anyio.to_thread.run_sync(self._check_storage, content)

    def _check_storage(self, content: Sequence[Params]) -> None:
        file = Path(self._path) if self._path is not None else None
        own = parts(self._home, self._session_id, file)[:1] if file is not None else ()
        if own and self._projection.goes_beyond(own[0]):
            raise NotStored(f"Codex would not find the prompt again: its index goes further than {file}, which was cut")
        storage.check_room(file, self._home / "sessions", self._projection.path, content)

    # What is listed.

    def lists_from(self, folder: Path) -> None:
        """Codex keeps its databases there."""
        self._projection = Projection(folder)

    async def is_listed(self, thread: Params) -> bool:
        """Whether all that is written of a thread is listed; raises like :meth:`check_listed`.

        ``thread`` is one of the session's, as Codex describes it; of a legacy one the file itself is read.
        """
        return await anyio.to_thread.run_sync(self._lacks, await self._written(thread)) is None

    async def check_listed(self, thread: Params) -> None:
        """Raise :class:`~sayagain.errors.HistoryUnreadable` unless what is written of a thread is listed soon:
        :class:`BeginningMissing` when that does not help."""
        written = await self._written(thread)
        deadline = anyio.current_time() + PATIENCE
        while missing := await anyio.to_thread.run_sync(self._lacks, written):
            if isinstance(missing, str):
                raise BeginningMissing(self._projection, missing)
            if anyio.current_time() >= deadline:
                raise HistoryUnreadable(
                    f"Codex does not list all that it has written of this session: {self._projection.path} is behind "
                    f"{thread['path']}, as when it is locked, has no room, or was replaced under Codex. Try again"
                )
            await anyio.sleep(PAUSE)

    async def _written(self, thread: Params) -> Sequence[Part]:
        path = thread.get("path")
        if not path or thread.get("historyMode") == "legacy":
            return ()
        return await anyio.to_thread.run_sync(parts, self._home, thread["id"], Path(path))

    def _lacks(self, written: Sequence[Part]) -> Part | str | None:
        """The part that is not whole in what is listed, or a turn of the oldest of those that the thread builds on when
        they are not; ``None`` when nothing is known to be missing."""
        missing = self._projection.lacks(written)
        if missing is None or missing is written[0]:
            return missing
        if turn_id := next((turn_id for part in reversed(written[1:]) if (turn_id := first_turn(part))), None):
            return turn_id
        return next((part for part in written[1:] if part.file is None), None)  # else there is nothing to list

    # What cannot be read.

    def search(self, tasks: SessionTasks) -> None:
        """Look through the file, while Codex loads the thread from it and nobody else writes to it."""
        self._search = _Search()
        tasks.start_soon(self._search.run, self._home, self._session_id)

    async def damaged(self, thread: Params, *, loaded: bool) -> Sequence[DamagedRow]:
        """The rows of a thread's files that cannot be read; ``loaded``: the session's own was looked through since."""
        written = await self._written(thread)
        rows = list(await self._damaged(thread.get("path"), loaded=loaded))
        for part in written[1:]:
            if part.file is not None:
                rows += await damaged_rows(part.file, end=part.end)
        return rows

    async def _damaged(self, rollout: str | None, *, loaded: bool) -> Sequence[DamagedRow]:
        if loaded and self._search is not None:
            await self._search.done.wait()
            if rollout == str(self._search.rollout):
                return self._search.rows
        return await damaged_rows(Path(rollout)) if rollout else ()


class _Search:
    """For what cannot be read of the thread."""

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
