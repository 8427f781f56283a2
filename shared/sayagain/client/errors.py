"""What can go wrong on the client's side, by whose fault it is::

    ClientError
    ├── AgentFault                  the agent, or the way to it, is no good
    │   ├── AgentGone               it ended, or the connection did
    │   ├── AgentSilent             it does not answer within the limit
    │   ├── AgentGarbled            what it sends is no JSON-RPC
    │   ├── AgentFloods             more updates than the limit wait to be read
    │   └── GaveUp                  the last of several attempts to reach it failed
    ├── OutcomeUnknown              an answer was lost, and sending again could do the work twice
    ├── ResumeFailed                ``replay`` tells what came before
    ├── PromptError                 ``key`` names the prompt; the outbox still has it
    │   ├── PromptFailed            for good: the same prompt would fail again
    │   ├── PromptKept              for now: it is pending and can be sent again
    │   └── PromptWithdrawn         the user took it back
    └── OutboxError                 the outbox file
        ├── OutboxUnreadable        damaged, or no outbox
        ├── OutboxTooNew            written by a later version
        ├── OutboxBusy              another process holds it for too long
        └── OutboxFull              no room on the disk

An error that the agent answers is a :class:`~sayagain.connection.PeerError`, with its code. No error holds prompt text
or a key in its message; and what it quotes of the agent is fit for a terminal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sayagain.connection import PeerError
from sayagain.retry import RetryRule

if TYPE_CHECKING:
    from sayagain.client.replay import Replay

__all__ = [
    "AgentFault",
    "AgentFloods",
    "AgentGarbled",
    "AgentGone",
    "AgentSilent",
    "ClientError",
    "GaveUp",
    "OutboxBusy",
    "OutboxError",
    "OutboxFull",
    "OutboxTooNew",
    "OutboxUnreadable",
    "OutcomeUnknown",
    "PromptError",
    "PromptFailed",
    "PromptKept",
    "PromptWithdrawn",
    "ResumeFailed",
]


class ClientError(Exception):
    """Base of everything that the client package raises by itself."""


class AgentFault(ClientError):
    """The agent, or the way to it, is no good. ``detail`` is a sentence for people.

    ``for_good``: another attempt would end the same way.
    """

    def __init__(self, detail: str, *, for_good: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.for_good = for_good

    def __str__(self) -> str:
        return self.detail


class AgentGone(AgentFault):
    """The agent's process ended, could not be started, or the connection was closed."""


class AgentSilent(AgentFault):
    """There was no answer within the limit."""


class AgentGarbled(AgentFault):
    """What comes is no JSON-RPC."""


class AgentFloods(AgentFault):
    """More unread updates than the client is willing to hold."""


class GaveUp(AgentFault):
    """``attempts`` in a row failed; ``__cause__`` is the last failure."""

    def __init__(self, attempts: int, last: Exception) -> None:
        super().__init__(f"gave up after {attempts} attempts; the last one: {last}", for_good=True)
        self.attempts = attempts


class OutcomeUnknown(ClientError):
    """The answer to a request was lost, and its retry class forbids to send it again unasked.

    ``rule`` says why; ``None`` for a method that the table does not know.
    """

    def __init__(self, method: str, rule: RetryRule | None) -> None:
        super().__init__(method, rule)
        self.method = method
        self.rule = rule

    def __str__(self) -> str:
        reason = self.rule.reason if self.rule is not None else "nothing is known about its repeat."
        return f"the answer to {self.method} was lost, and it is not sent again: {reason}"


class ResumeFailed(ClientError):
    """``session/resume`` did not succeed; ``__cause__`` is the agent's error or the fault of the connection.

    ``replay`` is what came before, judged by the outcome table; ``None`` when no replay was asked for.
    """

    def __init__(self, session_id: str, cause: Exception, replay: Replay | None, note: str = "") -> None:
        super().__init__(session_id, cause)
        self.session_id = session_id
        self.cause = cause
        self.replay = replay
        self.note = note

    @property
    def code(self) -> int | None:
        """The agent's error code, if it was the agent that refused."""
        return self.cause.code if isinstance(self.cause, PeerError) else None

    def __str__(self) -> str:
        text = f"the session could not be resumed: {self.cause}"
        return f"{text}; {self.note}" if self.note else text


class PromptError(ClientError):
    """A submitted prompt was not confirmed. It stays in the outbox, under ``key``, with ``reason``."""

    said = "the prompt was not confirmed"

    def __init__(self, key: str, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return f"{self.said}: {self.reason}"


class PromptFailed(PromptError):
    """The agent refuses this prompt, and would again."""

    said = "the prompt was refused"


class PromptKept(PromptError):
    """The prompt is pending; whether it was inserted may be unknown, so it is only ever sent with its key."""

    said = "the prompt is kept to be sent again"


class PromptWithdrawn(PromptError):
    """The user took the prompt back. ``uncertain``: it had been sent, and may have been inserted."""

    said = "the prompt was withdrawn"

    def __init__(self, key: str, reason: str, *, uncertain: bool) -> None:
        super().__init__(key, reason)
        self.uncertain = uncertain


class OutboxError(ClientError):
    """The outbox file cannot be used. What is in it stays there."""

    def __init__(self, path: Path | None, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"the outbox {self.path or 'in memory'} {self.detail}"


class OutboxUnreadable(OutboxError):
    """Damaged, or the file of another program."""


class OutboxTooNew(OutboxError):
    """Written by a later version of this program."""


class OutboxBusy(OutboxError):
    """Another process holds the file for longer than the limit."""


class OutboxFull(OutboxError):
    """No room on the disk: the prompt is not taken, so nothing is lost unnoticed."""
