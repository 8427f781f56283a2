"""One session of this process: its prompts, its state, and everybody who is attached to it.

Two tasks work for a session. One takes the runtime's events in order and passes them on; the other gives the runtime
one prompt at a time. Everything else is a plain call made from a connection's reader.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import anyio.abc

from sayagain.agent.asks import AskBook, OpenAsk
from sayagain.agent.attachment import Attachment
from sayagain.agent.foreground import ForegroundMachine
from sayagain.agent.journal import Journal
from sayagain.agent.prompts import Answer, PromptTable
from sayagain.connection import Connection, ConnectionLost, IncomingRequest, PeerError
from sayagain.errors import (
    HistoryUnreadable,
    RequestCancelled,
    RuntimeDied,
    RuntimeFault,
    SayagainError,
    SessionInUse,
    to_wire,
)
from sayagain.runtime import (
    Ask,
    AskWithdrawn,
    ChildAnnounced,
    Foreground,
    Inserted,
    Rejected,
    Runtime,
    RuntimeEvent,
    RuntimeSession,
    Update,
)

__all__ = ["Child", "Session"]

logger = logging.getLogger(__name__)

WITHDRAW_PATIENCE: Final = 2.0
"""Seconds for a runtime to give back the submitted message of a session that is closed. A runtime that hangs is ended
then, and its store tells what became of the message."""


@dataclass(slots=True)
class Child:
    """A subagent session that was announced while this process watched."""

    parent_id: str
    child_id: str
    fields: dict[str, Any]
    foreground: ForegroundMachine = field(default_factory=ForegroundMachine)


class Session:
    """``fresh`` says that nothing is stored yet, so that no history has to be read for a key."""

    def __init__(self, runtime: Runtime, backend: RuntimeSession, *, fresh: bool) -> None:
        self.runtime = runtime
        self.backend = backend
        self.session_id = backend.session_id
        self.fresh = fresh
        self.prompts: PromptTable[IncomingRequest] = PromptTable(known=() if fresh else None)
        self.foreground = ForegroundMachine()
        self.asks = AskBook()
        self.children: dict[str, Child] = {}
        self.attachments: dict[Connection, Attachment] = {}
        # One read of the history at a time, and the first one serves all (section 4).
        self.history_lock = anyio.Lock()
        self._journals: dict[str, Journal] = {}
        self._wake = anyio.Event()
        self._ended = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._closing = False
        self._pace = anyio.CancelScope()
        self._turns: WeakKeyDictionary[Connection, anyio.Lock] = WeakKeyDictionary()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until the runtime's event stream ends."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._give_prompts)
                task_status.started()
                await self._take_events()
                self._tasks.cancel_scope.cancel()
        finally:
            # However it ended, nothing of the runtime stays behind.
            with anyio.CancelScope(shield=True):
                await self.backend.close()
            self._end()

    @property
    def ended(self) -> bool:
        """Whether it was closed, is being closed, or failed."""
        return self._closing or self._ended.is_set()

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
        attachment.active = True
        attachment.open(self.session_id)
        for child in self.working_children():
            attachment.connection.update(child.parent_id, self._announcement(child))
        attachment.open_all()
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

    # Prompts.

    def prompt(
        self, request: IncomingRequest, message_id: str, content: Sequence[Mapping[str, Any]], *, keyed: bool
    ) -> None:
        """Take a prompt request; its answer comes now or later (KEY-3). A plain call: the reservation is made here."""
        request.on_cancel = lambda: self._cancel_prompt(request)
        self._answer(self.prompts.arrive(request, message_id, content, keyed=keyed))
        self._wake.set()

    def _cancel_prompt(self, request: IncomingRequest) -> None:
        answers, submitted = self.prompts.cancel(request)
        self._answer(answers)
        if submitted is not None:
            self._start(self._withdraw, submitted)

    def cancel(self) -> None:
        """``session/cancel``: all that is not inserted, and the foreground work (CAN-1)."""
        answers, submitted = self.prompts.cancel_all("the session's work was cancelled")
        self._answer(answers)
        self._start(self._interrupt, submitted)

    async def _withdraw(self, message_id: str) -> bool:
        if not await self.backend.withdraw(message_id):
            return False
        self._answer(self.prompts.withdrawn(message_id))
        self._wake.set()
        return True

    async def _interrupt(self, submitted: str | None) -> None:
        if submitted is not None and await self._withdraw(submitted):
            return
        if submitted is not None or self.prompts.busy or self.foreground.active:
            await self.backend.interrupt()

    async def _give_prompts(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            if self.prompts.needs_history:
                await self._read_ids()
            while (prompt := self.prompts.next_held) is not None and not self._closing:
                try:
                    # While this takes its time, a prompt is held still and withdrawn without asking anybody.
                    await self.backend.own()
                except Exception as error:  # noqa: BLE001 - whatever it is, the prompt is answered
                    self._answer(self.prompts.refused(prompt.message_id, self._fault("a prompt", error)))
                    continue
                if self._closing or (prompt := self.prompts.submit_next()) is None:
                    break
                try:
                    await self.backend.submit(prompt.message_id, prompt.content)
                except Exception as error:  # noqa: BLE001 - whatever it is, the prompt is answered
                    self._answer(self.prompts.refused(prompt.message_id, self._fault("a prompt", error)))
                    self.prompts.work_ended()

    async def _read_ids(self) -> None:
        async with self.history_lock:
            if self.prompts.history_known:
                return
            try:
                in_use = await self._own()
                ids = await self.runtime.message_ids(self.session_id)
            except Exception as error:  # noqa: BLE001 - a read error is an error to the client, never an empty set
                self._answer(self.prompts.history_failed(self._fault("reading the history", error)))
            else:
                # Only what is read as the owner proves that an id is absent.
                self._answer(self.prompts.history_failed(in_use, ids) if in_use else self.prompts.learn(ids))

    async def _own(self) -> SessionInUse | None:
        try:
            await self.backend.own()
        except SessionInUse as error:
            return error
        return None

    def learn(self, ids: set[str]) -> None:
        """A replay read the whole history as the owner."""
        if not self.prompts.history_known:
            self._answer(self.prompts.learn(ids))
            self._wake.set()

    def _fault(self, doing: str, error: Exception) -> SayagainError:
        if isinstance(error, SayagainError):
            return error
        logger.error("%s failed", doing, exc_info=error)
        return RuntimeFault(f"{doing} failed unexpectedly")

    def _answer(self, answers: Iterable[Answer[IncomingRequest]]) -> None:
        for answer in answers:
            if answer.error is None:
                answer.waiter.respond({"messageId": answer.message_id})
            else:
                answer.waiter.fail(answer.error)

    # The runtime's events.

    async def _take_events(self) -> None:
        async for event in self.backend.events():
            self._take(event)
            # At the end nobody's slowness counts any more.
            with anyio.CancelScope() as self._pace:
                for attachment in () if self._closing else list(self.attachments.values()):
                    await attachment.connection.drained()

    def _take(self, event: RuntimeEvent) -> None:
        match event:
            case Update():
                self._publish(event.session_id, event.update)
            case Inserted():
                self._inserted(event.message_id)
            case Rejected():
                if isinstance(event.error, HistoryUnreadable):
                    # Nobody could tell whether it is stored: a retry must look again before it is submitted.
                    self.prompts.forget_history()
                self._answer(self.prompts.refused(event.message_id, event.error))
                self._wake.set()
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
        self.fresh = False
        self.journal(self.session_id).settle()
        prompt = self.prompts.submitted
        if prompt is not None and prompt.message_id == message_id:
            self._publish(
                self.session_id,
                {"sessionUpdate": "user_message", "messageId": message_id, "content": list(prompt.content)},
            )
        self._answer(self.prompts.stored(message_id))

    def _foreground(self, event: Foreground) -> None:
        if event.session_id != self.session_id:
            self._child_foreground(event)
            return
        if event.state == "idle":
            self.prompts.work_ended()
            self._wake.set()
        else:
            self.prompts.work_started()
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
            self._pace.cancel()
            answers, submitted = self.prompts.cancel_all("the session was closed")
            self._answer(answers)
            # Whoever asked for it may be gone; a half-closed session helps nobody.
            with anyio.CancelScope(shield=True):
                if submitted is not None:
                    with anyio.move_on_after(WITHDRAW_PATIENCE):
                        await self._withdraw(submitted)
                await self.backend.close()
        await self._ended.wait()

    def _end(self) -> None:
        error: SayagainError = RuntimeDied("The session ended before the message was stored")
        if self._closing:
            error = RequestCancelled("the session was closed")
        if (prompt := self.prompts.submitted) is not None:
            self._answer(self.prompts.refused(prompt.message_id, error))
        answers, _ = self.prompts.cancel_all("the session ended")
        self._answer(answers)
        if self._closing:
            self._foreground(Foreground(self.session_id, "idle", stop_reason="cancelled"))
        else:
            died = to_wire(RuntimeDied("The runtime ended unexpectedly"))
            self._foreground(Foreground(self.session_id, "idle", stop_reason="error", error=died))
        self._ended.set()

    def _start(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run beside the pumps; after the end there is nothing left to run for."""
        if self._tasks is not None and not self._ended.is_set():
            self._tasks.start_soon(self._logged, function, *args)

    async def _logged(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        # Nobody waits for these; the runtime's own report of what happened follows in its events.
        try:
            await function(*args)
        except Exception as error:  # noqa: BLE001
            self._fault("work beside the session", error)
