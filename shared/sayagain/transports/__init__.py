"""Thin shells that move bytes and know no message: what carries the protocol's lines."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ClosedTransport", "Transport"]


class ClosedTransport(Exception):
    """The transport was closed, here or by the peer: what is sent reaches nobody.

    Not in the tree of :mod:`sayagain.errors`: nobody is left to get it as a wire error.
    """


class Transport(Protocol):
    """A byte stream in both directions. One task may receive and one send at a time."""

    async def receive(self) -> bytes:
        """The next bytes, as many as there are; ``b""`` once the peer has ended its side.

        Raises :class:`ClosedTransport` after :meth:`aclose`, also while waiting. Cancelling loses no bytes.
        """
        ...

    async def send(self, data: bytes) -> None:
        """Hand all of ``data`` over, waiting while the peer is slow (backpressure).

        Raises :class:`ClosedTransport` when the peer is gone. A send that is cancelled after a part was written leaves
        a torn line that no later one may follow: then the sending side counts as closed.
        """
        ...

    async def aclose(self) -> None:
        """Close both sides; idempotent. What was sent before still arrives."""
        ...
