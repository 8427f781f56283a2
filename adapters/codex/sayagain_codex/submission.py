"""The message that is under way: how it gets to Codex, and how it becomes known whether it is stored.

It is written as soon as Codex takes it, and then followed until it is proved, refused, or looked up where it would be
stored. The rules of a turn are in :mod:`sayagain_codex.turns`; this asks Codex, and waits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import anyio

from sayagain import fault_points
from sayagain.errors import (
    HistoryUnreadable,
    PromptRefused,
    RuntimeDied,
    RuntimeFault,
    SayagainError,
    SessionNotFound,
)
from sayagain.fault_points import Point
from sayagain.runtime.events import RuntimeEvent
from sayagain.runtime.tasks import SessionTasks
from sayagain.runtime.word import Word
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServer, AppServerError, Leaving, Use
from sayagain_codex.commands import Command
from sayagain_codex.host import RETRY, Host
from sayagain_codex.outbox import Outbox
from sayagain_codex.patience import Patience
from sayagain_codex.stopping import Stopping
from sayagain_codex.threads import last_items_have, revert_ghost, thread_fault
from sayagain_codex.titles import Titles
from sayagain_codex.turns import Lost, Turns

__all__ = ["Submission"]

logger = logging.getLogger(__name__)

SELDOM: Final = 0.5
"""Seconds between two looks for what does not get stored."""

Params = Mapping[str, Any]


@dataclass(slots=True)
class _Message:
    """What is submitted: a prompt's ``parts``, or a local command."""

    id: str
    command: Command | None
    parts: Sequence[Params]
    reloaded: bool = False
    """Whether the thread was loaded again for it."""


