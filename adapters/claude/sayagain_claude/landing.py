"""Whether a message has landed: the transcript itself, when the CLI's mirror did not tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from sayagain.errors import SessionNotFound
from sayagain_claude import storage
from sayagain_claude.transcripts import contents, ids, paths

__all__ = ["Landing"]

ROW_LAG: Final = 0.5
"""Seconds that a stored row may come after the CLI's last word on its prompt: rows wait up to 100 ms in a write queue,
and that of a prompt which a running turn took up is not flushed before (measured)."""

ROW_LAG_STEPS: Final = 5


class Landing:
    """Looks into one session's transcript. Raises :class:`~sayagain.errors.HistoryUnreadable` when nobody can."""

    def __init__(self, session_id: str, config: Path, *, stored: bool) -> None:
        self._session_id = session_id
        self._config = config
        self._stored = stored
        self._written: Path | None = None

    async def any(self) -> bool:
        """Whether anything is stored of the session: then the CLI resumes it, else it begins it.

        A file without a conversation is moved out of its way: call as the owner, while no process runs.
        """
        if not self._stored:
            self._stored = await anyio.to_thread.run_sync(self._begun)
        return self._stored

    async def has(self, message_id: str) -> bool:
        """Whether the message's row is there now."""
        return await anyio.to_thread.run_sync(self._find, message_id)

    async def gets(self, message_id: str, *, alive: Callable[[], bool]) -> bool:
        """Whether the row is there, or gets there in the time that rows may lag behind; a dead process writes none."""
        for _ in range(ROW_LAG_STEPS):
            if await self.has(message_id):
                return True
            if not alive():
                break
            await anyio.sleep(ROW_LAG / ROW_LAG_STEPS)
        return await self.has(message_id)

    async def check_room(self) -> None:
        """Raise :class:`~sayagain_claude.storage.NotStored` when no prompt can be stored now."""
        await anyio.to_thread.run_sync(lambda: storage.check_room(self._config, self._path()))

    async def what_prevents(self) -> storage.NotStored:
        """Why a message was not stored."""
        return await anyio.to_thread.run_sync(lambda: storage.what_prevents(self._config, self._path()))

    def _path(self) -> Path | None:
        # Found once, it stays there; only whether it can be written may change.
        if self._written is None or not self._written.exists():
            self._written = paths.find(self._session_id, self._config)
        return self._written

    def _begun(self) -> bool:
        path = paths.find(self._session_id, self._config)
        try:
            if path is None or contents.holds_conversation(path):
                return path is not None
        except SessionNotFound:
            return False
        contents.set_aside(path)
        return False

    def _find(self, message_id: str) -> bool:
        path = paths.find(self._session_id, self._config)
        try:
            return path is not None and ids.contains(path, message_id)
        except SessionNotFound:
            # Deleted since it was found, by whomever: nothing of it is there.
            return False
