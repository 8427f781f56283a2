"""What a runtime session reports while it works: one ordered stream.

Updates are plain mappings in wire form (``sessionUpdate`` and its fields, camelCase): the hot path of a turn pays for
no model building, and the tests validate every line that leaves against the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sayagain.errors import SayagainError

__all__ = [
    "Ask",
    "AskWithdrawn",
    "ChildAnnounced",
    "Foreground",
    "ForegroundState",
    "Inserted",
    "Rejected",
    "RuntimeEvent",
    "Update",
    "WireMapping",
]

WireMapping: TypeAlias = Mapping[str, Any]
ForegroundState: TypeAlias = Literal["running", "requires_action", "idle"]


@dataclass(frozen=True, slots=True)
class Inserted:
    """The runtime has **stored** the message: it would be found again after a SIGKILL of everything (section 5)."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A submitted message was not stored and never will be; its key is unused.

    With :class:`~sayagain.errors.HistoryUnreadable` nobody could tell: the history is read again before the key is used
    again.
    """

    message_id: str
    error: SayagainError


@dataclass(frozen=True, slots=True)
class Update:
    """A ``session/update`` for the session or an announced child of it."""

    session_id: str
    update: WireMapping


@dataclass(frozen=True, slots=True)
class ChildAnnounced:
    """A child session exists from here on; comes before anything else that bears its id (SUB-1).

    ``update`` is the ``subagent_update`` for the parent's stream; ``parent_id`` may itself be a child.
    """

    parent_id: str
    child_id: str
    update: WireMapping


@dataclass(frozen=True, slots=True)
class Foreground:
    """The state of the session's foreground work changed, or its background list did.

    ``stop_reason``, ``error`` (a wire error object) and ``usage`` belong to ``idle`` alone. ``background`` is the
    whole current list, ``None`` when this runtime does not know it (UPD-8). ``session_id`` names a child when it is
    the child's state; children have no prompts, so nothing waits for theirs.
    """

    session_id: str
    state: ForegroundState
    stop_reason: str | None = None
    error: WireMapping | None = None
    usage: WireMapping | None = None
    background: Sequence[WireMapping] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """The runtime needs an answer from the client, such as a permission.

    ``method`` and ``params`` are the wire request (``params.sessionId`` may be a child). The answer comes by
    :meth:`RuntimeSession.answer <sayagain.runtime.seam.RuntimeSession.answer>` with the same ``ask_id``.
    """

    ask_id: str
    session_id: str
    method: str
    params: WireMapping


@dataclass(frozen=True, slots=True)
class AskWithdrawn:
    """The answer to an ask no longer matters; the client's request is cancelled (CAN-6)."""

    ask_id: str


RuntimeEvent: TypeAlias = Inserted | Rejected | Update | ChildAnnounced | Foreground | Ask | AskWithdrawn
