"""How the work of a session is stopped: the turn of its own thread, and what its subagents do."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import anyio.abc

from sayagain.errors import RuntimeFault
from sayagain_codex.app_server import AppServerError
from sayagain_codex.children import Children
from sayagain_codex.host import RETRY, Host
from sayagain_codex.patience import Patience
from sayagain_codex.turns import Turns
from sayagain_codex.word import Word

__all__ = ["Stopping"]

logger = logging.getLogger(__name__)


class Stopping:
    """Interrupts what works. Codex takes no interrupt at any time, so each may take a while."""

    def __init__(
        self,
        session_id: str,
        *,
        host: Host,
        turns: Turns,
        children: Children,
        patience: Patience,
        tasks: anyio.abc.TaskGroup,
        word: Word,
    ) -> None:
        self._session_id = session_id
        self._host = host
        self._turns = turns
        self._children = children
        self._patience = patience
        self._tasks = tasks
        self._word = word

    async def interrupt(self) -> None:
        """Stop the turn. A message that is being stored is stored first: an interrupt in between leaves a ghost."""
        self._turns.interrupt()
        if self._turns.submitted is None:
            await self.at_once()
        else:
            self._tasks.start_soon(self._later, self._turns.submitted)

    async def _later(self, message_id: str) -> None:
        with anyio.move_on_after(self._patience.finish):
            while self._turns.submitted == message_id:
                await self._word.wait()
            return
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
