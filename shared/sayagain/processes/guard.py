"""The guard: a small process between an adapter and its runtime, so that nothing outlives the adapter.

Run as a script, ``python -I -S guard.py CHANNEL LC_CTYPE[=VALUE] [HELD...] -- EXECUTABLE [ARGUMENT...]``, by
:func:`sayagain.processes.spawn.spawn`. It imports the standard library only, and little of that: its start-up is added
to every start of a runtime.

``CHANNEL`` is a stream socket to the adapter. End of file on it means that the adapter is gone, or wants everything
gone: SIGKILL for the runtime and every descendant. The guard writes lines to it: ``pid N`` once the runtime's
executable runs, or ``errno N`` when it cannot be executed; then ``code N`` or ``signal N`` when it has ended.

``HELD`` are descriptors (of leases) that stay open exactly until everything is gone. The runtime gets them only where
it could outlive a guard that is killed: then its session stays leased for as long as it lives.
``LC_CTYPE`` is the runtime's own value, or that it has none: CPython overwrites it in the C locale (PEP 538).

Exit status: the runtime's own code, or 128 + N when signal N ended it. A runtime may use such codes itself (Claude
Code exits with 143 after SIGTERM), so the adapter trusts the channel, and the exit status is for people.

Signals: the first SIGTERM, SIGINT or SIGHUP becomes a SIGTERM for the runtime, the second one kills.

Linux: the guard is a subreaper, so a descendant cannot leave by a double fork and ``setsid``, and the runtime has a
parent-death signal in case the guard itself is killed. Elsewhere the runtime's process group is what can be ended, and
a killed guard leaves it running.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time

__all__ = ["main"]

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for what a finished runtime left behind; its session stays leased meanwhile."""

UNTOLD_ROUNDS = 10
"""Looks (50 ms apart) at processes whose end nothing tells before giving up: such as refuse our signals (another
user's, as with ``sudo``), and without a subreaper all but the runtime."""

LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    import ctypes  # Linux only, and costs 3 ms

    call = ctypes.CDLL(None).prctl
    call.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    call(option, value, 0, 0, 0)


def _descendants() -> list[tuple[int, bool]]:
    """Every process below this one: ``(pid, whether it is a zombie)``, parents first."""
    children: dict[int, list[tuple[int, bool]]] = {}
    with os.scandir("/proc") as entries:
        for name in [entry.name for entry in entries if entry.name.isdigit()]:
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
                    state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
            except OSError:
                continue  # it ended while we looked
            children.setdefault(int(parent), []).append((int(name), state == b"Z"))
    found: list[tuple[int, bool]] = []
    parents = [os.getpid()]
    while parents:
        below = children.pop(parents.pop(), [])
        found += below
        parents += [pid for pid, _ in below]
    return found


class _Guard:
    """One runtime and everything below it."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._runtime = 0
        self._empty = False
        self.status: int | None = None
        """The runtime's exit status as the guard's own, once it has ended."""
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(channel, select.POLLIN)

    def start(self, argv: list[str]) -> None:
        """Fork and execute the runtime; ``status`` is set when that failed."""
        if LINUX:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
        told, tell = os.pipe()  # close-on-exec: end of file says that the executable runs
        guard = os.getpid()
        self._runtime = os.fork()
        if not self._runtime:
            _become(argv, guard, tell)
        os.close(tell)
        failure = os.read(told, 16)
        os.close(told)
        if failure:
            os.waitpid(self._runtime, 0)
            self.status = 127
            self._report(f"errno {failure.decode()}")
        else:
            self._report(f"pid {self._runtime}")

    def watch(self) -> bool:
        """Wait for the runtime's end: true when it ended by itself, false when it has to be killed."""
        asked = False
        while not self._reap():
            adapter_gone, signals = self._pause(None)
            if adapter_gone:
                return False
            for _ in signals:
                if asked:
                    return False
                asked = True
                os.kill(self._runtime, signal.SIGTERM)
        return True

    def dismiss(self) -> None:
        """Ask what the runtime left behind to end, and give it a moment."""
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        self._reap()
        while not self._empty and (left := deadline - time.monotonic()) > 0:
            adapter_gone, signals = self._pause(left)
            if adapter_gone or signals:
                return
            self._reap()

    def kill(self) -> None:
        """SIGKILL the runtime and all below it; returns when none is left.

        Every descendant becomes our child before it is gone, so "no children" is "nothing left". Whatever was forked
        while we looked has a parent that dies in this round, and that death is what starts the next one.
        """
        if self.status is None:
            os.kill(self._runtime, signal.SIGKILL)  # first: from here on it stores nothing
        untold = 0
        while not self._empty and untold < UNTOLD_ROUNDS:
            if self._signal_all(signal.SIGKILL):
                untold += 1
                self._pause(0.05)
            elif not self._empty:
                self._wait(0)
            self._reap()

    def _signal_all(self, number: int) -> bool:
        """Signal every descendant: true when the end of one may not be told to us, so that time has to be waited."""
        if not LINUX:
            try:
                os.killpg(self._runtime, number)
            except OSError:
                self._empty = self.status is not None
            return not self._empty
        refused = False
        for pid, zombie in _descendants():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                refused |= not zombie
        return refused

    def _pause(self, seconds: float | None) -> tuple[bool, bytes]:
        """Wait for something to happen: ``(whether the adapter is gone, signals other than SIGCHLD)``."""
        ready = dict(self._poll.poll(None if seconds is None else seconds * 1000))
        gone = False
        if self._channel in ready:
            try:
                gone = not os.read(self._channel, 512)
            except OSError:
                gone = True
        if gone:
            self._poll.unregister(self._channel)
        noted = os.read(self._wake, 512) if self._wake in ready else b""
        return gone, noted.replace(bytes([signal.SIGCHLD]), b"")

    def _reap(self) -> bool:
        """Collect everything that has ended: true when the runtime has."""
        while not self._empty and self._wait(os.WNOHANG):
            pass
        return self.status is not None

    def _wait(self, flags: int) -> bool:
        """Collect one child: false when there is none to collect."""
        try:
            pid, status = os.waitpid(-1, flags)
        except ChildProcessError:
            self._empty = self._empty or LINUX  # elsewhere only the process group can tell
            return False
        if pid == self._runtime:
            code = os.waitstatus_to_exitcode(status)
            self.status = code if code >= 0 else 128 - code
            self._report(f"code {code}" if code >= 0 else f"signal {-code}")
        return pid != 0

    def _report(self, line: str) -> None:
        try:
            os.write(self._channel, f"{line}\n".encode())
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise


def _become(argv: list[str], guard: int, tell: int) -> None:
    """In the forked child: become the runtime, or tell why not."""
    try:
        os.setsid()  # signals of a terminal are the adapter's to handle
        if LINUX:
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(127)  # the guard was killed before the line above
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ignored by CPython, and an ignored signal survives exec
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(tell, str(error.errno).encode())
    finally:
        os._exit(127)


def main(arguments: list[str]) -> int:
    """Run the guard with the arguments described above; returns its exit status."""
    separator = arguments.index("--")
    channel, locale, *held = arguments[:separator]
    for descriptor in (channel, *(held if LINUX else ())):
        os.set_inheritable(int(descriptor), False)
    name, given, value = locale.partition("=")
    if given:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)
    guard = _Guard(int(channel))
    guard.start(arguments[separator + 1 :])
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # the other ends see end of file when the runtime's copies are closed
    os.dup2(null, 1)
    os.chdir("/")
    if guard.status is None and guard.watch():
        guard.dismiss()
    guard.kill()
    return guard.status if guard.status is not None else 128 + signal.SIGKILL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
