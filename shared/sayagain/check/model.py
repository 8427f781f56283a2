"""What a check is, and what it can find. Checks are data and one function each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from sayagain.check.trace import Event

if TYPE_CHECKING:
    from sayagain.check.bench import Bench

__all__ = ["Area", "Check", "Failed", "Feature", "Look", "NotJudged", "Result", "Source", "Status", "Tier"]


class Tier(Enum):
    """How binding the rule is."""

    MUST = "must"
    SHOULD = "should"


class Status(Enum):
    """What came of a check."""

    PASS = "pass"
    FAIL = "fail"
    SKIPPED = "skipped"


class Area(Enum):
    """The part of the protocol; reports are grouped by it."""

    BASE = "Base rules"
    KEYS = "Keyed prompts"
    KEY_VALUES = "Values of keys"
    CANCEL = "Cancelling"
    REPLAY = "Replay"
    MARKER = "The end of the replay"
    CHILDREN = "Subagent sessions"


class Source(Enum):
    """Where a rule comes from."""

    V2 = "ACP v2"
    KEYS = "RFD: idempotency keys"
    MARKER = "RFD: v2 replay complete signal"
    SUBAGENTS = "RFD: subagent sessions"


class Feature(Enum):
    """What a check needs, of the agent's profile or of the agent, beyond answering prompts."""

    HOLD = "to make the agent work until it is let go"
    STREAM = "to make the agent's answer come piece by piece"
    COUNT = "to count how often the model is asked"
    CHILD = "to make the agent delegate to a subagent"
    ASK = "to make the agent ask for a permission"
    COMPACT = "to make the agent compact its context"
    SPOIL = "to make a stored session unreadable"


class Failed(Exception):
    """The agent broke the rule; ``events`` show it."""

    def __init__(self, reason: str, *events: Event | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.events = [event for event in events if event is not None]


class NotJudged(Exception):
    """The rule could not be tried, and why; ``events`` may show it."""

    def __init__(self, reason: str, *events: Event | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.events = [event for event in events if event is not None]


Look: TypeAlias = "Callable[[Bench], Awaitable[None]]"
"""Tries a rule: returns when it was kept, raises :class:`Failed` or :class:`NotJudged` when not."""


@dataclass(frozen=True)
class Check:
    """One rule, and how it is tried. ``section`` is the heading of the ``source`` under which the rule stands.

    ``over_all`` checks look at the trace of all others, and run last.
    """

    id: str
    area: Area
    tier: Tier
    rule: str
    source: Source
    section: str
    look: Look
    needs: frozenset[Feature] = frozenset()
    over_all: bool = False


@dataclass
class Result:
    """What came of one check. ``lines`` show a failure; ``trace`` is all that passed while it ran.

    A skipped check was ``not_run`` if the run ended before it, or in its middle.
    """

    check: Check
    status: Status
    reason: str = ""
    lines: Sequence[Event] = field(default_factory=list[Event])
    trace: Sequence[Event] = field(default_factory=list[Event])
    seconds: float = 0.0
    not_run: bool = False
