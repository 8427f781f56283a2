"""Start a runtime under its guard (see :mod:`sayagain.processes.guard`).

One socket pair ties the two together: the guard takes the end of file for the adapter's death, however the adapter
ended, and reports over it what became of the runtime. The adapter's end is close-on-exec: no child ever holds it.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from sayagain import fault_points
from sayagain.errors import RuntimeFault, RuntimeMissing
from sayagain.fault_points import Point

__all__ = ["ExitStatus", "GuardedProcess", "Starting", "begin", "spawn"]

STDERR_TAIL: Final = 4096
"""Bytes of standard error kept for error messages; also the longest line handed out in one piece."""

KILL_PATIENCE: Final = 5.0
"""Seconds for the guard to end everything. It takes milliseconds unless a process cannot die (uninterruptible I/O)."""

_GUARD: Final = Path(__file__).with_name("guard.py")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How the runtime ended: its exit ``code``, or the ``signal`` that ended it; the other one is ``None``."""

    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(self.signal).name}"
        except ValueError:
            return f"signal {self.signal}"


class GuardedProcess:
    """A runtime that ends, with all that it started, when this process does. Made by :func:`spawn`."""

    def __init__(self, process: Process, channel: socket.socket, stderr: _Stderr, runtime_pid: int) -> None:
        self._process = process
        self._channel = channel
        self._stderr = stderr
        self._runtime_pid = runtime_pid
        self._status: ExitStatus | None = None

    @property
    def stdin(self) -> ByteSendStream:
        """The runtime's standard input; closing it is end of file for the runtime."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        """The runtime's standard output; ends when nothing holds it any more."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr_tail(self) -> str:
        """The last 4 KiB that came on standard error, whole after :meth:`wait`."""
        return self._stderr.tail

    @property
    def pid(self) -> int:
        """The guard's pid: what a lease records as its holder."""
        return self._process.pid

    @property
    def runtime_pid(self) -> int:
        """The runtime's own pid."""
        return self._runtime_pid

    @property
    def status(self) -> ExitStatus | None:
        """How the runtime ended; ``None`` until :meth:`wait` has seen it."""
        return self._status

    async def wait(self) -> ExitStatus:
        """Wait until the runtime and everything that it started is gone."""
        await self._process.wait()
        if self._status is None:
            self._status = _parse_status(self._read_rest(), self._process.returncode)
        await self._stderr.drained()
        return self._status

    def terminate(self) -> None:
        """Ask the runtime to end (SIGTERM). A second call kills."""
        if self._process.returncode is None:
            self._process.terminate()

    async def kill(self) -> ExitStatus:
        """End the runtime and everything that it started at once; returns when all is gone.

        The killing is under way even if the caller is cancelled here.
        """
        self._abandon()
        await _gone(self._process)
        return await self.wait()

    async def aclose(self) -> None:
        """:meth:`kill`, then close the streams. Idempotent."""
        with anyio.CancelScope(shield=True):
            await self.kill()
            await self._process.aclose()
            self._channel.close()

    def _abandon(self) -> None:
        try:
            self._channel.shutdown(socket.SHUT_WR)
        except OSError as error:  # the guard is gone, or this is the second call
            if error.errno not in (errno.ENOTCONN, errno.EPIPE, errno.EBADF):
                raise

    def _read_rest(self) -> bytes:
        """What the ended guard has written. Its end is closed, so this meets end of file and never waits."""
        rest = b""
        try:
            while more := self._channel.recv(512):
                rest += more
        except OSError as error:
            if error.errno not in (errno.ECONNRESET, errno.EAGAIN):
                raise
        return rest


