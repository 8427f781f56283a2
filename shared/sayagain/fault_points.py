"""Named instants at which a fault would hurt most. Nothing happens at them.

A process that may end at any instant ends between two of these. The tests start an agent or a client with a hook in
place of :data:`passing` and let it be killed exactly there; without one, a point costs the call of an empty function.
Points stand where something happens once a prompt, a resume, or a page of history, never in the path of a delta.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

__all__ = ["Hook", "Point", "install", "passing"]


class Point(Enum):
    """What is true when the point is passed. Those of one adapter, and of our client, bear its name."""

    # A prompt, from its line to its answer.
    PARSED = "a prompt was read and is well formed; nothing was looked up for it"
    RESERVED = "the table knows its message, and no work is in its way"
    HELD = "the table knows its message, and other work is under way"
    IDS_WANTED = "the ids of all stored messages are about to be read, to tell a retry from a new prompt"
    IDS_READ = "they were read, and nothing follows from them yet"
    OWNED = "the session is ours and the next message not submitted: nobody has asked the runtime for anything"
    SUBMITTING = "the table has the message as submitted, the runtime does not have it"
    SUBMITTED = "the adapter has taken the message: it is written to the runtime, or will be at once"
    PROVED = "the runtime has proved that the message is stored; no client knows"
    PUBLISHED = "its update is queued for all clients, its answer is not"
    ANSWERED = "all its answers are queued, and not written"
    WITHDRAWING = "the runtime is about to be asked to give the message back"
    WITHDRAWN = "the runtime has given it back; nobody was told"
    RUNTIME_GONE = "the runtime has ended; what became of the submitted message was not looked up"

    # A replay.
    REPLAY_BEGUN = "the gates are closed, nothing of the history was sent"
    REPLAY_BATCH = "one more part of the history was read, and is not sent"
    MARKER_DUE = "the history of a session, or of a child, was sent; its marker was not"
    MARKER_SENT = "its marker is queued, the response is not"
    RESUMED = "all that comes before the response is queued"

    # Who may store, and what runs for it.
    LEASE_WRITING = "the lock of a session is held, and its file does not name this holder yet"
    LEASE_TAKEN = "the session's lease is written, and nobody uses it yet"
    LEASE_RELEASING = "the session is about to be given up"
    RUNTIME_STARTED = "a runtime runs under its guard, and nothing was said to it"
    CLOSING = "a session is about to be closed"

    # Claude Code's own steps.
    CLAUDE_WRITING = "the message is about to be written to the CLI"
    CLAUDE_WRITTEN = "the CLI can read it"

    # Codex's own steps.
    CODEX_IDS_PAGE = "one more page of the stored ids was read"
    CODEX_WRITING = "the message is about to be written to the app-server"
    CODEX_TAKEN = "turn/start was answered, which proves nothing"
    CODEX_REVERTING = "the ghost of a prompt was found and is about to be reverted"
    CODEX_REVERTED = "the ghost was reverted; the prompt is not submitted again yet"

    # Our client's.
    OUTBOX_WRITTEN = "the outbox was changed, and the change is not committed"
    CLIENT_KEPT = "a prompt is in the outbox, and not on its way"
    CLIENT_SENT = "it is queued for the agent"
    CLIENT_ANSWERED = "its message id has come, and the outbox does not know"
    CLIENT_DONE = "the outbox has it as done, the application does not know"
    CLIENT_TAKEN = "pending prompts of an earlier process are this one's, and not sent again"
    CLIENT_MOVING = "another session was made for prompts whose own was never stored; they are not moved"
    CLIENT_MOVED = "they are moved, and nothing was sent there"


Hook = Callable[[Point], None]


def _nothing(point: Point) -> None:
    """What happens at a point."""


passing: Hook = _nothing
"""Called at each point, through this module, so that it can be replaced. It may be called from any thread."""


def install(hook: Hook) -> None:
    """Call ``hook`` at each point from now on. For programs of the tests; the product never does."""
    global passing
    passing = hook
