"""What a runtime must offer. Adapters implement these two protocols and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.runtime.events import RuntimeEvent, WireMapping
from sayagain.runtime.history import HistoryEntry

__all__ = [
    "GLANCE",
    "OWNER_PATIENCE",
    "Runtime",
    "RuntimeSession",
    "SessionPage",
    "SessionSetup",
    "StoredSession",
]


OWNER_PATIENCE: Final = 3.0
"""Seconds that a prompt waits for an owner that is ending: a guard ends everything within milliseconds of its adapter's
death, and a closing adapter gives its runtime 2 s to store what it has."""

GLANCE: Final = 0.3
"""Seconds that those wait who can do without owning: a replay shows what is stored either way."""


@dataclass(frozen=True, slots=True)
class SessionSetup:
    """How a client wants a session set up; validated by the agent core.

    ``cwd`` and ``additional_directories`` are absolute. ``mcp_servers`` and ``system_prompt`` are in wire form and of
    kinds that the capabilities allow. ``client_capabilities`` are the client's own, so that an ask can fit them.
    """

    cwd: str
    additional_directories: tuple[str, ...] = ()
    mcp_servers: tuple[WireMapping, ...] = ()
    system_prompt: WireMapping | None = None
    client_capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One row of ``session/list``. ``updated_at`` is RFC 3339 in UTC."""

    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None
    archived: bool = False


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of stored sessions, newest first; ``next_cursor`` is ``None`` on the last."""

    sessions: Sequence[StoredSession]
    next_cursor: str | None = None


class RuntimeSession(Protocol):
    """One session that the runtime works on. Closed sessions are never used again."""

    @property
    def session_id(self) -> str:
        """The root session's id."""
        ...

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """The one ordered stream of events; ends after :meth:`close`. Iterated by one task, once."""
        ...

    async def own(self, *, patience: float = OWNER_PATIENCE) -> None:
        """Become the one process that may store messages in this session; keep that until :meth:`close`.

        Idempotent. Waits ``patience`` seconds for an owner that is about to end, and ends an orphaned one. Raises
        :class:`~sayagain.errors.SessionInUse` while another live adapter owns it. Ids that were read before this
        returned prove nothing.
        """
        ...

    async def submit(self, message_id: str, content: Sequence[WireMapping]) -> None:
        """Give one message to the runtime, which is idle; starts it when it is not running.

        Returns or raises without proof of storage; :class:`~sayagain.runtime.events.Inserted` or
        :class:`~sayagain.runtime.events.Rejected` follows exactly once when it returns, never when it raises. A
        :class:`~sayagain.runtime.events.Foreground` of ``idle`` follows either, once the next message may come. Raises
        :class:`~sayagain.errors.AuthRequired` and other faults found before anything could be stored.
        """
        ...

    async def withdraw(self, message_id: str) -> bool:
        """Try to take back a submitted message: true when it will never be stored (then no event follows)."""
        ...

    def snapshot(self) -> Sequence[WireMapping]:
        """What a client that attaches now is told besides history and state: title, usage, commands, background items.

        Updates of the session itself, in wire form.
        """
        ...

    def options(self) -> Sequence[WireMapping]:
        """The session's config options with their current values, in wire form, most important first (CFG-4, CFG-5).

        Empty when there are none, or when they are not known yet; an
        :class:`~sayagain.runtime.events.Update` with a ``config_option_update`` reports every change of the list or of
        a value, whoever made it, the client included (CFG-6).
        """
        ...

    async def set_option(self, config_id: str, value: str | bool) -> None:
        """Set an option; it has its new value when this returns. Others may have changed with it.

        Raises :class:`~sayagain.errors.InvalidParams` for ``configId`` or ``value``, and nothing has changed (CFG-2).
        """
        ...

    async def cancel_tool_call(self, tool_call_id: str) -> None:
        """Stop one tool call that advertises it; returns when that is accepted, an update tells the end (TC-4).

        Raises :class:`~sayagain.errors.InvalidParams` for ``toolCallId`` when it can't be cancelled.
        """
        ...

    async def cancel_terminal(self, terminal_id: str) -> None:
        """As :meth:`cancel_tool_call`, for the process of a terminal; the field is ``terminalId``."""
        ...

    async def interrupt(self) -> None:
        """Stop the foreground work; its end is reported by :class:`~sayagain.runtime.events.Foreground`."""
        ...

    async def answer(self, ask_id: str, result: WireMapping | None) -> None:
        """The client's result for an ask; ``None`` when it failed or was cancelled. Late answers are ignored."""
        ...

    async def close(self) -> None:
        """Stop all work, background included, end the runtime's processes, release the session. Idempotent."""
        ...


