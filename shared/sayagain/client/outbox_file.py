"""The outbox's SQLite file: plain blocking calls, each one transaction.

WAL keeps readers and the writer out of each other's way; ``synchronous=FULL``, since what is submitted has to survive
a power cut too, and a prompt is rare enough to afford it.
"""

from __future__ import annotations

import errno
import json
import random
import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from sayagain import fault_points
from sayagain.client.errors import OutboxBusy, OutboxError, OutboxFull, OutboxTooNew, OutboxUnreadable
from sayagain.client.owner import Owner, owner_alive, sweep
from sayagain.fault_points import Point

__all__ = ["VERSION", "OutboxFile", "StoredPrompt"]

VERSION: Final = 1
"""``user_version`` of the file. A later one is refused: its rules are unknown here."""

APPLICATION: Final = 0x5A6A1
"""``application_id``: tells an outbox from the SQLite file of another program."""

_SCHEMA: Final = """
CREATE TABLE prompts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    cwd TEXT NOT NULL,
    content TEXT NOT NULL,
    submitted REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    settled REAL,
    message_id TEXT,
    code INTEGER,
    reason TEXT,
    owner TEXT
) STRICT;
CREATE INDEX prompts_by_session ON prompts (session_id, state);
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    cwd TEXT NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0,
    moved_to TEXT
) STRICT;
"""

_COLUMNS: Final = "number, key, session_id, cwd, content, submitted, state, message_id, code, reason"


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """A prompt in the outbox.

    ``state`` is ``pending``, ``done`` (then ``message_id`` is set), ``failed`` or ``withdrawn`` (then ``reason`` is),
    or ``discarded``. ``number`` counts submissions; ``submitted`` is in Unix seconds.
    """

    number: int
    key: str
    session_id: str
    cwd: str
    content: Sequence[Mapping[str, Any]]
    submitted: float
    state: str
    message_id: str | None
    code: int | None
    reason: str | None

    def __repr__(self) -> str:
        # Keys and prompts reach no log by accident.
        return f"<StoredPrompt {self.number} of session {self.session_id}: {self.state}>"


