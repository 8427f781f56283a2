"""Two connected transports in one process, for embedding and for tests.

They behave like pipes: bytes without message borders, a bounded buffer that makes a fast sender wait for a slow reader,
and sides that end on their own.
"""

from __future__ import annotations

from typing import Final

import anyio
import anyio.lowlevel

from sayagain.transports import ClosedTransport

__all__ = ["BUFFER", "MemoryTransport", "memory_transports"]

# What a Linux pipe holds, so that backpressure sets in as it does over stdio.
BUFFER: Final = 64 * 1024
"""Bytes that wait in one direction before the sender does."""


class _Channel:
    """One direction."""

    __slots__ = ("_buffer", "_capacity", "_changed", "reader_closed", "writer_closed")

    def __init__(self, capacity: int) -> None:
        self._buffer = bytearray()
        self._capacity = capacity
        self._changed: anyio.Event | None = None
        self.reader_closed = False
        self.writer_closed = False

    async def put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                if self.writer_closed or self.reader_closed:
                    raise ClosedTransport
                room = self._capacity - len(self._buffer)
                if room > 0:
                    self._buffer += view[:room]
                    view = view[room:]
                    self.wake()
                else:
                    await self._change()
        except anyio.get_cancelled_exc_class():
            if len(view) < len(data):
                self.writer_closed = True
                self.wake()
            raise

    async def get(self, limit: int) -> bytes:
        while not self.reader_closed:
            if self._buffer:
                data = bytes(self._buffer[:limit])
                del self._buffer[:limit]
                self.wake()
                return data
            if self.writer_closed:
                return b""
            await self._change()
        raise ClosedTransport

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()


class MemoryTransport:
    """One end; made in pairs by :func:`memory_transports`."""

    __slots__ = ("_chunk", "_incoming", "_outgoing", "_receiving", "_sending")

    def __init__(self, incoming: _Channel, outgoing: _Channel, chunk: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._chunk = chunk
        self._receiving = anyio.ResourceGuard("receiving from")
        self._sending = anyio.ResourceGuard("sending to")

    async def receive(self) -> bytes:
        """See :meth:`Transport.receive <sayagain.transports.Transport.receive>`."""
        with self._receiving:
            await anyio.lowlevel.checkpoint()
            return await self._incoming.get(self._chunk)

    async def send(self, data: bytes) -> None:
        """See :meth:`Transport.send <sayagain.transports.Transport.send>`."""
        with self._sending:
            await anyio.lowlevel.checkpoint()
            if self._outgoing.writer_closed or self._outgoing.reader_closed:
                raise ClosedTransport
            await self._outgoing.put(data)

    def send_eof(self) -> None:
        """End the sending side alone: the peer reads what waits, then ``b""``; its answers still arrive here."""
        self._outgoing.writer_closed = True
        self._outgoing.wake()

    async def aclose(self) -> None:
        """See :meth:`Transport.aclose <sayagain.transports.Transport.aclose>`."""
        self.send_eof()
        self._incoming.reader_closed = True
        self._incoming.wake()
        await anyio.lowlevel.checkpoint()


def memory_transports(*, buffer: int = BUFFER, chunk: int = BUFFER) -> tuple[MemoryTransport, MemoryTransport]:
    """A connected pair. ``buffer`` bounds the bytes that wait in each direction, ``chunk`` those of one receive."""
    there, back = _Channel(buffer), _Channel(buffer)
    return MemoryTransport(back, there, chunk), MemoryTransport(there, back, chunk)