class Runtime(AbstractAsyncContextManager["Runtime"], Protocol):
    """A coding agent that keeps sessions. Entered once; sessions live no longer than it."""

    @property
    def name(self) -> str:
        """Short identifier, as on the command line: ``claude``."""
        ...

    @property
    def title(self) -> str:
        """What users read: ``Claude Code``."""
        ...

    @property
    def capabilities(self) -> RuntimeCapabilities:
        """Constant for the process's life."""
        ...

    async def warm_up(self) -> None:
        """Get ready for the first session; called when ``initialize`` is answered, by each connection.

        What fails here is told by the request that needs it. Cancelled when the agent ends first.
        """
        ...

    def auth_methods(self, client_capabilities: Mapping[str, Any]) -> Sequence[WireMapping]:
        """The ``authMethods`` for this client; terminal ones only where it can run them (INI-6)."""
        ...

    async def login(self, method_id: str, params: Mapping[str, Any]) -> None:
        """Serve ``auth/login``; :class:`~sayagain.errors.InvalidParams` for unknown or terminal methods (AUT-1)."""
        ...

    async def logout(self) -> None:
        """Serve ``auth/logout``."""
        ...

    async def new(self, setup: SessionSetup) -> RuntimeSession:
        """A new session, owned by this process. Waits for nothing that can come later as an event."""
        ...

    async def resume(self, session_id: str, setup: SessionSetup) -> RuntimeSession:
        """A stored session; :class:`~sayagain.errors.SessionNotFound` when nothing is stored under the id."""
        ...

    async def fork(self, session_id: str, setup: SessionSetup) -> RuntimeSession:
        """A new session that starts with a copy of all that is stored of another."""
        ...

    async def list(self, *, cwd: str | None, cursor: str | None, archived: str = "exclude") -> SessionPage:
        """Stored root sessions; :class:`~sayagain.errors.InvalidParams` for a malformed cursor (LST-1 to LST-5).

        ``archived`` is ``exclude``, ``include`` or ``only``; never but the first without the capability.
        """
        ...

    async def stored(self, session_id: str) -> bool:
        """Whether the session would be listed, archived or not. Changes nothing (STS-1)."""
        ...

    async def set_title(self, session_id: str, title: str) -> None:
        """Name a stored session, which need not be active; a later generated title does not replace it (TTL-1).

        ``title`` is normalised and not empty. Raises :class:`~sayagain.errors.SessionNotFound`. An active session
        reports the new title as an event, too.
        """
        ...

    async def archive(self, session_id: str, *, archived: bool) -> None:
        """Hide a stored session from the list, or show it again (ARC-1). Repeats succeed; it is not active.

        Raises :class:`~sayagain.errors.SessionNotFound`.
        """
        ...

    async def auth_status(self) -> WireMapping:
        """The result of ``auth/status``; never :class:`~sayagain.errors.AuthRequired` (AUT-2)."""
        ...

    async def delete(self, session_id: str) -> None:
        """Remove a stored session; silent when there is none (DEL-1). Never called for an active one."""
        ...

    def history(self, session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        """One pass over all that is stored at this moment, oldest first.

        ``live`` says that somebody works on the session, this process or another owner, so an unfinished tool call may
        still be running and keeps its status. Raises :class:`~sayagain.errors.HistoryUnreadable` when the store cannot
        be read, and :class:`~sayagain.errors.SessionNotFound` when there is nothing.
        """
        ...

    async def message_ids(self, session_id: str) -> Set[str]:
        """Every id under which a stored message of the session must be recognised; raises like :meth:`history`.

        The same ids as the ``UserTurn`` entries of :meth:`history`, without the cost of translating. Empty when
        nothing is stored yet.
        """
        ...
