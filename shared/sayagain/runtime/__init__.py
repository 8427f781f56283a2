"""The seam between the agent core and a coding-agent runtime (design section 3).

``seam`` says what a runtime must offer, ``events`` what it reports while it works, ``history`` what its stored
sessions yield. An adapter implements :class:`Runtime` and :class:`RuntimeSession` and nothing else.
"""

from sayagain.runtime.events import (
    Ask,
    AskWithdrawn,
    ChildAnnounced,
    Foreground,
    Inserted,
    Rejected,
    RuntimeEvent,
    Update,
)
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, HistoryUpdate, Unreadable, UserTurn
from sayagain.runtime.seam import (
    GLANCE,
    OWNER_PATIENCE,
    Runtime,
    RuntimeCapabilities,
    RuntimeSession,
    SessionPage,
    SessionSetup,
    StoredSession,
)

__all__ = [
    "GLANCE",
    "OWNER_PATIENCE",
    "Ask",
    "AskWithdrawn",
    "ChildAnnounced",
    "ChildStarts",
    "Foreground",
    "HistoryEnds",
    "HistoryEntry",
    "HistoryUpdate",
    "Inserted",
    "Rejected",
    "Runtime",
    "RuntimeCapabilities",
    "RuntimeEvent",
    "RuntimeSession",
    "SessionPage",
    "SessionSetup",
    "StoredSession",
    "Unreadable",
    "Update",
    "UserTurn",
]
