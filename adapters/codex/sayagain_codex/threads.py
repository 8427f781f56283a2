"""What Codex stores of a thread, asked for in the ways that were measured to tell the truth.

All reads go through a projection that can be stale, without any error, until ``thread/resume`` has brought it up to
date (measured): only then an absent id is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from sayagain import fault_points
from sayagain.errors import HistoryUnreadable, RuntimeFault, SayagainError, SessionInUse, SessionNotFound
from sayagain.fault_points import Point
from sayagain.protocol.loose import as_mapping
from sayagain_codex.app_server import AppServerError

__all__ = [
    "PAGE",
    "Client",
    "SessionArchived",
    "is_closing",
    "is_thread_id",
    "is_written_elsewhere",
    "last_items_have",
    "revert_ghost",
    "thread_fault",
    "unreadable",
]

PAGE: Final = 100
"""Entries a page: the most that Codex gives, whatever is asked for (measured)."""

UNKNOWN_METHOD: Final = -32601

_NOTHING: Final = (
    "no rollout found",
    "no archived rollout found",
    "thread not loaded",
    "thread not found",
    "is not materialized yet",
    "is empty",
    "invalid session id",
)
"""How Codex says that there is no such thread, or that nothing is stored of it yet."""

_UNREADABLE: Final = ("failed to read session metadata", "thread history database")
"""How Codex says that a thread's file does not begin as one, and that what it lists from is no database."""

Params = Mapping[str, Any]


class Client(Protocol):
    """Who asks Codex: an app-server, a use of one, or who reads a session from whichever runs."""

    async def request(self, method: str, params: Params, *, patience: float | None = None) -> Any:
        """The result of a request; raises :class:`~sayagain_codex.app_server.AppServerError` when it is an error."""
        ...


class SessionArchived(RuntimeFault):
    """An archived session takes no prompts before it is unarchived; Codex does not load it."""

    reason = "session_archived"

    def __str__(self) -> str:
        return self.detail or "The session is archived; unarchive it first"


def is_thread_id(session_id: str) -> bool:
    """Whether Codex can have a thread of this name: it takes UUIDs alone, in the form that it writes itself."""
    try:
        return str(UUID(session_id)) == session_id
    except ValueError:
        return False


def is_written_elsewhere(error: AppServerError) -> bool:
    """Whether another process has the thread loaded."""
    return "already has an active writer" in error.message


def is_closing(error: AppServerError) -> bool:
    """Whether this process is still unloading the thread, which takes it long when it cannot write."""
    return "is closing; retry" in error.message


def thread_fault(error: AppServerError, thread_id: str) -> SayagainError:
    """What Codex's refusal to load, read or change a thread means. It differs in the text alone (measured).

    A thread is not loaded under a configuration that cannot be read: the text quotes it.
    """
    text = error.message
    # An empty rollout is what a SIGKILL leaves in the first 10 ms of the first turn: nothing is stored.
    if any(sign in text for sign in _NOTHING):
        return SessionNotFound(thread_id)
    if is_written_elsewhere(error):
        return SessionInUse()
    if "is archived" in text:
        return SessionArchived()
    if any(sign in text for sign in _UNREADABLE):
        return unreadable(error)
    return error


def unreadable(error: AppServerError) -> HistoryUnreadable:
    """A refusal to say what is stored."""
    return HistoryUnreadable(f"Codex cannot read the session: {error.message}")


async def last_items_have(client: Client, thread_id: str, message_id: str) -> bool:
    """Whether the message is among the last that are stored: enough for one that was under way a moment ago."""
    params = {"threadId": thread_id, "sortDirection": "desc", "limit": PAGE}
    items: Sequence[Params]
    try:
        page = await client.request("thread/items/list", params)
        items = [entry["item"] for entry in page["data"]]
    except AppServerError as error:
        # A legacy thread, or one without a first turn.
        if error.rpc_code != UNKNOWN_METHOD:
            raise
        page = await client.request("thread/turns/list", {**params, "itemsView": "full"})
        items = [item for turn in page["data"] for item in turn["items"]]
    return any(item.get("type") == "userMessage" and item.get("clientId") == message_id for item in items)


async def revert_ghost(client: Client, thread_id: str) -> Params | None:
    """Take a prompt back that the model would see though nothing lists it; the thread as it is then, if there was one.

    Codex writes what the model sees before the item that bears our id. A death between the two leaves a last turn
    that is interrupted and has no items; a retry would give the model the text twice (measured).
    """
    params = {"threadId": thread_id, "sortDirection": "desc", "limit": 1, "itemsView": "full"}
    try:
        page = await client.request("thread/turns/list", params)
    except AppServerError as error:
        if "is not materialized yet" in error.message:
            return None
        raise
    for turn in page["data"]:
        if turn["status"] == "interrupted" and not turn["items"]:
            fault_points.passing(Point.CODEX_REVERTING)
            answer = await client.request("thread/revert", {"threadId": thread_id, "beforeTurnId": turn["id"]})
            fault_points.passing(Point.CODEX_REVERTED)
            return as_mapping(answer.get("thread"))
    return None