async def spawn(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    hold_fds: Sequence[int] = (),
    stderr: Callable[[str], None] | None = None,
) -> GuardedProcess:
    """Start ``argv`` in ``cwd`` with exactly the environment ``env``; returns once its executable runs.

    ``hold_fds`` stay open until the runtime and everything that it started is gone (on Linux without the runtime having
    them): give it :meth:`Lease.fileno <sayagain.processes.lease.Lease.fileno>`. ``stderr`` is called with each line of
    standard error, without its end, **in a thread of its own**; it must not block.

    Raises :class:`~sayagain.errors.RuntimeMissing` when the executable or ``cwd`` is missing or not usable, and
    :class:`~sayagain.errors.RuntimeFault` when the system cannot start a process.
    """
    return await (await begin(argv, cwd=cwd, env=env, hold_fds=hold_fds, stderr=stderr)).running()


async def begin(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    hold_fds: Sequence[int] = (),
    stderr: Callable[[str], None] | None = None,
) -> Starting:
    """The first half of :func:`spawn`: returns as soon as there is a process, so that it starts beside the caller.

    The caller owns what it returns: without :meth:`Starting.running` the process and its descriptors stay. Raises what
    :func:`spawn` raises, as far as it is known by then: what cannot be executed is found by the second half.
    """
    executable = _usable_executable(argv[0], cwd, env)
    locale = f"LC_CTYPE={env['LC_CTYPE']}" if "LC_CTYPE" in env else "LC_CTYPE"
    channel = reader = None
    try:
        channel, guard_end = socket.socketpair()
        with guard_end:
            channel.setblocking(False)
            reader, stderr_write = _open_stderr(stderr)
            passed = (guard_end.fileno(), *hold_fds)
            head = [sys.executable, "-I", "-S", str(_GUARD), str(passed[0]), locale, *map(str, hold_fds), "--"]
            try:
                process = await anyio.open_process(
                    [*head, executable, *argv[1:]],
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=stderr_write,
                    cwd=cwd,
                    env=env,
                    pass_fds=passed,
                    start_new_session=True,
                )
            finally:
                os.close(stderr_write)
    except BaseException as error:
        await _undo(channel, None, reader)
        if isinstance(error, OSError):
            raise _unstartable(executable, error) from error
        raise
    return Starting(executable, process, channel, reader)


class Starting:
    """A guard that is about to run its executable. Made by :func:`begin`.

    :meth:`running` is to be called once, even when nobody needs the process any more: it hands the process on to be
    ended, or ends it when it raises. One for which nobody calls it is never ended while this process lives.
    """

    def __init__(self, executable: str, process: Process, channel: socket.socket, stderr: _Stderr) -> None:
        self._executable = executable
        self._process = process
        self._channel = channel
        self._stderr = stderr

    async def running(self) -> GuardedProcess:
        """The second half of :func:`spawn`, which raises the same; nothing is left of the process then."""
        try:
            word, number = await _first_line(self._channel)
        except BaseException as error:
            await _undo(self._channel, self._process, self._stderr)
            if isinstance(error, OSError):
                raise _unstartable(self._executable, error) from error
            raise
        if word == "pid":
            fault_points.passing(Point.RUNTIME_STARTED)
            return GuardedProcess(self._process, self._channel, self._stderr, number)
        await _undo(self._channel, self._process, self._stderr)
        raise _start_failure(self._executable, word, number, self._stderr.tail)


async def _first_line(channel: socket.socket) -> tuple[str, int]:
    """``("pid", pid)`` or ``("errno", number)``; ``("gone", 0)`` when the guard died."""
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(channel)
        if not (byte := channel.recv(1)):  # no more than this line: the next one is read when the guard has ended
            return "gone", 0
        line += byte
    word, _, number = line.decode().partition(" ")
    return word, int(number)


async def _undo(channel: socket.socket | None, process: Process | None, reader: _Stderr | None) -> None:
    with anyio.CancelScope(shield=True):
        if channel is not None:
            channel.close()
        if process is not None:
            await _gone(process)
            await process.aclose()
        if reader is not None:
            await reader.drained()


async def _gone(guard: Process) -> None:
    """Wait for a guard whose channel is closed, and so ends everything; one that hangs is killed."""
    with anyio.move_on_after(KILL_PATIENCE):
        await guard.wait()
        return
    guard.kill()  # its runtime has a parent-death signal
    await guard.wait()


