"""A session's prompts on their way: from the requests to the table, to the runtime, and back as answers.

One task gives the runtime one prompt at a time and reads the history when a message waits for that; everything else is
a plain call. What becomes of a message is decided by the table alone; here is when to ask whom.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

import anyio

from sayagain import fault_points
from sayagain.agent.foreground import ForegroundMachine
from sayagain.agent.prompts import Answer, Prompt, PromptTable
from sayagain.connection import IncomingRequest
from sayagain.errors import (
    HistoryUnreadable,
    RequestCancelled,
    RuntimeDied,
    RuntimeFault,
    SayagainError,
    SessionInUse,
)
from sayagain.fault_points import Point
from sayagain.runtime.events import Foreground, Rejected
from sayagain.runtime.seam import Runtime, RuntimeSession

__all__ = ["PromptPump"]

logger = logging.getLogger(__name__)

WITHDRAW_PATIENCE: Final = 2.0
"""Seconds for a runtime to give back the submitted message of a session that is closed. A runtime that hangs is ended
then, and its store tells what became of the message."""

READ_PAUSES: Final = (0.1, 0.4)
"""Seconds before the store is read again for a message in doubt. What kept it from being read may be over: the same
disturbance often ends the runtime and the read, and nobody else can tell what became of the message."""

LAST_LOOK: Final = 5.0
"""Seconds for the store to tell, at a session's end, what became of messages in doubt. An error of its own after that:
a disk that hangs must not keep a session from ending."""


class PromptPump:
    """``start`` runs a coroutine function beside the session; ``changes`` is held while an option is changed, which is
    waited for; ``fresh`` says that nothing is stored yet."""

    def __init__(
        self,
        runtime: Runtime,
        backend: RuntimeSession,
        foreground: ForegroundMachine,
        start: Callable[..., None],
        changes: anyio.Lock,
        *,
        fresh: bool,
    ) -> None:
        self._changes = changes
        self.table: PromptTable[IncomingRequest] = PromptTable(known=() if fresh else None)
        self.given = 0
        """How many prompts were given to the runtime."""
        self._runtime = runtime
        self._backend = backend
        self._foreground = foreground
        self._start = start
        self._wake = anyio.Event()
        self._closing = False

    # Requests.

    def take(
        self, request: IncomingRequest, message_id: str, content: Sequence[Mapping[str, Any]], *, keyed: bool
    ) -> None:
        """Take a prompt request; its answer comes now or later (KEY-3). A plain call: the reservation is made here."""
        request.on_cancel = lambda: self._cancel_prompt(request)
        self._answer(self.table.arrive(request, message_id, content, keyed=keyed))
        fault_points.passing(Point.HELD if self.table.busy else Point.RESERVED)
        self._wake.set()

    def _cancel_prompt(self, request: IncomingRequest) -> None:
        answers, submitted = self.table.cancel(request)
        self._answer(answers)
        if submitted is not None:
            self._start(self._withdraw, submitted)

    def cancel(self) -> None:
        """``session/cancel``: all that is not inserted, and the foreground work (CAN-1)."""
        answers, submitted = self.table.cancel_all("the session's work was cancelled")
        self._answer(answers)
        self._start(self._interrupt, submitted)

    async def _withdraw(self, message_id: str) -> bool:
        fault_points.passing(Point.WITHDRAWING)
        if not await self._backend.withdraw(message_id):
            return False
        fault_points.passing(Point.WITHDRAWN)
        self._answer(self.table.withdrawn(message_id))
        self._wake.set()
        return True

    async def _interrupt(self, submitted: str | None) -> None:
        # The runtime may work on something else than the message that it gave back.
        if submitted is not None and await self._withdraw(submitted) and not self._foreground.active:
            return
        if submitted is not None or self.table.busy or self._foreground.active or self._foreground.subagents:
            await self._backend.interrupt()

    # The task.

    async def run(self) -> None:
        """Give the runtime one prompt after the other."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            if self.table.needs_history and not self._closing:
                await self._read_ids()
            while (prompt := self.table.next_held) is not None and not self._closing:
                try:
                    # While this takes its time, a prompt is held still and withdrawn without asking anybody.
                    await self._backend.own()
                    async with self._changes:
                        pass
                except Exception as error:  # noqa: BLE001 - whatever it is, the prompt is answered
                    self._answer(self.table.refused(prompt.message_id, _fault("a prompt", error)))
                    continue
                fault_points.passing(Point.OWNED)
                if self._closing or (prompt := self.table.submit_next()) is None:
                    break
                await self._submit(prompt)

    async def _submit(self, prompt: Prompt[IncomingRequest]) -> None:
        self.given += 1
        fault_points.passing(Point.SUBMITTING)
        try:
            await self._backend.submit(prompt.message_id, prompt.content)
            fault_points.passing(Point.SUBMITTED)
        except SayagainError as error:
            self._answer(self.table.refused(prompt.message_id, error))
            self.table.work_ended()
        except Exception as error:  # noqa: BLE001 - whatever it is, the prompt is answered
            # A fault that nobody foresaw: it may have come after the message went out.
            self.table.doubt(prompt.message_id, _fault("a prompt", error))
            self.table.work_ended()
            self._wake.set()

    async def _read_ids(self) -> None:
        """Beside a replay that may be under way: that one goes as fast as its client reads, and answers don't wait."""
        reading = self.table.reading
        fault_points.passing(Point.IDS_WANTED)
        try:
            in_use = await self._own()
            ids = await self._stored()
            fault_points.passing(Point.IDS_READ)
        except Exception as error:  # noqa: BLE001 - a read error is an error to the client, never an empty set
            self._answer(self.table.history_failed(_fault("reading the history", error)))
            return
        # Only what is read as the owner proves that an id is absent.
        self._answer(self.table.history_failed(in_use, ids) if in_use else self.table.learn(ids, reading))

    async def _stored(self) -> Set[str]:
        """The ids of all stored messages. While something is in doubt, an unreadable store is read again."""
        for pause in READ_PAUSES:
            try:
                return await self._runtime.message_ids(self._backend.session_id)
            except HistoryUnreadable:
                if not self.table.in_doubt:
                    raise
            await anyio.sleep(pause)
        return await self._runtime.message_ids(self._backend.session_id)

    async def _own(self) -> SessionInUse | None:
        try:
            await self._backend.own()
        except SessionInUse as error:
            return error
        return None

    def learn(self, ids: set[str], reading: int) -> None:
        """A replay read the whole history as the owner; ``reading`` is the table's from before it began."""
        if not self.table.history_known:
            self._answer(self.table.learn(ids, reading))
            self._wake.set()

    def saw(self, ids: set[str]) -> None:
        """A replay read the whole history, and somebody else owns the session."""
        self._answer(self.table.saw(ids))

    # What the runtime reports.

    def inserted(self, message_id: str) -> None:
        """The runtime stored a message."""
        self._answer(self.table.stored(message_id))

    def rejected(self, event: Rejected) -> None:
        """The runtime did not store a message, or could not tell."""
        if isinstance(event.error, HistoryUnreadable):
            self.table.doubt(event.message_id, RuntimeDied("The runtime ended before the message was stored"))
        else:
            self._answer(self.table.refused(event.message_id, event.error))
        self._wake.set()

    def foreground(self, event: Foreground) -> None:
        """The state of the session's foreground work."""
        if event.state == "idle":
            self.table.work_ended()
            self._wake.set()
        else:
            self.table.work_started()

    # The end.

    async def close(self) -> None:
        """Give no more prompts; take back what can be taken back. :meth:`end` follows."""
        self._closing = True
        answers, submitted = self.table.cancel_all("the session was closed")
        self._answer(answers)
        if submitted is not None:
            with anyio.move_on_after(WITHDRAW_PATIENCE):
                await self._withdraw(submitted)

    async def end(self) -> None:
        """The runtime is gone, so its store is final: it says what became of what nobody knows about."""
        error: SayagainError = RuntimeDied("The session ended before the message was stored")
        if self._closing:
            error = RequestCancelled("the session was closed")
        self._closing = True
        if (prompt := self.table.submitted) is not None:
            self.table.doubt(prompt.message_id, error)
        answers, _ = self.table.cancel_all("the session ended")
        self._answer(answers)
        if self.table.in_doubt:
            try:
                with anyio.move_on_after(LAST_LOOK):
                    self._answer(self.table.learn(await self._stored()))
            except Exception as failure:  # noqa: BLE001 - whatever it is, the prompts are answered
                self._answer(self.table.history_failed(_fault("reading the history", failure)))
            self._answer(self.table.history_failed(HistoryUnreadable()))

    def _answer(self, answers: Iterable[Answer[IncomingRequest]]) -> None:
        for answer in answers:
            if answer.error is None:
                answer.waiter.respond({"messageId": answer.message_id})
            else:
                answer.waiter.fail(answer.error)


def _fault(doing: str, error: Exception) -> SayagainError:
    if isinstance(error, SayagainError):
        return error
    logger.error("%s failed", doing, exc_info=error)
    return RuntimeFault(f"{doing} failed unexpectedly")
