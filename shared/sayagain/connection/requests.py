"""The peer's requests, each answered once."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sayagain.errors import to_wire
from sayagain.protocol import jsonrpc

if TYPE_CHECKING:
    from sayagain.connection.connection import Connection

__all__ = ["DEFERRED", "Deferred", "IncomingRequest", "Outcome", "Reply", "Result"]

logger = logging.getLogger(__name__)

LOGGED: Final = 80
"""Characters of an id or a method in a log line: a UUID and more."""

Reply: TypeAlias = Callable[[bytes], None]
"""Where an encoded answer goes: to the writer, or into the array of its batch."""


class Deferred:
    """A handler's word that the request is answered later, by :meth:`IncomingRequest.respond` or ``fail``."""


DEFERRED: Final = Deferred()

Result: TypeAlias = Mapping[str, Any]
Outcome: TypeAlias = Result | Deferred | Awaitable[Result | Deferred]


@dataclass(eq=False, slots=True)
class IncomingRequest:
    """A client's request that is not answered yet. Answered exactly once; later answers are dropped (CAN-5)."""

    connection: Connection
    id: int | str
    method: str
    params: Mapping[str, Any]
    _reply: Reply
    answered: bool = False
    on_cancel: Callable[[], None] | None = None
    """What ``$/cancel_request`` does. Without it the request can't be cancelled and just gets its answer."""
    after_success: Callable[[], None] | None = None
    after_error: Callable[[], None] | None = None
    """Plain calls that run right after the answer was queued, before anything else can be."""
    _since: float = field(default_factory=time.monotonic)

    def respond(self, result: Result) -> None:
        """Answer with success."""
        self._log("answered", result.get("messageId") or result.get("sessionId"))
        self._answer(jsonrpc.encode_result(self.id, result), self.after_success)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self._log(f"failed ({type(error).__name__})", None)
        self._answer(jsonrpc.encode_error(self.id, to_wire(error)), self.after_error)

    def _log(self, outcome: str, made: object) -> None:
        """One line a request: ids, outcome and time; params may hold keys and prompts, and are not for a log."""
        level = logging.INFO if self.method.startswith("session/") else logging.DEBUG
        if self.answered or not logger.isEnabledFor(level):
            return
        # As literals, and cut: a client may call all of these what it likes.
        method, session, made = (ascii(value)[:LOGGED] for value in (self.method, self.params.get("sessionId"), made))
        took = (time.monotonic() - self._since) * 1000
        logger.log(level, "%s, session %s: %s, made %s, %.1f ms", method, session, outcome, made, took)

    def _answer(self, line: bytes, after: Callable[[], None] | None) -> None:
        if self.answered:
            return
        self.answered = True
        self.connection.forget(self)
        self._reply(line)
        if after is not None:
            after()