class Submission:
    """One message at a time, as the seam has it."""

    def __init__(
        self,
        session_id: str,
        *,
        host: Host,
        account: Account,
        turns: Turns,
        stopping: Stopping,
        outbox: Outbox,
        titles: Titles,
        patience: Patience,
        tasks: SessionTasks,
        word: Word,
    ) -> None:
        self._session_id = session_id
        self._host = host
        self._account = account
        self._turns = turns
        self._stopping = stopping
        self._outbox = outbox
        self._titles = titles
        self._patience = patience
        self._tasks = tasks
        self._word = word
        # The message that is got ready or submitted while it is not written; ``None`` when it is, or was taken back.
        self._unwritten: _Message | None = None
        self._message: _Message | None = None
        self._live_only: set[str] = set()
        # Counts deaths and submissions: what is looked up after a death says nothing of what came later.
        self._count = 0

    @property
    def live_only(self) -> frozenset[str]:
        """Messages that are stored nowhere: local commands (KEY-9)."""
        return frozenset(self._live_only)

    @property
    def given(self) -> bool:
        """Whether Codex may have a message of which nobody knows yet whether it is stored."""
        return self._turns.submitted is not None and not self._waits(self._turns.submitted)

    def _waits(self, message_id: str) -> bool:
        return self._unwritten is not None and self._unwritten.id == message_id

    # To Codex.

    async def submit(self, message_id: str, command: Command | None, parts: Sequence[Params]) -> None:
        """Have everything that it needs ready, then write it, unless it was taken back before that.

        Returns before it is written. Raises what makes it impossible to write it.
        """
        message = _Message(message_id, command, parts)
        self._unwritten = message
        with ExitStack() as held:
            try:
                use = await self._ready(message, held)
            except HistoryUnreadable as error:
                if self._unwritten is message:
                    self._unwritten = None
                    self._turns.submit(message_id)
                    # The core reads the history again before it takes a retry.
                    self._refuse(error)
                return
            except BaseException:
                if self._unwritten is message:
                    self._unwritten = None
                raise
            if use is not None:
                self._count += 1
                self._message = message
                self._turns.submit(message_id)
                self._tasks.start_soon(self._begin, message, use, held.pop_all())

    async def _ready(self, message: _Message, held: ExitStack) -> Use | None:
        """Everything that has to be so before the message is written; ``None`` when it was taken back meanwhile.

        From then on the process is used, until ``held`` is left: none takes its place before the message is written.
        """
        while self._unwritten is message:
            held.close()
            await self._host.own()
            server = self._host.server
            if server is None or await self._account.require(server) is not server:
                continue
            while self._turns.active and self._host.server is server and self._unwritten is message:
                # Codex began to work by itself: the message would become a steer.
                await self._word.wait()
            try:
                use = held.enter_context(server.use())
            except Leaving:
                continue
            if not await self._host.record.is_kept():
                held.close()
                await self._host.unload(server)
                raise HistoryUnreadable("The session's file was removed or replaced while Codex had it open")
            await self._host.record.check_storage(message.parts)
            await self._check_ghost(use)
            if self._host.server is server and not self._turns.active and self._unwritten is message:
                return use
        return None

    async def _check_ghost(self, use: Use) -> None:
        if self._turns.suspect and self._host.server is use.server:
            try:
                reverted = None if self._host.legacy else await revert_ghost(use, self._session_id)
                if reverted is not None:
                    logger.info("the ghost of a prompt was reverted")
                    self._host.moved(reverted)
            except AppServerError as error:
                raise thread_fault(error, self._session_id) from error
            self._turns.checked()

    async def _begin(self, message: _Message, use: Use, held: ExitStack) -> None:
        """Write the submitted message, and see that it is answered."""
        with held:
            if self._unwritten is message and await self._write(message, use):
                return
        await self._insist(message, use.server)

    async def _insist(self, message: _Message, server: AppServer) -> None:
        """Write the submitted message as soon as Codex takes it."""
        while self._unwritten is message and self._host.server is server:
            if await self._write(message, server):
                return
            with anyio.move_on_after(RETRY):
                await self._word.wait()

    async def _write(self, message: _Message, client: AppServer | Use) -> bool:
        """Write the submitted message; false when it was not, and may be later."""
        self._unwritten = None
        try:
            if message.command is None:
                params = {"threadId": self._session_id, "clientUserMessageId": message.id, "input": message.parts}
                fault_points.passing(Point.CODEX_WRITING)
                await client.request("turn/start", params, on_answer=self._taken)
                self._titles.prompted(message.parts)
            else:
                command, params = message.command, {"threadId": self._session_id, **message.command.params}
                await client.request(command.method, params, on_answer=lambda it: self._done(message.id, command, it))
        except AppServerError as error:
            return self._turns.submitted != message.id or self._not_taken(message, error)
        except Leaving:
            # The process that follows is given it.
            self._unwritten = message
            return False
        except RuntimeFault as error:
            # The process is gone, and whatever follows that says what became of the message.
            logger.debug("a prompt was not answered: %s", error)
        return True

    def _not_taken(self, message: _Message, error: AppServerError) -> bool:
        """Nothing was written; true when nothing will be by who tries it now."""
        if "ActiveTurnNotSteerable" in error.message:
            # A compaction or a review runs. The message can be taken back meanwhile.
            self._unwritten = message
            return False
        if isinstance(thread_fault(error, self._session_id), SessionNotFound) and not message.reloaded:
            # Somebody else has closed the thread, or it was not stored: loading it says which.
            message.reloaded = True
            self._unwritten = message
            self._host.gone()
            self._count += 1
            self._tasks.start_soon(self._settle, message.id, "Codex closed the thread", self._count)
            return True
        self._refuse(PromptRefused(error.message))
        return True

    def _refuse(self, error: SayagainError) -> None:
        self._outbox.emit_all(self._turns.refused(error))
        self._word.wake()

    def _taken(self, result: Params) -> None:
        self.tell(self._turns.taken(result))
        self._word.wake()
        fault_points.passing(Point.CODEX_TAKEN)

    def _done(self, message_id: str, command: Command, result: Params) -> None:
        """A local command was accepted; called by the reader, before anything of its turn."""
        self._live_only.add(message_id)
        self._outbox.emit_all(self._turns.local(result, works=command.works))
        self._word.wake()

    def withdraw(self, message_id: str) -> bool:
        """Take it back before it is written.

        What Codex has been given it stores within milliseconds, unless a hook holds it: then it is refused.
        """
        if not self._waits(message_id):
            if self._turns.submitted == message_id:
                self._tasks.start_soon(self._stopping.unless_stored, message_id)
            return False
        self._unwritten = self._message = None
        self._turns.take_back(message_id)
        self._word.wake()
        return True

    # What became of it.

    def tell(self, events: Iterable[RuntimeEvent | Lost]) -> None:
        """Report what turns say; a message that vanished is given again."""
        for event in events:
            if isinstance(event, Lost) and self._host.server is not None and self._message is not None:
                self._unwritten = self._message
                self._tasks.start_soon(self._insist, self._message, self._host.server)
            elif not isinstance(event, Lost):
                self._outbox.emit(event)

    def item_completed(self) -> None:
        """The item that bears the message's id is complete; in a legacy thread the projection alone is proof."""
        if self._host.legacy:
            self._turns.confirming()
            self._tasks.start_soon(self._confirm, str(self._turns.submitted))
        else:
            self._proved()

    def _proved(self) -> None:
        self._host.record.written()
        self._outbox.emit_all(self._turns.stored())
        self._word.wake()
        if self._turns.cancelling:
            self._tasks.start_soon(self._stopping.at_once)

    async def _confirm(self, message_id: str) -> None:
        server = self._host.server
        if server is None:
            return  # what follows the end of its process looks again
        try:
            found = await self._appears(server, message_id)
            doubt = "Codex said that it stored the message, and does not list it"
        except RuntimeFault as error:
            found, doubt = False, f"Nobody can tell whether the message was stored: {error}"
        if self._turns.submitted != message_id or self._host.server is not server:
            return
        if found:
            self._proved()
        else:
            # The core reads the history again before it answers.
            self._refuse(HistoryUnreadable(doubt))

    async def _appears(self, server: AppServer, message_id: str) -> bool:
        """A busy Codex writes the item of a legacy thread later than it tells it, even after its turn (measured)."""
        pause, last = RETRY, math.inf
        while self._turns.submitted == message_id and self._host.server is server:
            if await last_items_have(server, self._session_id, message_id):
                return True
            if self._turns.judged:
                last = min(last, anyio.current_time() + self._patience.finish)
            if anyio.current_time() >= last:
                break
            await anyio.sleep(pause)
            pause = min(2 * pause, SELDOM)
        return False

    def died(self, detail: str) -> None:
        """The process is gone. What became of the message is found out at once."""
        self._count += 1
        self._turns.gone()
        if self._turns.submitted is None:
            self._outbox.emit_all(self._turns.died(RuntimeDied(detail)))
        else:
            self._tasks.start_soon(self._settle, self._turns.submitted, detail, self._count)

    async def _settle(self, message_id: str, detail: str, count: int) -> None:
        """After a death: load the thread again, which alone tells what was stored (measured), and look.

        What was never written is given to the process that follows.
        """
        if self._unwritten is not None:
            self._outbox.emit_all(self._turns.died(RuntimeDied(detail)))
            await self._give_again(self._unwritten, count)
            return
        found = False
        fault: SayagainError = RuntimeDied(f"{detail} before the message was stored")
        try:
            await self._host.reload()
            found = await last_items_have(self._host, self._session_id, message_id)
        except SessionNotFound:
            pass
        except SayagainError as error:
            # The core reads the history again before it takes a retry.
            fault = HistoryUnreadable(f"{detail}, and nobody can tell whether the message was stored: {error}")
        if self._count != count:
            return
        if self._turns.submitted == message_id and found:
            self._outbox.emit(*self._turns.began(), *self._turns.stored())
        elif self._turns.submitted == message_id:
            self._outbox.emit_all(self._turns.refused(fault))
        self._outbox.emit_all(self._turns.died(RuntimeDied(detail)))
        self._word.wake()

    async def _give_again(self, message: _Message, count: int) -> None:
        with ExitStack() as held:
            try:
                use = await self._ready(message, held)
            except SayagainError as error:
                if self._count == count and self._turns.submitted == message.id:
                    self._refuse(error)
                return
            if use is None or self._count != count:
                return
            still_held = held.pop_all()
        await self._begin(message, use, still_held)
