"""One session of this process: its prompts, its state, and everybody who is attached to it.

Two tasks work for a session. One takes the runtime's events in order and passes them on; the other is the prompt pump.
Everything else is a plain call made from a connection's reader.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.agent.asks import AskBook, OpenAsk
from sayagain.agent.attachment import Attachment
from sayagain.agent.foreground import ForegroundMachine
from sayagain.agent.journal import Journal, entity_of
from sayagain.agent.pump import PromptPump
from sayagain.connection import Connection, ConnectionLost, PeerError
from sayagain.errors import RuntimeDied, to_wire
from sayagain.fault_points import Point
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
from sayagain.runtime.seam import Runtime, RuntimeSession, SessionSetup

__all__ = ["Child", "Session"]

logger = logging.getLogger(__name__)

STALL: Final = 30.0
"""Seconds that all who are attached to a session wait for one of them that has stopped reading. Whoever reads at all
reads more in that time than is queued for it. A client that is alone is waited for as long as it takes."""


@dataclass(slots=True)
class Child:
    """A subagent session that was announced while this process watched."""

    parent_id: str
    child_id: str
    fields: dict[str, Any]
    foreground: ForegroundMachine = field(default_factory=ForegroundMachine)


class Session:
    """``fresh`` says that nothing is stored yet, so that no history has to be read for a key."""

    def __init__(self, runtime: Runtime, backend: RuntimeSession, setup: SessionSetup, *, fresh: bool) -> None:
        self.runtime = runtime
        self.setup = setup
        self.backend = backend
        self.session_id = backend.session_id
        self.fresh = fresh
        self.foreground = ForegroundMachine()
        self.changes = anyio.Lock()
        """Held by a change of an option: they follow each other in the order of the wire, and a prompt follows them. A
        client that does not wait for the answers must not run in another mode than the one that it asked for last."""
        self.pump = PromptPump(runtime, backend, self.foreground, self._start, self.changes, fresh=fresh)
        self.asks = AskBook()
        self.children: dict[str, Child] = {}
        self.attachments: dict[Connection, Attachment] = {}
        # Replays follow each other (section 4). Nothing else waits for it: a replay goes as fast as its client reads.
        self.replay_lock = anyio.Lock()
        self.resumes = 0
        """Resumes under way that will attach."""
        self._worked = False
        self._seen = False
        self._journals: dict[str, Journal] = {}
        self._ended = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._closing = False
        self._pace = anyio.CancelScope()
        self._turns: WeakKeyDictionary[Connection, anyio.Lock] = WeakKeyDictionary()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until the runtime's event stream ends."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self.pump.run)
                task_status.started()
                await self._take_events()
                self._tasks.cancel_scope.cancel()
        finally:
            # However it ended, nothing of the runtime stays behind.
            with anyio.CancelScope(shield=True):
                await self.backend.close()
                await self._end()

    @property
    def ended(self) -> bool:
        """Whether it was closed, is being closed, or failed."""
        return self._closing or self._ended.is_set()

    @property
    def worked(self) -> bool:
        """Whether the runtime did anything in this process, so that parts of it may still be on their way."""
        return self._worked or self.pump.given > 0

    @property
    def unused(self) -> bool:
        """Whether nobody ever got to see it, and nobody is about to."""
        return not (self._seen or self.resumes or self.attachments)

    # Attachments.

    def turn(self, connection: Connection) -> anyio.Lock:
        """Held by a resume: those of one connection follow each other, since they share its gates."""
        return self._turns.setdefault(connection, anyio.Lock())

    def attach(self, connection: Connection) -> Attachment:
        """The connection's attachment, made on first use; it is not active before its response."""
        attachment = self.attachments.get(connection)
        if attachment is None:
            attachment = self.attachments[connection] = Attachment(connection, self.session_id, self._send_ask)
            attachment.hold_children(self.children)
        return attachment

    def detach(self, connection: Connection) -> None:
        """The connection is gone, or did not get to see the session."""
        if self.attachments.pop(connection, None) is not None:
            for ask in self.asks.unplaced():
                self._place(ask)

    def activate(self, attachment: Attachment) -> None:
        """The success response is written: announce who goes on (SUB-11), let everything flow, ask what is open."""
        if self.attachments.get(attachment.connection) is not attachment:
            return
        attachment.active = self._seen = True
        attachment.open(self.session_id)
        for child in self.working_children():
            attachment.connection.update(child.parent_id, self._announcement(child))
        attachment.open_all()
        if attachment.queued:
            attachment.hold(self.children)
        for ask in self.asks.unplaced():
            self._place(ask)

    def working_children(self) -> list[Child]:
        """Children that still work, and their ancestors; parents first."""
        wanted: set[str] = set()
        for child in self.children.values():
            if child.foreground.active:
                link: Child | None = child
                while link is not None and link.child_id not in wanted:
                    wanted.add(link.child_id)
                    link = self.children.get(link.parent_id)
        return [child for child in self.children.values() if child.child_id in wanted]

    def journal(self, session_id: str) -> Journal:
        """The journal of the session or of a child."""
        journal = self._journals.get(session_id)
        if journal is None:
            journal = self._journals[session_id] = Journal()
        return journal

    def current_state(self) -> Iterable[Mapping[str, Any]]:
        """What every resume ends with (RES-9, RES-11): the runtime's snapshot, then the state."""
        yield from self.backend.snapshot()
        yield self.foreground.snapshot()

    # The runtime's events.

    async def _take_events(self) -> None:
        async for event in self.backend.events():
            self._take(event)
            # At the end nobody's slowness counts any more.
            if self._closing or not any(a.connection.is_full for a in self.attachments.values()):
                continue
            with anyio.CancelScope() as self._pace:
                for attachment in list(self.attachments.values()):
                    await self.drained(attachment.connection)

    async def drained(self, connection: Connection) -> None:
        """Wait for a client that reads slowly (I11). One that does not read at all loses its connection for the others.

        They would wait with it: for its events the runtime's are taken by one task, for its replay by the next replay.
        """
        while connection.is_full:
            with anyio.move_on_after(STALL):
                await connection.drained()
                return
            if len(self.attachments) > 1:
                logger.warning("a client that others wait for has stopped reading; its connection is ended")
                connection.abandon()

    def _take(self, event: RuntimeEvent) -> None:
        self._worked = self._worked or _is_work(event)
        match event:
            case Update():
                self._publish(event.session_id, event.update)
            case Inserted():
                self._inserted(event.message_id)
            case Rejected():
                self.pump.rejected(event)
            case Foreground():
                self._foreground(event)
            case ChildAnnounced():
                self.children[event.child_id] = Child(event.parent_id, event.child_id, dict(event.update))
                self.journal(event.parent_id).note(event.update)
                for attachment in self.attachments.values():
                    attachment.child(event.parent_id, event.child_id, event.update)
            case Ask():
                self._place(self.asks.add(event))
            case AskWithdrawn():
                self.asks.withdraw(event.ask_id)

    def _publish(self, session_id: str, update: Mapping[str, Any]) -> None:
        self.journal(session_id).note(update)
        if update["sessionUpdate"] == "subagent_update" and (child := self.children.get(update["sessionId"])):
            child.fields |= update
        for attachment in self.attachments.values():
            attachment.live(session_id, update)

    def _inserted(self, message_id: str) -> None:
        """``user_message``, then the responses: the client learns the id with or before the answer (PRM-2)."""
        fault_points.passing(Point.PROVED)
        self.fresh = False
        self.journal(self.session_id).settle()
        for attachment in self.attachments.values():
            attachment.inserted(self.pump.given)
        prompt = self.pump.table.submitted
        if prompt is not None and prompt.message_id == message_id:
            # Empty texts say nothing, and no runtime stores them: a replay has none either.
            content = [block for block in prompt.content if block.get("type") != "text" or block["text"]]
            self._publish(
                self.session_id, {"sessionUpdate": "user_message", "messageId": message_id, "content": content}
            )
        fault_points.passing(Point.PUBLISHED)
        self.pump.inserted(message_id)
        fault_points.passing(Point.ANSWERED)

    def _foreground(self, event: Foreground) -> None:
        if event.session_id != self.session_id:
            self._child_foreground(event)
            return
        self.pump.foreground(event)
        if (update := self.foreground.report(event)) is not None:
            self._publish(self.session_id, update)

    def _child_foreground(self, event: Foreground) -> None:
        """The child's own state, and its mirror on the parent (SUB-6)."""
        child = self.children.get(event.session_id)
        if child is None or (update := child.foreground.report(event)) is None:
            return
        self._publish(child.child_id, update)
        state = {key: value for key, value in update.items() if key not in ("sessionUpdate", "usage")}
        if child.fields.get("state") != state:
            mirror = {"sessionUpdate": "subagent_update", "sessionId": child.child_id, "state": state}
            self._publish(child.parent_id, mirror)

    def _announcement(self, child: Child) -> Mapping[str, Any]:
        return {"capabilities": {}, **child.fields}

    # Asks.

    def _place(self, ask: OpenAsk) -> None:
        for attachment in self.attachments.values():
            if attachment.usable:
                attachment.ask(ask)
                return

    def _send_ask(self, attachment: Attachment, ask: OpenAsk) -> None:
        if ask in self.asks:
            ask.call = attachment.connection.begin_request(ask.event.method, ask.event.params)
            self._start(self._await_answer, ask)

    async def _await_answer(self, ask: OpenAsk) -> None:
        call, attachment = ask.call, ask.attachment
        assert call is not None
        assert attachment is not None
        result: Mapping[str, Any] | None = None
        try:
            result = await call.result()
        except (PeerError, ConnectionLost) as error:
            if attachment.connection.is_closed:
                # It stays open: another client has it by now, or the next one gets it.
                if ask.call is call:
                    ask.attachment, ask.call = None, None
                return
            logger.warning("%s was not answered: %s", ask.event.method, error)
        if self.asks.settle(ask):
            await self.backend.answer(ask.event.ask_id, result)

    # The end.

    async def close(self) -> None:
        """Stop all work, answer what waits, free the runtime (CLS-1). Everything is sent when this returns."""
        if not self._closing:
            self._closing = True
            fault_points.passing(Point.CLOSING)
            self._pace.cancel()
            # Whoever asked for it may be gone; a half-closed session helps nobody.
            with anyio.CancelScope(shield=True):
                await self.pump.close()
                await self.backend.close()
        await self._ended.wait()

    async def _end(self) -> None:
        await self.pump.end()
        if self._closing:
            self._foreground(Foreground(self.session_id, "idle", stop_reason="cancelled"))
        else:
            died = to_wire(RuntimeDied("The runtime ended unexpectedly"))
            self._foreground(Foreground(self.session_id, "idle", stop_reason="error", error=died))
        for attachment in self.attachments.values():
            # Who waits for a replay of it gets none any more.
            if attachment.active and not attachment.replaying:
                attachment.open_all()
        self._ended.set()

    def _start(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run beside the pumps; after the end there is nothing left to run for."""
        if self._tasks is not None and not self._ended.is_set():
            self._tasks.start_soon(self._logged, function, *args)

    async def _logged(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        # Nobody waits for these; the runtime's own report of what happened follows in its events.
        try:
            await function(*args)
        except Exception:
            logger.exception("work beside the session failed")


def _is_work(event: RuntimeEvent) -> bool:
    """Whether it belongs to work that is told in the history, or will be."""
    match event:
        case Update():
            return entity_of(event.update) is not None
        case Foreground():
            return event.state != "idle"
        case _:
            return True
