"""The message under way: given to the CLI, looked for in the transcript, taken back, never left unanswered.

One at most is under way. Its row in the transcript is the only proof; the CLI's mirror of it usually comes first, and
:class:`~sayagain_claude.landing.Landing` looks when it does not.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

import anyio

from sayagain import fault_points
from sayagain.errors import RuntimeDied, RuntimeFault, RuntimeTimeout, SayagainError
from sayagain.fault_points import Point
from sayagain.runtime.events import RuntimeEvent
from sayagain.runtime.tasks import SessionTasks
from sayagain.runtime.word import Word
from sayagain_claude.host import Host
from sayagain_claude.landing import Landing
from sayagain_claude.process import ClaudeProcess
from sayagain_claude.turns import Turns

__all__ = ["Submission", "encoded"]

logger = logging.getLogger(__name__)


class Owner(Protocol):
    """Who can become the session's owner: the session."""

    async def own(self) -> None:
        """See the seam."""
        ...


class Submission:
    """``patience`` are the seconds that the CLI may take for an answer."""

    def __init__(
        self,
        owner: Owner,
        *,
        host: Host,
        turns: Turns,
        landing: Landing,
        word: Word,
        tasks: SessionTasks,
        emit: Callable[[Iterable[RuntimeEvent]], Awaitable[None]],
        patience: float,
    ) -> None:
        self._owner = owner
        self._host = host
        self._turns = turns
        self._landing = landing
        self._word = word
        self._tasks = tasks
        self._emit = emit
        self._patience = patience
        self.not_stored: RuntimeFault | None = None
        """Why the process is ended: it runs what it could not store."""
        # Ids that this process would swallow silently (measured): taken back, or refused by a hook.
        self._burnt: set[str] = set()
        # The message that was begun and is not written yet; ``None`` again when it is taken back.
        self._unwritten: str | None = None
        # Messages that a withdraw waits for, until they are taken back.
        self._withdrawing: set[str] = set()

    async def begin(self, message_id: str, ready: Callable[[], Awaitable[ClaudeProcess]]) -> ClaudeProcess | None:
        """The process that the message is to be written to, ``ready`` for it; ``None`` when it was taken back.

        Raises what keeps it from being stored: then nothing of it was written.
        """
        self._unwritten = message_id
        try:
            await self._owner.own()
            await self._landing.check_room()
            async with self._host.lifecycle:
                if message_id in self._burnt:
                    await self._host.end()
                process = await ready()
                if self._unwritten != message_id:
                    return None
                self._turns.submit(message_id)
                process.awaited = encoded(message_id)
                return process
        finally:
            self._unwritten = None

    async def write(self, process: ClaudeProcess, message_id: str, frame: Mapping[str, Any]) -> None:
        """Write what :meth:`begin` made room for. What becomes of it is told by the session's events alone."""
        fault_points.passing(Point.CLAUDE_WRITING)
        try:
            await process.send(frame, patience=self._patience)
        except RuntimeTimeout:
            await process.kill()
        except RuntimeDied:
            pass
        fault_points.passing(Point.CLAUDE_WRITTEN)
        self._tasks.start_soon(self._watch, process, message_id)

    def process_started(self) -> None:
        """A new process knows nothing of what earlier ones would swallow."""
        self._burnt.clear()

    async def landed_or_ended(self, process: ClaudeProcess) -> bool:
        """Claude Code runs a message of which no row was seen: unless there is one, it must not go on (KEY-3)."""
        message_id = self._turns.submitted
        assert message_id is not None
        cause: RuntimeFault | None
        try:
            if self._turns.own_turn:
                found = await self._landing.has(message_id)
            else:
                found = await self._landing.gets(message_id, alive=lambda: self._host.process is not None)
            cause = None if found else await self._landing.what_prevents()
        except RuntimeFault as error:
            cause = error
        if cause is None:
            await self._emit(self._turns.stored())
            return True
        self.not_stored = cause
        await process.kill()
        logger.warning("Claude Code was ended before it ran what it had not stored: %s", cause)
        return False

    async def settle(self, *, rejecting: bool, error: SayagainError | None = None) -> None:
        """Look for the submitted message in the transcript itself; ``rejecting`` when it comes no more."""
        message_id = self._turns.submitted
        if message_id is None:
            return
        if rejecting and not self._turns.blocked:
            found = await self._landing.gets(message_id, alive=lambda: self._host.process is not None)
        else:
            found = await self._landing.has(message_id)
        if found:
            await self._emit(self._turns.stored())
        elif rejecting and message_id in self._withdrawing:
            # Its end may come before the answer, which then says that there is nothing left to cancel (measured).
            self._take_back(message_id)
        elif rejecting:
            self._burnt.add(message_id)
            await self._emit(self._turns.refused(error))

    async def _watch(self, process: ClaudeProcess, message_id: str) -> None:
        """A submitted prompt is never left unanswered: a CLI that says nothing and answers nothing is ended."""
        while self._turns.submitted == message_id and self._host.process is process:
            with anyio.move_on_after(self._patience):
                await self._word.wait()
                continue
            await self._prove_alive(process)

    async def _prove_alive(self, process: ClaudeProcess) -> None:
        try:
            await process.request({"subtype": "get_status"}, patience=self._patience)
        except RuntimeTimeout:
            logger.warning("Claude Code no longer answers; it is ended")
            await process.kill()
        except RuntimeFault as error:
            # A refusal is an answer too.
            logger.debug("asked whether it lives: %s", error)

    async def withdraw(self, message_id: str) -> bool:
        """See the seam: before it is written, or out of the CLI's own queue."""
        if self._unwritten == message_id:
            # The process may still be starting.
            self._unwritten = None
            return True
        process = self._host.process
        if process is None or self._turns.submitted != message_id:
            return False
        self._withdrawing.add(message_id)
        try:
            answer = await process.request(
                {"subtype": "cancel_async_message", "message_uuid": message_id}, patience=self._patience
            )
            if answer.get("cancelled") is True and self._turns.submitted == message_id:
                self._take_back(message_id)
        except RuntimeFault as error:
            logger.debug("a withdrawal was not answered: %s", error)
        withdrawn = message_id not in self._withdrawing
        self._withdrawing.discard(message_id)
        return withdrawn

    def _take_back(self, message_id: str) -> None:
        self._burnt.add(message_id)
        self._turns.take_back(message_id)
        self._withdrawing.discard(message_id)


def encoded(message_id: str | None) -> bytes | None:
    """An id as it stands in a transcript."""
    return None if message_id is None else message_id.encode("utf-8", "surrogatepass")
