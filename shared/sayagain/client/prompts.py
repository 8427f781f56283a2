"""A submitted prompt on its way, and what an error answer means for it. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import anyio

from sayagain.client.errors import PromptError
from sayagain.client.link import Link, LinkCall
from sayagain.connection import PeerError
from sayagain.protocol.jsonrpc import MALFORMED

__all__ = ["Fate", "Prompt", "fate_of", "is_garbled", "new_key"]


def new_key() -> str:
    """A key for one submission: UUIDv7, so that keys sort by the time of the submission."""
    from uuid6 import uuid7

    return str(uuid7())


class Fate(Enum):
    """What becomes of a prompt that was answered with an error: it was not inserted, and its key is unused (KEY-4).

    That does not hold of an answer that is none (:func:`is_garbled`): it goes on as after a lost answer.
    """

    AGAIN = "again"
    """The trouble may pass."""

    RESUME = "resume"
    """The session is not active on this connection."""

    USER = "user"
    """Only the user can help: sign in."""

    WITHDRAWN = "withdrawn"
    """Taken back; by whom, the caller has to know."""

    NEVER = "never"
    """The same prompt would be refused again."""


_CODES: Final[Mapping[int, Fate]] = {
    -32600: Fate.NEVER,
    -32601: Fate.NEVER,
    -32602: Fate.NEVER,
    -32000: Fate.USER,
    -32002: Fate.RESUME,
    -32800: Fate.WITHDRAWN,
}

_REASONS: Final[Mapping[str, Fate]] = {"prompt_refused": Fate.NEVER, "runtime_missing": Fate.USER}
"""By ``data.reason``, which is more exact than the code (:mod:`sayagain.errors`)."""


def fate_of(error: PeerError) -> Fate:
    """What an error answer to ``session/prompt`` means. An unknown code may pass: nothing was inserted."""
    return _REASONS.get(_reason(error)) or _CODES.get(error.code, Fate.AGAIN)


def is_garbled(error: PeerError) -> bool:
    """Whether this is no word of the agent's, but what stands for an answer that is none."""
    return _reason(error) == MALFORMED


def _reason(error: PeerError) -> str:
    reason: object = error.data.get("reason") if isinstance(error.data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return reason if isinstance(reason, str) else ""


class Prompt:
    """A submitted prompt. It is in the outbox; its session sends it, as often as it takes."""

    def __init__(self, number: int, key: str, content: Sequence[Mapping[str, Any]], *, sent_before: bool) -> None:
        self.number = number
        self.key = key
        self.content = content
        self.sends = 1 if sent_before else 0
        """How often it was written, or may have been."""
        self.refusals = 0
        self.not_before = 0.0
        self.wanted = True
        self.call: LinkCall | None = None
        self.link: Link | None = None
        self._done = anyio.Event()
        self._message_id: str | None = None
        self._error: PromptError | None = None

    def __repr__(self) -> str:
        # Keys and prompts reach no log by accident.
        return f"<Prompt {self.number}, sent {self.sends} times, {'settled' if self.settled else 'open'}>"

    async def inserted(self) -> str:
        """Wait until the message is in the session; its id. Giving up the wait does not withdraw the prompt.

        Raises :class:`~sayagain.client.errors.PromptFailed`, ``PromptKept`` or ``PromptWithdrawn``.
        """
        await self._done.wait()
        if self._message_id is None:
            assert self._error is not None
            raise self._error
        return self._message_id

    @property
    def in_flight(self) -> bool:
        """Whether it is sent, and the answer awaited."""
        return self.call is not None and not self.call.answered.is_set()

    @property
    def settled(self) -> bool:
        """Whether this process does nothing more about it."""
        return self._done.is_set()

    @property
    def message_id(self) -> str | None:
        """The id once it is known."""
        return self._message_id

    @property
    def error(self) -> PromptError | None:
        """Why it is not inserted, once that is known."""
        return self._error

    def settle(self, outcome: str | PromptError) -> None:
        """The message id, or why there is none; the first outcome counts."""
        if self._done.is_set():
            return
        if isinstance(outcome, str):
            self._message_id = outcome
        else:
            self._error = outcome
        self._done.set()