def _usable_executable(name: str, cwd: str | os.PathLike[str], env: Mapping[str, str]) -> str:
    """The absolute path of an executable; checked here since the guard stands in front of the system's own errors."""
    folder = Path(cwd)
    if not folder.is_dir():
        raise RuntimeMissing(f"The working directory {folder} does not exist or is no directory")
    if not os.access(folder, os.X_OK):
        raise RuntimeMissing(f"The working directory {folder} is not accessible")
    if os.sep not in name:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
        if found is None:
            raise RuntimeMissing(f"The executable {name} is not on PATH")
        return str(folder / found)
    path = folder / name
    if not path.is_file():
        raise RuntimeMissing(f"The executable {path} does not exist or is no file")
    if not os.access(path, os.X_OK):
        raise RuntimeMissing(f"The file {path} is not executable")
    return str(path)


def _unstartable(executable: str, error: OSError) -> RuntimeFault:
    return RuntimeFault(f"{executable} cannot be started: {error.strerror}")


def _start_failure(executable: str, word: str, number: int, tail: str) -> RuntimeFault:
    if word != "errno":
        last = "".join(tail.splitlines()[-1:])
        return RuntimeFault(f"{executable} cannot be started: the process that guards it failed. {last}".rstrip())
    if number == errno.ENOENT:
        return RuntimeMissing(f"{executable} cannot be started: its interpreter or loader does not exist")
    return RuntimeMissing(f"{executable} cannot be started: {os.strerror(number)}")


def _parse_status(lines: bytes, guard_code: int | None) -> ExitStatus:
    for line in lines.decode().splitlines():
        word, _, number = line.partition(" ")
        if word == "code":
            return ExitStatus(code=int(number), signal=None)
        if word == "signal":
            return ExitStatus(code=None, signal=int(number))
    if guard_code is not None and guard_code < 0:
        return ExitStatus(code=None, signal=signal.SIGKILL)  # the guard was killed: the parent-death signal followed
    return ExitStatus(code=guard_code, signal=None)


def _open_stderr(callback: Callable[[str], None] | None) -> tuple[_Stderr, int]:
    """The reader of a pipe, and the end to write to; ``OSError`` when the system has no more of what it takes."""
    read, write = os.pipe()
    try:
        return _Stderr(read, callback), write
    except BaseException as error:
        os.close(read)
        os.close(write)
        if isinstance(error, RuntimeError):  # Python's word for a thread that the system does not start
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        raise


class _Stderr(threading.Thread):
    """Drains standard error, whether or not anybody looks: a full pipe would stop the runtime.

    A thread, since a task would need a task group that lives as long as the process, and the two have other owners.
    """

    def __init__(self, descriptor: int, callback: Callable[[str], None] | None) -> None:
        super().__init__(name="sayagain-stderr", daemon=True)
        self._descriptor = descriptor
        self._callback = callback
        self._kept = b""
        self.start()

    @property
    def tail(self) -> str:
        return self._kept.decode("utf-8", "replace")

    async def drained(self) -> None:
        """Wait until all has been read; shortly, since a process that the guard may not end can hold the pipe."""
        if self.is_alive():
            await anyio.to_thread.run_sync(self.join, 1.0)

    def run(self) -> None:
        line = b""
        try:
            while more := os.read(self._descriptor, 65536):
                self._kept = (self._kept + more)[-STDERR_TAIL:]
                *lines, line = (line + more).split(b"\n")
                if len(line) > STDERR_TAIL:
                    lines.append(line)
                    line = b""
                for whole in lines:
                    self._hand_out(whole)
            if line:
                self._hand_out(line)
        finally:
            os.close(self._descriptor)

    def _hand_out(self, line: bytes) -> None:
        if self._callback is None:
            return
        try:
            self._callback(line.decode("utf-8", "replace"))
        except Exception:  # noqa: BLE001 - whatever it is, the pipe has to be drained on
            self._callback = None
            _log.exception("The handler of a runtime's standard error failed and is not called again")
