"""Sessions of the fake runtime, and the disk that holds what they store."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.lowlevel

from sayagain.errors import InvalidParams, RuntimeDied, SayagainError, SessionInUse
from sayagain.identity import child_session_id
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
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, HistoryUpdate, UserTurn
from sayagain.runtime.seam import OWNER_PATIENCE, SessionSetup

__all__ = ["FakeSession", "FakeStore", "Owner", "text"]


def text(content: str) -> dict[str, Any]:
    """A text content block."""
    return {"type": "text", "text": content}


@dataclass
class FakeStore:
    """What is on the fake disk: for each session its working directory and its entries."""

    sessions: dict[str, list[HistoryEntry]] = field(default_factory=dict[str, list[HistoryEntry]])
    directories: dict[str, str] = field(default_factory=dict[str, str])
    titles: dict[str, str] = field(default_factory=dict[str, str])
    archived: set[str] = field(default_factory=set[str])
    owners: dict[str, FakeSession] = field(default_factory=dict[str, "FakeSession"])
    reads: int = 0
    """How many times any history was read, replays and id reads together."""
    read_error: SayagainError | None = None
    before_entry: Callable[[int], Awaitable[None]] | None = None
    """Awaited before each entry of a history, with its index: a test stops a replay here."""

    def ids(self, session_id: str) -> list[str]:
        """The ids of all stored user messages, in order, repeats included."""
        return [
            message_id
            for entry in self.sessions.get(session_id, ())
            if isinstance(entry, UserTurn) and entry.session_id == session_id
            for message_id in entry.message_ids
        ]


class Owner(Protocol):
    """What a session asks of its runtime."""

    store: FakeStore
    manual: bool


class FakeSession:
    """Implements ``RuntimeSession``. Methods that the seam does not know are the test's levers."""

    def __init__(self, runtime: Owner, session_id: str, setup: SessionSetup) -> None:
        self._store = runtime.store
        self._session_id = session_id
        self.setup = setup
        self.manual = runtime.manual
        self.submitted: list[str] = []
        """Every message that the agent gave to the runtime, in order."""
        self.contents: dict[str, Sequence[Mapping[str, Any]]] = {}
        self.interrupts = 0
        self.answers: dict[str, Mapping[str, Any] | None] = {}
        self.snapshot_updates: list[Mapping[str, Any]] = []
        self.submit_error: SayagainError | None = None
        self.before_submit: Callable[[str], Awaitable[None]] | None = None
        """Awaited while a message is on its way to the runtime: a test stops here."""
        self.before_own: Callable[[], Awaitable[None]] | None = None
        """Awaited before the session is owned: a test stops here."""
        self.before_option: Callable[[str], Awaitable[None]] | None = None
        """Awaited before an option is set: a test stops here."""
        self._taken_back: set[str] = set()
        self.can_withdraw = True
        self.pace = "slow"
        self.cancellable: set[str] = set()
        """Ids of tool calls and terminals that can be cancelled."""
        self.closed = False
        self._failure: Exception | None = None
        self._replies = 0
        self._signal = anyio.Event()
        self._send, self._receive = anyio.create_memory_object_stream[RuntimeEvent](math.inf)

    # The seam.

    @property
    def session_id(self) -> str:
        return self._session_id

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        async with self._receive:
            async for event in self._receive:
                yield event
        if self._failure is not None:
            raise self._failure

    async def own(self, *, patience: float = OWNER_PATIENCE) -> None:
        if self.before_own is not None:
            await self.before_own()
        await anyio.lowlevel.checkpoint()
        owner = self._store.owners.get(self._session_id)
        if owner is not None and owner is not self and not owner.closed:
            raise SessionInUse
        self._store.owners[self._session_id] = self

    async def submit(self, message_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        self._taken_back.discard(message_id)
        if self.before_submit is not None:
            await self.before_submit(message_id)
        await anyio.lowlevel.checkpoint()
        if self.submit_error is not None:
            raise self.submit_error
        if self.closed:
            raise RuntimeDied
        if message_id in self._taken_back:
            return
        self.submitted.append(message_id)
        self.contents[message_id] = content
        self._notify()
        if not self.manual:
            self.emit(Foreground(self._session_id, "running"))
            self.store(message_id)
            self.say(f"answer to {_plain(content)}")
            self.finish()

    async def withdraw(self, message_id: str) -> bool:
        await anyio.lowlevel.checkpoint()
        if not self.can_withdraw or message_id in self._store.ids(self._session_id):
            return False
        self._taken_back.add(message_id)
        return True

    def snapshot(self) -> Sequence[Mapping[str, Any]]:
        return self.snapshot_updates

    def options(self) -> Sequence[Mapping[str, Any]]:
        values = [{"value": value, "name": value.title()} for value in ("slow", "fast")]
        return [{"configId": "pace", "name": "Pace", "type": "select", "currentValue": self.pace, "options": values}]

    async def set_option(self, config_id: str, value: str | bool) -> None:
        await anyio.lowlevel.checkpoint()
        if config_id != "pace":
            raise InvalidParams("configId", "this session has no such option")
        if not isinstance(value, str) or value not in ("slow", "fast"):
            raise InvalidParams("value", "is none of the option's values")
        if self.before_option is not None:
            await self.before_option(value)
        self.pace = value
        self.update({"sessionUpdate": "config_option_update", "configOptions": self.options()})

    async def cancel_tool_call(self, tool_call_id: str) -> None:
        await anyio.lowlevel.checkpoint()
        if tool_call_id not in self.cancellable:
            raise InvalidParams("toolCallId", "no tool call under this id can be cancelled")
        self.cancellable.remove(tool_call_id)
        self.update({"sessionUpdate": "tool_call_update", "toolCallId": tool_call_id, "status": "cancelled"})

    async def cancel_terminal(self, terminal_id: str) -> None:
        await anyio.lowlevel.checkpoint()
        if terminal_id not in self.cancellable:
            raise InvalidParams("terminalId", "no terminal under this id can be cancelled")
        self.cancellable.remove(terminal_id)
        exit_status = {"signal": "SIGTERM"}
        self.update({"sessionUpdate": "terminal_update", "terminalId": terminal_id, "exitStatus": exit_status})

    async def interrupt(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.interrupts += 1
        self._notify()
        if not self.manual:
            self.finish("cancelled")

    async def answer(self, ask_id: str, result: Mapping[str, Any] | None) -> None:
        await anyio.lowlevel.checkpoint()
        self.answers[ask_id] = result
        self._notify()

    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()
        if not self.closed:
            self.closed = True
            self._send.close()

    # The levers.

    def emit(self, event: RuntimeEvent) -> None:
        """Report any event."""
        if not self.closed:
            self._send.send_nowait(event)

    def fail(self, error: Exception) -> None:
        """Break the stream of events."""
        self._failure = error
        self._send.close()

    def persist(self, entry: HistoryEntry) -> None:
        """Store an entry without reporting anything."""
        self._store.sessions.setdefault(self._session_id, []).append(entry)
        self._store.directories.setdefault(self._session_id, self.setup.cwd)

    def store(self, message_id: str) -> None:
        """Store a submitted message, and report it."""
        content = [dict(block) for block in self.contents[message_id]]
        update = {"sessionUpdate": "user_message", "messageId": message_id, "content": content}
        self.persist(UserTurn(self._session_id, (message_id,), update))
        self.emit(Inserted(message_id))

    def refuse(self, message_id: str, error: SayagainError) -> None:
        """Turn a submitted message away."""
        self.emit(Rejected(message_id, error))
        self.emit(Foreground(self._session_id, "idle"))

    def say(self, content: str, *, message_id: str | None = None, stored: bool = True) -> str:
        """Stream a message of the agent in one chunk and store it; its id."""
        if message_id is None:
            self._replies += 1
            message_id = f"msg-{len(self._store.sessions.get(self._session_id, ()))}-{self._replies}"
        chunk = {"sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": text(content)}
        self.emit(Update(self._session_id, chunk))
        if stored:
            whole = {"sessionUpdate": "agent_message", "messageId": message_id, "content": [text(content)]}
            self.persist(HistoryUpdate(self._session_id, whole))
        return message_id

    def call(self, tool_call_id: str) -> None:
        """Start a tool call and store it; in a history that nobody works on it has failed."""
        call = {"sessionUpdate": "tool_call_update", "toolCallId": tool_call_id, "title": "Run"}
        call["status"] = "in_progress"
        self.emit(Update(self._session_id, call))
        self.persist(HistoryUpdate(self._session_id, call))

    def update(self, update: Mapping[str, Any], *, session_id: str | None = None) -> None:
        """Report an update that is not stored."""
        self.emit(Update(session_id or self._session_id, update))

    def run(self) -> None:
        """Foreground work starts."""
        self.emit(Foreground(self._session_id, "running"))

    def finish(self, stop_reason: str = "end_turn", *, error: Mapping[str, Any] | None = None) -> None:
        """Foreground work ends."""
        self.emit(Foreground(self._session_id, "idle", stop_reason=stop_reason, error=error))

    def spawn(self, name: str, *, parent_id: str | None = None, stored: bool = True) -> str:
        """Announce a child session that runs; its id. Its stored history ends by :meth:`end_child`."""
        parent = parent_id or self._session_id
        child_id = child_session_id(self._session_id, name)
        update: dict[str, Any] = {
            "sessionUpdate": "subagent_update",
            "sessionId": child_id,
            "title": name,
            "capabilities": {},
        }
        self.emit(ChildAnnounced(parent, child_id, update))
        self.emit(Foreground(child_id, "running"))
        if stored:
            self.persist(ChildStarts(parent, child_id, update))
        return child_id

    def end_child(self, child_id: str) -> None:
        """The child is done."""
        self.emit(Foreground(child_id, "idle", stop_reason="end_turn"))
        self.persist(HistoryEnds(child_id))

    def ask(self, ask_id: str, *, session_id: str | None = None, subject: Mapping[str, Any] | None = None) -> None:
        """Ask for a permission."""
        target = session_id or self._session_id
        params: dict[str, Any] = {
            "sessionId": target,
            "title": f"Allow {ask_id}?",
            "options": [
                {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
                {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
            ],
        }
        if subject is not None:
            params["subject"] = subject
        self.emit(Ask(ask_id, target, "session/request_permission", params))

    def withdraw_ask(self, ask_id: str) -> None:
        """No longer ask."""
        self.emit(AskWithdrawn(ask_id))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the agent has called something that makes ``condition`` true."""
        while not condition():
            await self._signal.wait()

    def _notify(self) -> None:
        self._signal.set()
        self._signal = anyio.Event()


def _plain(content: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(str(block.get("text", block.get("type"))) for block in content)
