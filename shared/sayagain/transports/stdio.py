"""The process's own stdin and stdout as a transport, or any pair of file descriptors.

The descriptors stay in blocking mode: ``O_NONBLOCK`` belongs to the open file description, which may be the user's
terminal or be shared with the parent process, and would outlive us there. What is ready is asked of the kernel instead,
and no more is written than cannot block. No thread is involved where the system can tell readiness.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
from contextlib import suppress
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from sayagain.transports import ClosedTransport

__all__ = ["READ_SIZE", "StdioTransport", "take_stdio"]

READ_SIZE: Final = 64 * 1024
"""Most bytes of one receive: all that a Linux pipe holds."""

# Windows tells readiness of sockets only; its pipes and consoles are read and written in worker threads.
_THREADS: Final = sys.platform == "win32"


def take_stdio() -> StdioTransport:
    """The transport over this process's stdin and stdout, which nobody else can reach from then on.

    The protocol moves to private descriptors that children do not inherit. Descriptor 1, and with it every stray
    ``print`` of a library or child, leads to stderr (I10); descriptor 0 reads as empty, so that no child eats input.
    That is never undone: a dependency may be chatty at exit, too. Called once, before anything else is started; raises
    :class:`OSError` when the process was started without stdin or stdout.
    """
    # Before anything is copied: a copy of the one would get the number of the other that is missing.
    os.fstat(0)
    os.fstat(1)
    try:
        os.fstat(2)
    except OSError:
        # The lowest free number is 2, when 0 and 1 are open: else a duplicate below would take it, and what libraries
        # log would land in the protocol's input.
        os.set_inheritable(os.open(os.devnull, os.O_WRONLY), True)
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for fd in (read_fd, write_fd):
            msvcrt.setmode(fd, os.O_BINARY)
    # What was printed before and still waits in the buffer goes to stderr as well: not flushed until now.
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    sys.stdout = sys.stderr
    return StdioTransport(read_fd, write_fd)


class StdioTransport:
    """A transport over two different descriptors, which it owns from now on.

    ``threads`` does the I/O in worker threads, which is also where it goes when the event loop cannot wait for a
    descriptor. A receive that is cancelled there loses the bytes that it would have got. A descriptor that a thread is
    blocked on stays open when the transport closes: else the system could give its number to another file under it.
    """

    def __init__(self, read_fd: int, write_fd: int, *, threads: bool = _THREADS) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._receiving = anyio.ResourceGuard("receiving from")
        self._sending = anyio.ResourceGuard("sending to")
        self._closed = False
        self._torn = False
        self._threads = threads
        self._in_threads: set[int] = set()
        self._read_scope: anyio.CancelScope | None = None
        self._socket: socket.socket | None = None
        self._as_much_as_fits = False
        if not threads:
            self._readable = select.poll()
            self._readable.register(read_fd, select.POLLIN)
            self._writable = select.poll()
            self._writable.register(write_fd, select.POLLOUT)
            mode = os.fstat(write_fd).st_mode
            self._as_much_as_fits = stat.S_ISFIFO(mode) and hasattr(os, "RWF_NOWAIT")
            if stat.S_ISSOCK(mode):
                self._socket = socket.socket(fileno=os.dup(write_fd))

    async def receive(self) -> bytes:
        """See :meth:`Transport.receive <sayagain.transports.Transport.receive>`."""
        with self._receiving:
            await anyio.lowlevel.checkpoint()
            while not self._closed:
                try:
                    data = await self._read()
                except (BlockingIOError, anyio.ClosedResourceError):
                    # Somebody else was quicker on a shared descriptor in non-blocking mode; or aclose() was called.
                    continue
                except OSError:
                    # A reset socket or a terminal that hung up: nothing more will come.
                    return b""
                if data is not None:
                    return data
            raise ClosedTransport

    async def send(self, data: bytes) -> None:
        """See :meth:`Transport.send <sayagain.transports.Transport.send>`."""
        with self._sending:
            await anyio.lowlevel.checkpoint()
            rest = memoryview(data)
            try:
                while rest:
                    if self._closed or self._torn:
                        raise ClosedTransport
                    rest = rest[await self._write(rest) :]
            except (OSError, anyio.ClosedResourceError) as error:
                self._torn = True
                raise ClosedTransport from error
            except anyio.get_cancelled_exc_class():
                self._torn = self._torn or len(rest) < len(data)
                raise

    async def aclose(self) -> None:
        """See :meth:`Transport.aclose <sayagain.transports.Transport.aclose>`."""
        if not self._closed:
            self._closed = True
            if self._read_scope is not None:
                self._read_scope.cancel()
            for fd in {self._read_fd, self._write_fd} - self._in_threads:
                anyio.notify_closing(fd)
                os.close(fd)
            if self._socket is not None:
                self._socket.close()
        await anyio.lowlevel.checkpoint()

    async def _read(self) -> bytes | None:
        """Some bytes, ``b""`` at the end, ``None`` when it has to be tried again."""
        if self._threads:
            with anyio.CancelScope() as self._read_scope:
                self._in_threads.add(self._read_fd)
                try:
                    data = await anyio.to_thread.run_sync(os.read, self._read_fd, READ_SIZE, abandon_on_cancel=True)
                except OSError:
                    self._in_threads.discard(self._read_fd)
                    raise
                self._in_threads.discard(self._read_fd)
                return data
            return None
        # A zero poll costs 1 us, a round through the event loop's selector 15 (measured).
        if self._readable.poll(0):
            return os.read(self._read_fd, READ_SIZE)
        try:
            await anyio.wait_readable(self._read_fd)
        except OSError:
            self._threads = True
        return None

    async def _write(self, data: memoryview) -> int:
        """Write some of ``data`` without blocking the event loop; the number of bytes, 0 after a wait."""
        if self._threads:
            self._in_threads.add(self._write_fd)
            try:
                return await anyio.to_thread.run_sync(os.write, self._write_fd, data)
            finally:
                self._in_threads.discard(self._write_fd)
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if self._as_much_as_fits:
                with suppress(_Unsupported):
                    return _write_what_fits(self._write_fd, data)
                self._as_much_as_fits = False
            # A descriptor that polls as writable takes PIPE_BUF bytes without blocking (POSIX, poll and pipe).
            if self._writable.poll(0):
                return os.write(self._write_fd, data[: select.PIPE_BUF])
        except BlockingIOError:
            pass
        try:
            await anyio.wait_writable(self._write_fd)
        except OSError:
            self._threads = True
        return 0


class _Unsupported(Exception):
    """A pipe cannot be written to that way: before Linux 6.5, or where something forbids it."""


def _write_what_fits(pipe: int, data: memoryview) -> int:
    """Write to a pipe in blocking mode what it has room for; :class:`BlockingIOError` when it is full.

    A write of up to 64 KiB where ``poll`` vouches for 4: a replay of 5 MB takes a third less CPU time (measured).
    """
    try:
        return os.pwritev(pipe, [data], -1, os.RWF_NOWAIT)
    except BlockingIOError:
        raise
    except (OSError, NotImplementedError) as error:
        # An old kernel, an old C library, a sandbox; or a pipe that is broken, which the other way meets as well.
        raise _Unsupported from error
