"""What the checks stand on: the driver that an author writes, and a session that is watched."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import anyio
import anyio.abc

from sayagain.errors import SayagainError
from sayagain.identity import fresh_message_id
from sayagain.runtime.events import Foreground, Inserted, Rejected, RuntimeEvent, Update
from sayagain.runtime.history import HistoryEntry, HistoryUpdate, UserTurn
from sayagain.runtime.seam import Runtime, RuntimeSession, SessionSetup

__all__ = [
    "PATIENCE",
    "Behaviour",
    "BrokenPromise",
    "Check",
    "Driver",
    "Watched",
    "Work",
    "history_texts",
    "raises",
    "require",
    "user_ids",
    "working",
]

PATIENCE: Final = 60.0
"""Seconds for anything that a runtime has promised to do; the longest that our own adapters wait inside is shorter."""

E = TypeVar("E")


class BrokenPromise(AssertionError):
    """The runtime does not do what the seam says."""


def require(holds: object, promise: str) -> None:
    """Raise :class:`BrokenPromise` unless it holds."""
    if not holds:
        raise BrokenPromise(promise)


class Behaviour(Enum):
    """What the model, or the runtime, does with a prompt; the value is the prompt's whole text."""

    ANSWER = "Answer this."
    """The model answers with a text."""
    HOLD = "Begin, then hang."
    """The model streams a piece of text, then nothing more."""
    ASK = "Use a tool that needs a permission."
    """The model calls one tool for which the runtime asks the client, then answers with a text."""
    DELEGATE = "Give this to a subagent."
    """The model starts one subagent, whose model answers with a text; then it answers itself."""
    REFUSE = "Turn this away."
    """The runtime turns the prompt away and stores nothing (Claude Code: a hook)."""


class Driver(Protocol):
    """A runtime under test. Its store is empty at first and is shared by all the runtimes that it makes."""

    @property
    def cwd(self) -> str:
        """An existing directory, where sessions work."""
        ...

    @property
    def other_cwd(self) -> str:
        """Another one."""
        ...

    def runtime(self) -> Runtime:
        """A new runtime over the store, not entered yet. Several may be alive, as if in several processes."""
        ...

    def stored(self, session_id: str) -> Sequence[str]:
        """The ids of the user messages that are stored, in order, repeats included: read without the runtime."""
        ...

    async def held(self) -> None:
        """Wait until a model hangs at :attr:`Behaviour.HOLD`."""
        ...

    async def freeze(self, session: RuntimeSession) -> None:
        """Keep the session's runtime process from doing anything, so that it stores nothing (Unix: ``SIGSTOP``)."""
        ...

    async def kill(self, session: RuntimeSession) -> None:
        """End the session's runtime process as a crash does, frozen or not. The session object is not told."""
        ...

    def damage(self, session_id: str) -> None:
        """Make what is stored of the session unreadable, as a disk or a permission would."""
        ...


Check: TypeAlias = Callable[[Driver], Awaitable[None]]


