"""A client's own copy of histories on disk: replaced by whole ones only."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio.to_thread

from sayagain.client.replay import Replay, ReplayedSession

__all__ = ["HistoryStore"]


class HistoryStore:
    """One JSON file for each session in ``folder``. A file is always a whole history: the old or the new one."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)

    async def persist(self, replay: Replay) -> Sequence[str]:
        """Replace the copies of the sessions whose replay is whole; the ids of those. Others keep what they have.

        Raises :class:`OSError` when the disk does; the old copies are there still.
        """
        whole = [session for session in replay.sessions.values() if session.outcome.whole]
        for session in whole:
            await anyio.to_thread.run_sync(self._replace, session)
        return [session.session_id for session in whole]

    async def load(self, session_id: str) -> Sequence[Mapping[str, Any]] | None:
        """The copy of a session's history; ``None`` when there is none, or none that can be read."""
        return await anyio.to_thread.run_sync(self._load, session_id)

    def _replace(self, session: ReplayedSession) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(session.session_id)
        descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=self._folder)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is a descriptor
                json.dump({"sessionId": session.session_id, "history": session.history}, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise

    def _load(self, session_id: str) -> Sequence[Mapping[str, Any]] | None:
        try:
            stored: Any = json.loads(self._path(session_id).read_text(encoding="utf-8"))
            history: list[Mapping[str, Any]] = stored["history"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return history

    def _path(self, session_id: str) -> Path:
        # A session id may be anything, "../x" included.
        return self._folder / (hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest() + ".json")
