"""How the work of a session is stopped: the turn of its own thread, what its subagents do, and their commands.

Codex lets the command of an interrupted turn run on as a background terminal, and tells the end of the turn before
anything could be done about it (measured). Nothing of cancelled work may come after its end (CAN-2), so that end is
held back until the commands are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import anyio

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain.runtime.tasks import SessionTasks
from sayagain.runtime.word import Word
from sayagain_codex.app_server import AppServer, AppServerError
from sayagain_codex.children import Children
from sayagain_codex.host import RETRY, Host
from sayagain_codex.patience import Patience
from sayagain_codex.terminals import Terminals
from sayagain_codex.turns import Turns

__all__ = ["Stopping"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]
Turnset = AbstractSet[tuple[str, str]]


class Stopping:
    """Interrupts what works. Codex takes no interrupt at any time, so each may take a while."""

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
    ) -> None:
        self._session_id = session_id
        self._host = host
        self._turns = turns
        self._children = children
        self._terminals = terminals
        self._patience = patience
        self._tasks = tasks
        self._word = word

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
        """Stop the turn now. In its first milliseconds it cannot be interrupted (measured): it is tried again."""
        server = self._host.server
        while server is not None and self._host.server is server and self._turns.active and self._turns.cancelling:
            if self._turns.turn_id is not None:
                try:
                    await server.request(
                        "turn/interrupt", {"threadId": self._session_id, "turnId": self._turns.turn_id}
                    )
                except AppServerError as error:
                    logger.debug("an interrupt was refused: %s", error)
                except RuntimeFault:
                    return
                else:
                    await self._children.interrupt(server)
                    return
            with anyio.move_on_after(RETRY):
                await self._word.wait()

    async def _subagents(self) -> None:
        server, turns = self._host.server, self._children.turns()
        if server is not None:
            await self._children.interrupt(server)
            await self._end(server, lambda: turns)

    # What an interrupt leaves.

    def goes_on(self, turn: Params) -> bool:
        """Whether parts of the cancelled turn, which is said to be over, still work."""
        return self._turns.cancelling and turn["status"] != "completed" and self._works(self._of(turn))

    async def end_rest(self, turn: Params) -> None:
        """End what still works of the cancelled turn; waits until it is gone, shortly."""
        if self._host.server is not None:
            await self._end(self._host.server, lambda: self._of(turn))

    def _of(self, turn: Params) -> Turnset:
        return {(self._session_id, turn["id"]), *self._children.of_work}

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
                        await self._terminals.check(server, terminal.thread_id)
                    except RuntimeFault:
                        return
                with anyio.move_on_after(RETRY):
                    await self._word.wait()

    async def everything(self, works: Callable[[], bool]) -> None:
        """Stop the turn and the subagents, until nothing ``works``; an app-server that does not stop is ended."""
        server = self._host.server
        with anyio.move_on_after(self._patience.stop):
            await self.interrupt()
            if server is not None:
                await self._children.interrupt(server)
            while works():
                await self._word.wait()
            return
        if server is not None:
            logger.warning("Codex does not stop; it is ended")
            await server.kill()
