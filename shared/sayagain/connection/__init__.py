"""One connection to a peer: requests and answers in both directions. The shell around the JSON-RPC core.

The agent serves its clients through it, and the client package speaks to agents through it.
"""

from sayagain.connection.calls import Call, ConnectionLost, PeerError
from sayagain.connection.connection import HIGH_WATER, READ_WATER, Connection, Dispatcher
from sayagain.connection.requests import DEFERRED, Deferred, IncomingRequest, Outcome, Reply

__all__ = [
    "DEFERRED",
    "HIGH_WATER",
    "READ_WATER",
    "Call",
    "Connection",
    "ConnectionLost",
    "Deferred",
    "Dispatcher",
    "IncomingRequest",
    "Outcome",
    "PeerError",
    "Reply",
]