class Watched:
    """A session whose events are read by a task of their own, as the agent does."""

    def __init__(self, runtime: Runtime, session: RuntimeSession) -> None:
        self.runtime = runtime
        self.session = session
        self.events: list[RuntimeEvent] = []
        self.ended = False
        self._early = False
        self._changed = anyio.Event()

    @property
    def session_id(self) -> str:
        return self.session.session_id

    async def run(self) -> None:
        """Read to the end of the stream."""
        async for event in self.session.events():
            if isinstance(event, Inserted):
                self._early = self._early or event.message_id not in await self.runtime.message_ids(self.session_id)
            self.events.append(event)
            self._wake()
        self.ended = True
        self._wake()

    async def until(self, condition: Callable[[], object], promise: str) -> None:
        """Wait for events that make the condition true."""
        with anyio.move_on_after(PATIENCE):
            while not condition():
                require(not self.ended, f"{promise}, but the stream of events ended")
                await self._changed.wait()
        require(not self._early, "Inserted comes when the id is found in message_ids, not before")
        require(condition(), promise)

    async def until_ended(self) -> None:
        """Wait for the end of the stream."""
        with anyio.move_on_after(PATIENCE):
            while not self.ended:
                await self._changed.wait()
        require(self.ended, "the stream of events ends after close")

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def changes(self) -> list[Foreground]:
        """Every change of the session's own state, which is idle at first; a repeat is news of the background alone."""
        changes: list[Foreground] = []
        state = "idle"
        for event in self.of(Foreground):
            if event.session_id == self.session_id and event.state != state:
                changes.append(event)
                state = event.state
        return changes

    def idles(self) -> list[Foreground]:
        """Every end of the session's own foreground work."""
        return [event for event in self.changes() if event.state == "idle"]

    def idle_after(self, event: RuntimeEvent) -> bool:
        """Whether an idle, repeated or not, follows the event."""
        later = self.events[self.events.index(event) :]
        return any(isinstance(e, Foreground) and e.session_id == self.session_id and e.state == "idle" for e in later)

    def outcomes(self, message_id: str) -> list[Inserted | Rejected]:
        """What became of a submitted message."""
        return [e for e in self.events if isinstance(e, (Inserted, Rejected)) and e.message_id == message_id]

    def texts(self) -> dict[str, str]:
        """The agent's messages in the session itself, by id, as streamed so far."""
        return _texts(self.session_id, [(e.session_id, e.update) for e in self.of(Update)])

    def titles(self) -> list[str]:
        """The titles that the session reported."""
        return [str(e.update["title"]) for e in self.of(Update) if e.update.get("title") and _is_info(e)]

    async def submit(self, behaviour: Behaviour, message_id: str | None = None) -> str:
        """Submit a prompt; its message id."""
        message_id = message_id or fresh_message_id()
        with anyio.fail_after(PATIENCE):
            await self.session.submit(message_id, [{"type": "text", "text": behaviour.value}])
        return message_id

    async def stored(self, behaviour: Behaviour, message_id: str | None = None) -> str:
        """Submit a prompt and wait until it is stored."""
        before = 0 if message_id is None else len(self.outcomes(message_id))
        message_id = await self.submit(behaviour, message_id)
        await self.until(
            lambda: len(self.outcomes(message_id)) > before, "Inserted or Rejected follows a submit that returned"
        )
        require(isinstance(self.outcomes(message_id)[-1], Inserted), "an ordinary message is stored")
        return message_id

    async def turn(self, behaviour: Behaviour = Behaviour.ANSWER, message_id: str | None = None) -> str:
        """Submit a prompt and wait until its work has ended."""
        before = len(self.idles())
        message_id = await self.stored(behaviour, message_id)
        await self.until(lambda: len(self.idles()) > before, "an idle follows a message that is stored")
        return message_id

    async def history(self, *, live: bool = False) -> list[HistoryEntry]:
        """One pass over the history."""
        return [entry async for entry in self.runtime.history(self.session_id, live=live)]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Work:
    """A runtime that runs, with the sessions that a check opens."""

    def __init__(self, driver: Driver, runtime: Runtime, tasks: anyio.abc.TaskGroup) -> None:
        self.driver = driver
        self.runtime = runtime
        self._tasks = tasks

    def setup(self, cwd: str | None = None) -> SessionSetup:
        return SessionSetup(cwd=cwd or self.driver.cwd)

    async def new(self, cwd: str | None = None) -> Watched:
        return self._watch(await self.runtime.new(self.setup(cwd)))

    async def resume(self, session_id: str) -> Watched:
        return self._watch(await self.runtime.resume(session_id, self.setup()))

    async def fork(self, session_id: str) -> Watched:
        return self._watch(await self.runtime.fork(session_id, self.setup()))

    async def listed(self, cwd: str | None = None) -> list[str]:
        """The ids on all pages of the list."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.runtime.list(cwd=cwd, cursor=cursor)
            found += [row.session_id for row in page.sessions]
            cursor = page.next_cursor
            if cursor is None:
                return found

    def _watch(self, session: RuntimeSession) -> Watched:
        watched = Watched(self.runtime, session)
        self._tasks.start_soon(watched.run)
        return watched


@asynccontextmanager
async def working(driver: Driver) -> AsyncGenerator[Work]:
    """A new runtime over the driver's store: after an earlier one, the same adapter after a restart."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        async with driver.runtime() as runtime:
            try:
                yield Work(driver, runtime, tasks)
            except Exception as error:  # noqa: BLE001 - raised again below: a check sees its own error, not a group
                failure = error
        if failure is not None:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def raises(kind: type[SayagainError], call: Awaitable[object], promise: str) -> None:
    """Require an error of this kind."""
    try:
        await call
    except kind:
        return
    raise BrokenPromise(promise)


def user_ids(session_id: str, entries: Sequence[HistoryEntry]) -> list[str]:
    """Every id of the session's user messages in a history."""
    turns = [entry for entry in entries if isinstance(entry, UserTurn) and entry.session_id == session_id]
    return [message_id for turn in turns for message_id in turn.message_ids]


def history_texts(session_id: str, entries: Sequence[HistoryEntry]) -> dict[str, str]:
    """The agent's messages in a history, by id."""
    return _texts(session_id, [(e.session_id, e.update) for e in entries if isinstance(e, HistoryUpdate)])


def _is_info(event: Update) -> bool:
    return bool(event.update["sessionUpdate"] == "session_info_update")


def _texts(session_id: str, updates: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for owner, update in updates:
        if owner != session_id:
            continue
        if update["sessionUpdate"] == "agent_message_chunk":
            texts[update["messageId"]] = texts.get(update["messageId"], "") + update["content"].get("text", "")
        elif update["sessionUpdate"] == "agent_message" and "content" in update:
            texts[update["messageId"]] = "".join(block.get("text", "") for block in update["content"] or ())
    return texts
