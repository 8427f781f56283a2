"""What came of asking for one session, and what may help against the next refusal. No I/O."""

from __future__ import annotations

from enum import Enum

from sayagain.client.errors import ResumeFailed
from sayagain.client.prompts import Fate, fate_of
from sayagain.client.replay import ReplayTracker, failed_replay
from sayagain.client.session import Session
from sayagain.connection import PeerError

__all__ = ["Attempts", "Remedy"]


class Remedy(Enum):
    """What may help against a refusal."""

    NONE = "none"

    PAUSE = "pause"
    """The trouble may pass."""

    LOOK_AGAIN = "look again"
    """The agent does not know the session. The agent of a killed client lives a moment longer and could still store
    its first prompt: one look during that proves nothing."""

    MOVE = "move"
    """The agent does not know the session, and nobody can store it any more."""


class Attempts:
    """The attempts at one session, from first to last.

    | the refusal           | its remedy                        |
    |-|-|
    | unknown session       | look again; the second time, move |
    | one that may pass     | pause, ``limit`` refusals in all  |
    | any other             | none                              |
    """

    def __init__(self, session: Session, may_pass: frozenset[Fate], *, replaying: bool = False) -> None:
        self.session = session
        self.replaying = replaying
        self.looks = 0
        self.refusals = 0
        self.unknown = set[str]()
        """Ids that the agent does not know, for certain."""
        self.replay = failed_replay(self.tracker(), None)
        """What a replay has brought so far; ``None`` when none was asked for."""
        self._may_pass = may_pass

    def tracker(self, *, active: bool = False) -> ReplayTracker | None:
        """For the next attempt, on a connection on which the session is ``active`` already, or not."""
        return ReplayTracker(self.session.session_id, active=active) if self.replaying else None

    def remedy(self, refusal: PeerError, limit: int) -> Remedy:
        """The agent has refused once more."""
        fate = fate_of(refusal)
        if fate is Fate.RESUME:
            self.looks += 1
            if self.looks == 1:
                return Remedy.LOOK_AGAIN
            self.unknown.add(self.session.session_id)
            return Remedy.MOVE
        return Remedy.PAUSE if self.passes(refusal, limit) else Remedy.NONE

    def passes(self, refusal: PeerError, limit: int) -> bool:
        """Whether what was refused, be it another session in its place, may be asked for once more."""
        self.refusals += 1
        return fate_of(refusal) in self._may_pass and self.refusals < limit

    def moved(self) -> None:
        """The session has a new id: nothing that came under the old one says anything of it."""
        self.looks = self.refusals = 0
        self.replay = failed_replay(self.tracker(), None)

    def failed(self, cause: Exception, note: str = "") -> ResumeFailed:
        """There will be no further attempt."""
        failed = ResumeFailed(self.session.session_id, cause, self.replay, note)
        failed.__cause__ = cause
        return failed
