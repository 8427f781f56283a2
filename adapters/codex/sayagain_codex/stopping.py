"""How the work of a session is stopped: the turn of its own thread, what its subagents do, and their commands.

Codex lets the command of an interrupted turn run on as a background terminal, and tells the end of the turn before
anything could be done about it (measured). Nothing of cancelled work may come after its end (CAN-2), so that end is
held back until the commands are gone: a subagent's until its own are, the root's until all are.

Whether anything runs that could be stopped is said by the answer to an interrupt (measured)::

    {}                                             it is stopped, and turn/completed follows
    no active turn to interrupt                    nothing runs; or not yet, in the first milliseconds of a turn
    expected active turn id ... but found <id>     another turn runs than we know of
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import anyio

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain.runtime.tasks import SessionTasks
from sayagain.runtime.word import Word
from sayagain_codex.app_server import AppServer, AppServerError, Use
from sayagain_codex.children import Children
from sayagain_codex.host import RETRY, Host
from sayagain_codex.patience import Patience
from sayagain_codex.terminals import Terminals
from sayagain_codex.turns import Turns

__all__ = ["Stopping"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]
Turnset = AbstractSet[tuple[str, str]]

_NOTHING: Final = "no active turn"
_ANOTHER: Final = re.compile(r"expected active turn id .* but found (\S+)")


class Stopping:
    """Interrupts what works. Codex takes no interrupt at any time, so each may take a while.

    ``tell`` takes a notification that Codex left out, ``deliver`` the end of a turn that was held back.
    """

    def __init__(
        self,
        session_id: str,
        *,
        host: Host,
        turns: Turns,
        children: Children,
        terminals: Terminals,
        patience: Patience,
        tasks: SessionTasks,
        word: Word,
        tell: Callable[[str, Params], None],
        deliver: Callable[[Params], None],
    ) -> None:
        self._session_id = session_id
        self._host = host
        self._turns = turns
        self._children = children
        self._terminals = terminals
        self._patience = patience
        self._tasks = tasks
        self._word = word
        self._tell = tell
        self._deliver = deliver
        # Ends of cancelled turns (turn/completed), by thread, of which commands are still being ended.
        self._ends: dict[str, Params] = {}

    async def interrupt(self) -> None:
        """Stop the turn. A message that is being stored is stored first: an interrupt in between leaves a ghost.

        While the root is idle, its subagents are stopped; what runs in the background is none of their work (CAN-1).
        """
        self._turns.interrupt()
        if self._turns.submitted is None and not self._turns.active:
            await self._subagents()
        elif self._turns.submitted is None:
            await self.at_once()
        else:
            self._tasks.start_soon(self._later, self._turns.submitted)

    async def _later(self, message_id: str) -> None:
        if await self._held(message_id):
            await self.at_once()

    async def _held(self, message_id: str) -> bool:
        """Whether Codex does not store the message in the time that this takes it: a hook may hold it."""
        with anyio.move_on_after(self._patience.finish):
            while self._turns.submitted == message_id:
                await self._word.wait()
        return self._turns.submitted == message_id

    async def unless_stored(self, message_id: str) -> None:
        """Stop the turn of a message that a hook holds: it is refused then. One that is stored is left alone."""
        if await self._held(message_id) and not self._turns.steered:
            self._turns.interrupt()
            await self.at_once()

    async def at_once(self) -> None:
        """Stop the turn now.

        In its first milliseconds it cannot be interrupted (measured): it is tried again. When Codex says for longer
        that nothing runs, then nothing does, and the end that it did not tell is told.
        """
        server, last = self._host.server, anyio.current_time() + self._patience.finish
        while server is not None and self._host.server is server and self._is_to_stop():
            turn_id = self._turns.awaited
            try:
                # The id of no turn is answered as one that is over.
                params = {"threadId": self._session_id, "turnId": turn_id or self._session_id}
                await Use(server).request("turn/interrupt", params)
            except AppServerError as error:
                logger.debug("an interrupt was refused: %s", error)
                if another := _ANOTHER.match(error.message):
                    self._turns.turn_id = another[1]
                elif _NOTHING in error.message and anyio.current_time() >= last:
                    logger.warning("Codex left out the end of a turn")
                    turn: Params = {"id": turn_id or "", "status": "interrupted", "items": []}
                    self._tell("turn/completed", {"threadId": self._session_id, "turn": turn})
                    return
            except RuntimeFault:
                return
            else:
                self._tasks.start_soon(self._insist, server)
                await self._children.interrupt(server)
                return
            with anyio.move_on_after(RETRY):
                await self._word.wait()

    async def _insist(self, server: AppServer) -> None:
        with anyio.move_on_after(self._patience.finish):
            while self._is_to_stop():
                await self._word.wait()
        if self._host.server is server and self._is_to_stop():
            await self.at_once()

    def _is_to_stop(self) -> bool:
        works = self._turns.active or self._turns.submitted is not None
        return works and self._turns.cancelling and self._session_id not in self._ends

    async def _subagents(self) -> None:
        server, turns = self._host.server, self._children.turns()
        if server is not None:
            await self._children.interrupt(server)
            await self._end(server, lambda: turns)

    # What an interrupt leaves.

    def holds(self, params: Params) -> bool:
        """Whether the end of a turn is told later: it is said to be over, was cancelled, and parts of it still work."""
        if params["turn"]["status"] == "completed" or not self._works(self._of(params)):
            return False
        self._ends[params["threadId"]] = params
        self._tasks.start_soon(self._end_rest, params)
        return True

    @property
    def holding(self) -> bool:
        """Whether the end of a turn is held back."""
        return bool(self._ends)

    def release(self, *, all_of_them: bool = False) -> None:
        """Tell the ends of which nothing works any more; the root's is the last."""
        for thread_id in sorted(self._ends, key=lambda thread_id: thread_id == self._session_id):
            if all_of_them or not self._works(self._of(self._ends[thread_id])):
                self._deliver(self._ends.pop(thread_id))

    def began(self, thread_id: str) -> None:
        """A turn began: what was held back of the turn before it comes first, and with the root's all of its work's."""
        if thread_id == self._session_id:
            self.release(all_of_them=True)
        elif thread_id in self._ends:
            self._deliver(self._ends.pop(thread_id))

    async def _end_rest(self, params: Params) -> None:
        """End what still works of the cancelled turn; waits until it is gone, shortly."""
        if self._host.server is not None:
            await self._end(self._host.server, lambda: self._of(params))
        if self._ends.get(params["threadId"]) is params:
            self.release(all_of_them=True)
            self._word.wake()

    def _of(self, params: Params) -> Turnset:
        """The turns whose parts end with this one, if it was cancelled: one of the root, or of a subagent."""
        turn = (params["threadId"], params["turn"]["id"])
        if params["threadId"] != self._session_id:
            return {turn} if self._children.stopped else set()
        return {turn, *self._children.of_work} if self._turns.cancelling else set()

    def _works(self, turns: Turnset) -> bool:
        return bool(self._terminals.started_in(turns)) or not turns.isdisjoint(self._children.turns())

    async def _end(self, server: AppServer, turns: Callable[[], Turnset]) -> None:
        """A command that has not begun yet, or is about to end, is not ended by the first try."""
        with anyio.move_on_after(self._patience.finish):
            while self._host.server is server and self._works(turns()):
                for terminal in self._terminals.started_in(turns()):
                    try:
                        await self._terminals.cancel(server, terminal.terminal_id)
                    except (InvalidParams, AppServerError) as error:
                        logger.debug("a command was not ended: %s", error)
                        await self._terminals.check(server, terminal.thread_id, "interrupted")
                    except RuntimeFault:
                        return
                with anyio.move_on_after(RETRY):
                    await self._word.wait()

    async def everything(self, works: Callable[[], bool]) -> bool:
        """Stop the turn and the subagents, until nothing ``works``; false when something does after a while."""
        server = self._host.server
        with anyio.move_on_after(self._patience.stop):
            await self.interrupt()
            if server is not None:
                await self._children.interrupt(server)
            while works():
                await self._word.wait()
            return True
        return False
