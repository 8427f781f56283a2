"""A client of ACP v2 agents that resends safely, and knows whole history from cut history.

Start at :func:`connect` or :func:`with_retries`; ``docs/client.md`` has examples.
"""

from sayagain.client.client import Client
from sayagain.client.connect import ClientOptions, PermissionRequest, connect, with_retries
from sayagain.client.errors import (
    AgentFault,
    AgentFloods,
    AgentGarbled,
    AgentGone,
    AgentSilent,
    ClientError,
    GaveUp,
    OutboxBusy,
    OutboxError,
    OutboxFull,
    OutboxTooNew,
    OutboxUnreadable,
    OutcomeUnknown,
    PromptError,
    PromptFailed,
    PromptKept,
    PromptWithdrawn,
    ResumeFailed,
)
from sayagain.client.events import Disconnected, Event, Moved, Reconnected, Update
from sayagain.client.history import HistoryStore
from sayagain.client.outbox import Outbox, StoredPrompt
from sayagain.client.prompts import Prompt, new_key
from sayagain.client.replay import Outcome, Replay, ReplayedSession, ReplayTracker
from sayagain.client.retries import Retries
from sayagain.client.session import Resent, Session
from sayagain.connection import PeerError

__all__ = [
    "AgentFault",
    "AgentFloods",
    "AgentGarbled",
    "AgentGone",
    "AgentSilent",
    "Client",
    "ClientError",
    "ClientOptions",
    "Disconnected",
    "Event",
    "GaveUp",
    "HistoryStore",
    "Moved",
    "Outbox",
    "OutboxBusy",
    "OutboxError",
    "OutboxFull",
    "OutboxTooNew",
    "OutboxUnreadable",
    "Outcome",
    "OutcomeUnknown",
    "PeerError",
    "PermissionRequest",
    "Prompt",
    "PromptError",
    "PromptFailed",
    "PromptKept",
    "PromptWithdrawn",
    "Reconnected",
    "Replay",
    "ReplayTracker",
    "ReplayedSession",
    "Resent",
    "ResumeFailed",
    "Retries",
    "Session",
    "StoredPrompt",
    "Update",
    "connect",
    "new_key",
    "with_retries",
]
