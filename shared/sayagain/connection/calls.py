"""Our requests to the peer, and what may come of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio

from sayagain.legible import excerpt, plain
from sayagain.protocol.jsonrpc import MALFORMED

__all__ = ["Call", "ConnectionLost", "PeerError", "peer_error"]


SHOWN: Final = 1000
"""Characters of an error's text that are shown."""


class PeerError(Exception):
    """The peer answered one of our requests with an error. ``message`` is what came, :attr:`text` fit to be shown."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.data = data

    @property
    def text(self) -> str:
        """The message on one line, without what a terminal would obey, cut to a length."""
        return excerpt(plain(self.message), SHOWN)

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"


class ConnectionLost(Exception):
    """There is no answer to one of our requests: the connection ended first, or the request was given up."""


class Call:
    """A request of ours that the peer has not answered; ``withdraw`` tells it that the answer is not wanted."""

    def __init__(self, withdraw: Callable[[Call], None]) -> None:
        self.id: int = -1
        self._withdraw = withdraw
        self._done = anyio.Event()
        self._outcome: Any = None

    async def result(self) -> Mapping[str, Any]:
        """The peer's result; raises :class:`PeerError` or :class:`ConnectionLost`.

        Cancelling the wait cancels the request (CAN-6).
        """
        try:
            await self._done.wait()
        except BaseException:
            self.cancel()
            raise
        outcome: object = self._outcome
        if isinstance(outcome, PeerError | ConnectionLost):
            raise outcome
        if not isinstance(outcome, Mapping):
            raise PeerError(-32603, "the answer is no object", {"reason": MALFORMED})
        return cast("Mapping[str, Any]", outcome)

    def cancel(self) -> None:
        """The answer no longer matters: tell the peer, and ignore what it still sends."""
        self._withdraw(self)
        self.end(ConnectionLost("the request was cancelled"))

    def end(self, outcome: Any) -> None:
        """What came of it: a result, or an exception to raise. Only the first counts."""
        if not self._done.is_set():
            self._outcome = outcome
            self._done.set()


def peer_error(error: Mapping[str, Any]) -> PeerError:
    """Of a wire error object; the decoder lets no other pass."""
    return PeerError(error["code"], error["message"], error.get("data"))
