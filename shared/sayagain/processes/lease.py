"""The lease: one process at a time may store messages in a session (design section 5).

A lease is an advisory lock (``flock``) on ``sayagain/leases/<session id>.lock`` in the folder in which the runtime
keeps its sessions: whoever comes to the sessions comes to their leases, whatever else differs between two adapters (one
of them in an editor's sandbox, for instance, with other folders for state). The lock belongs to an open file, and the
guard of the runtime inherits that: a lease is free when the adapter *and* everything that its runtime started are gone,
whatever ended them. The file's content, ``{"space", "pid", "start", "guards": [{"pid", "start"}]}``, only helps to name
and to end what an adapter left behind; the lock alone decides. ``space`` is where the pids are valid.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

import anyio

from sayagain import fault_points
from sayagain.errors import RuntimeFault, SessionInUse
from sayagain.fault_points import Point
from sayagain.processes import proc

if sys.platform != "win32":
    import fcntl

__all__ = ["Lease", "acquire", "lease_path"]

ORPHAN_PATIENCE: Final = 2.0
"""Seconds for an orphan to end, however short the caller's patience: half of it on request, half after SIGKILL."""

_FIRST_DELAY: Final = 0.01
_LONGEST_DELAY: Final = 0.25
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class _Identity(TypedDict):
    pid: int
    start: int | None


class _Record(_Identity):
    space: str
    guards: list[_Identity]


@dataclass(slots=True)
class _Holder:
    """What an attempt found out about the present holder of the lock; ``pid`` 0 is unknown."""

    pid: int
    orphaned: bool
    guards: list[_Identity]


class Lease:
    """The right to store messages in one session, held until :meth:`release` *and* the end of all recorded holders."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._guards: list[_Identity] = []
        self._write()

    @property
    def path(self) -> Path:
        """The lock file."""
        return self._path

    def fileno(self) -> int:
        """The descriptor that carries the lock, for ``hold_fds`` of a spawn. Close-on-exec; -1 when released."""
        return self._descriptor

    def add_holder(self, pid: int) -> None:
        """Record the guard of a runtime as holder too; those that have ended are forgotten.

        Raises :class:`~sayagain.errors.RuntimeFault` when it cannot be written.
        """
        self._guards = [guard for guard in self._guards if proc.alive(guard["pid"], guard["start"])]
        self._guards.append(_identity(pid))
        self._write()

    def release(self) -> None:
        """Give the session up. Idempotent.

        The file is removed, unless something of ours still works: then the lock goes on until that has ended, and so
        must the file, or the next acquirer would lock another one.
        """
        if self._descriptor >= 0:
            fault_points.passing(Point.LEASE_RELEASING)
            os.close(self._descriptor)
            self._descriptor = -1
            _remove_free(self._path)

    def _write(self) -> None:
        record: _Record = {"space": proc.pid_space(), **_identity(os.getpid()), "guards": self._guards}
        content = json.dumps(record).encode()
        try:
            fault_points.passing(Point.LEASE_WRITING)
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))
        except OSError as error:
            raise _unusable(self._path, error) from error


def lease_path(home: Path, session_id: str) -> Path:
    """The lock file of a session that the runtime keeps in ``home``. An id that is no safe file name is hashed."""
    if not _SAFE_NAME.fullmatch(session_id):
        session_id = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return home / "sayagain" / "leases" / f"{session_id}.lock"


async def acquire(home: Path, session_id: str, *, patience: float) -> Lease:
    """Become the owner of a session that the runtime keeps in ``home``, as this process and its guards.

    Waits ``patience`` seconds for an owner that is about to end. An owner whose adapter is dead is ended, and has two
    seconds for that in any case. Two leases in one process exclude each other too.

    Raises :class:`~sayagain.errors.SessionInUse` while somebody else owns the session, and
    :class:`~sayagain.errors.RuntimeFault` when nothing can be written there: without a lease nothing is stored.
    """
    if sys.platform == "win32":
        raise RuntimeFault("Sessions cannot be leased on Windows: run the agent in WSL")
    path = lease_path(home, session_id)
    started = anyio.current_time()
    orphaned_since: float | None = None
    delay = _FIRST_DELAY
    while True:
        descriptor = _try_lock(path)
        if descriptor is not None:
            return _taken(path, descriptor)
        holder = _read_holder(path)
        now = anyio.current_time()
        deadline = started + patience
        if holder.orphaned:
            if orphaned_since is None:
                orphaned_since = now
                _end(holder.guards, signal.SIGTERM, signal.SIGINT)  # the second signal makes a guard kill
            elif now >= orphaned_since + ORPHAN_PATIENCE / 2:
                _end_by_force(holder.guards)
            deadline = max(deadline, orphaned_since + ORPHAN_PATIENCE)
        if now >= deadline:
            raise SessionInUse(_describe(holder))
        await anyio.sleep(min(delay, deadline - now))
        delay = min(delay * 2, _LONGEST_DELAY)


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock of the file at ``path``; ``None`` while somebody else does."""
    while True:
        try:
            _make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _names(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise _unusable(path, error) from error
        os.close(descriptor)  # its owner removed it after we opened it: this lock is nobody's


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)  # each of them: the runtime's own folder may be among them


def _remove_free(path: Path) -> None:
    """Remove the file if nobody has the lock; one that stays is taken over by the next acquirer."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _names(path, descriptor):
            path.unlink()
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _names(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _taken(path: Path, descriptor: int) -> Lease:
    try:
        lease = Lease(path, descriptor)
    except RuntimeFault:
        os.close(descriptor)
        raise
    fault_points.passing(Point.LEASE_TAKEN)
    return lease


def _read_holder(path: Path) -> _Holder:
    """Who holds the lock, as far as it has been written; an unknown holder counts as alive."""
    try:
        record: _Record = json.loads(path.read_bytes())
        if record["space"] != proc.pid_space():
            return _Holder(0, orphaned=False, guards=[])  # its pids are names of other processes here
        orphaned = not proc.alive(record["pid"], record["start"])
        return _Holder(record["pid"], orphaned, record["guards"])
    except (OSError, ValueError, KeyError, TypeError):
        return _Holder(0, orphaned=False, guards=[])  # not written yet, half written, or just removed


def _identity(pid: int) -> _Identity:
    return {"pid": pid, "start": proc.start_time(pid)}


def _end(guards: list[_Identity], *signals: int) -> None:
    for guard in guards:
        if guard["start"] is not None:
            for number in signals:
                proc.send_signal(guard["pid"], guard["start"], number)


def _end_by_force(guards: list[_Identity]) -> None:
    """SIGKILL guards that do not do their work (stopped, for instance), and what is below them."""
    for guard in guards:
        if guard["start"] is not None and proc.alive(guard["pid"], guard["start"]):
            below = [_identity(pid) for pid in proc.descendants(guard["pid"])]
            _end([guard, *below], signal.SIGKILL)


def _describe(holder: _Holder) -> str:
    if holder.orphaned:
        return f"What process {holder.pid} left behind still works on this session and could not be ended"
    if holder.pid == os.getpid():
        return "Another agent of this process works on this session"
    return f"Another process ({holder.pid}) works on this session" if holder.pid else ""


def _unusable(path: Path, error: OSError) -> RuntimeFault:
    return RuntimeFault(f"The session cannot be owned: the folder {path.parent} is not usable ({error.strerror})")