class OutboxFile:
    """One connection to the file. Not for two threads at once."""

    def __init__(self, path: Path | None, patience: float) -> None:
        self._path = path
        self.owner: Owner | None = None
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Before SQLite does, so that others cannot read it.
                path.touch(mode=0o600)
                sweep(path)
                self.owner = Owner(path)
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=patience, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise _outbox_error(path, error) from error
        try:
            self._prepare_patiently(patience)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and give up ownership."""
        self._connection.close()
        self._release()

    def _release(self) -> None:
        if self.owner is not None:
            self.owner.close()

    def _prepare_patiently(self, patience: float) -> None:
        """Several processes may make the file at once. SQLite refuses to wait where two could wait for each other, as
        for the change to WAL: then the one that was refused lets go, and begins anew.
        """
        deadline = time.monotonic() + patience
        while True:
            try:
                self._prepare()
            except OutboxBusy:
                if time.monotonic() >= deadline:
                    raise
                _step_back()
            else:
                return

    def _prepare(self) -> None:
        # Before anything is written: the file of another program is left as it is.
        with self._snapshot():
            version = self._identify()
        with self._errors():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            found = self._one("PRAGMA quick_check(1)")
            if found != ("ok",):
                raise OutboxUnreadable(self._path, "is damaged")
        if version == 0:
            with self._transaction():
                if self._identify() == 0:
                    for statement in _SCHEMA.split(";\n"):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def _identify(self) -> int:
        """The file's version, 0 for an empty one. To be called in a transaction: another process may make the file
        between two looks.
        """
        (version,) = self._one("PRAGMA user_version") or (0,)
        (application,) = self._one("PRAGMA application_id") or (0,)
        if application not in (0, APPLICATION) or (application == 0 and self._one("SELECT 1 FROM sqlite_schema")):
            raise OutboxUnreadable(self._path, "is the database of another program")
        if version > VERSION:
            raise OutboxTooNew(self._path, f"has version {version}; this program knows {VERSION}")
        return cast("int", version)

    # Prompts.

    def add(
        self, session_id: str, cwd: str, key: str, content: Sequence[Mapping[str, Any]], now: float
    ) -> StoredPrompt:
        """Keep a prompt. A key that is there already is a mistake of the application's: one key, one submission."""
        with self._transaction():
            if self._one("SELECT 1 FROM prompts WHERE key = ?", key):
                raise OutboxError(self._path, "has a prompt under this key already")
            self._connection.execute(
                "INSERT INTO prompts (key, session_id, cwd, content, submitted, owner) VALUES (?, ?, ?, ?, ?, ?)",
                (key, session_id, cwd, json.dumps(list(content)), now, self._owner_id),
            )
            (stored,) = self._prompts("key = ?", key)
        return stored

    def prompts(self, session_id: str | None, states: tuple[str, ...]) -> list[StoredPrompt]:
        """See :meth:`Outbox.prompts <sayagain.client.outbox.Outbox.prompts>`."""
        marks = ", ".join("?" * len(states))
        with self._errors():
            if session_id is None:
                return self._prompts(f"state IN ({marks})", *states)
            return self._prompts(f"state IN ({marks}) AND session_id = ?", *states, session_id)

    def settle(
        self, key: str, state: str, *, message_id: str | None = None, code: int | None = None, reason: str | None = None
    ) -> None:
        """The prompt's fate. What is done stays done: a late word of another attempt changes nothing."""
        with self._transaction():
            self._connection.execute(
                "UPDATE prompts SET state = ?, settled = ?, message_id = ?, code = ?, reason = ? "
                "WHERE key = ? AND state != 'done'",
                (state, time.time(), message_id, code, reason, key),
            )
            if state == "done":
                self._connection.execute(
                    "UPDATE sessions SET confirmed = 1 WHERE session_id = "
                    "(SELECT session_id FROM prompts WHERE key = ?)",
                    (key,),
                )

    def note(self, key: str, code: int | None, reason: str) -> None:
        """The latest trouble of a pending prompt."""
        with self._transaction():
            self._connection.execute(
                "UPDATE prompts SET code = ?, reason = ? WHERE key = ? AND state = 'pending'", (code, reason, key)
            )

    def reopen(self, key: str, now: float) -> None:
        """Pending again, as if submitted now. What was inserted is not."""
        with self._transaction():
            self._connection.execute(
                "UPDATE prompts SET state = 'pending', settled = NULL, submitted = ? WHERE key = ? AND state != 'done'",
                (now, key),
            )

    def prune(self, before: float) -> int:
        """See :meth:`Outbox.prune <sayagain.client.outbox.Outbox.prune>`."""
        with self._transaction():
            cursor = self._connection.execute(
                "DELETE FROM prompts WHERE state IN ('done', 'discarded') AND settled < ?", (before,)
            )
            return cursor.rowcount

    def take(self, session_id: str) -> tuple[list[StoredPrompt], int]:
        """Own the pending prompts of the session, but for those of owners that live; these, and the number of those."""
        with self._transaction():
            rows = self._all(
                "SELECT key, owner FROM prompts WHERE state = 'pending' AND session_id = ? ORDER BY number", session_id
            )
            elsewhere = {owner for _, owner in rows if self._lives_elsewhere(owner)}
            mine = [key for key, owner in rows if owner not in elsewhere]
            self._connection.executemany(
                "UPDATE prompts SET owner = ? WHERE key = ?", [(self._owner_id, key) for key in mine]
            )
            taken = [stored for key in mine for stored in self._prompts("key = ?", key)]
        return taken, len(rows) - len(mine)

    # Sessions.

    def opened(self, session_id: str, cwd: str) -> None:
        """See :meth:`Outbox.opened <sayagain.client.outbox.Outbox.opened>`."""
        with self._transaction():
            self._connection.execute(
                # An agent may use an id again: what is known of the session that had it does not hold of this one.
                "INSERT INTO sessions (session_id, cwd) VALUES (?, ?) ON CONFLICT (session_id) DO UPDATE "
                "SET cwd = excluded.cwd, confirmed = 0, moved_to = NULL",
                (session_id, cwd),
            )

    def unsettled(self, session_id: str) -> bool:
        """See :meth:`Outbox.unsettled <sayagain.client.outbox.Outbox.unsettled>`."""
        with self._errors():
            return self._one("SELECT confirmed FROM sessions WHERE session_id = ?", session_id) == (0,)

    def move(self, session_id: str, to: str) -> str:
        """Under one transaction with the question who else may still send: see ``Outbox.move``."""
        if to == session_id:
            raise OutboxError(self._path, "cannot move a session's prompts to itself: the agent used its id twice")
        with self._transaction():
            if (elsewhere := self._follow(session_id)) is not None:
                return elsewhere
            rows = self._all("SELECT owner FROM prompts WHERE state = 'pending' AND session_id = ?", session_id)
            if any(self._lives_elsewhere(owner) for (owner,) in rows):
                raise OutboxBusy(self._path, "has prompts of this session that a living process may still get inserted")
            self._carry(session_id, to)
            self._connection.execute("UPDATE sessions SET moved_to = ? WHERE session_id = ?", (to, session_id))
        return to

    def follow(self, session_id: str) -> str | None:
        """See :meth:`Outbox.follow <sayagain.client.outbox.Outbox.follow>`."""
        with self._transaction():
            return self._follow(session_id)

    def _follow(self, session_id: str) -> str | None:
        left: list[str] = []
        current = session_id
        # An agent that uses an id twice could close a circle.
        while current not in left:
            row = self._one("SELECT confirmed, moved_to FROM sessions WHERE session_id = ?", current)
            if row is None or row[0] or row[1] is None:
                break
            left.append(current)
            current = str(row[1])
        if current in left:
            current = left.pop()
        for each in left:
            self._carry(each, current)
        return current if left else None

    def _carry(self, session_id: str, to: str) -> None:
        """The pending prompts of a session where they cannot be inserted any more, but for those of owners that live:
        the session may be active for one of them.
        """
        rows = self._all("SELECT key, owner FROM prompts WHERE state = 'pending' AND session_id = ?", session_id)
        self._connection.executemany(
            "UPDATE prompts SET session_id = ?, owner = ? WHERE key = ?",
            [(to, self._owner_id, key) for key, owner in rows if not self._lives_elsewhere(owner)],
        )

    # SQLite.

    @property
    def _owner_id(self) -> str | None:
        return None if self.owner is None else self.owner.id

    def _lives_elsewhere(self, owner: str | None) -> bool:
        if owner is None or self._path is None or owner == self._owner_id:
            return False
        return owner_alive(self._path, owner)

    def _prompts(self, condition: str, *values: object) -> list[StoredPrompt]:
        rows = self._all(f"SELECT {_COLUMNS} FROM prompts WHERE {condition} ORDER BY number", *values)
        return [_stored(row) for row in rows]

    def _one(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        return cast("tuple[Any, ...] | None", self._connection.execute(statement, values).fetchone())

    def _all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with self._errors():
            # The lock for writing at once: one that is asked for in the middle is refused, not waited for.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                fault_points.passing(Point.OUTBOX_WRITTEN)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _snapshot(self) -> Generator[None]:
        """What is read in it is of one moment."""
        with self._errors():
            self._connection.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, OSError) as error:
            raise _outbox_error(self._path, error) from error


def _step_back() -> None:
    # At random, so that two that were in each other's way are not again.
    time.sleep(random.uniform(0.001, 0.01))


def _stored(row: tuple[Any, ...]) -> StoredPrompt:
    number, key, session_id, cwd, content, submitted, state, message_id, code, reason = row
    return StoredPrompt(number, key, session_id, cwd, json.loads(content), submitted, state, message_id, code, reason)


def _outbox_error(path: Path | None, error: Exception) -> OutboxError:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return OutboxFull(path, "cannot be written: the disk is full")
    # Extended codes carry the primary one in their low byte.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return OutboxBusy(path, "is held by another process")
        case sqlite3.SQLITE_FULL:
            return OutboxFull(path, "cannot be written: the disk is full")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_FORMAT:
            return OutboxUnreadable(path, "is damaged, or no outbox")
        case _:
            return OutboxError(path, f"cannot be used: {error}")
