"""Commands that run on in the background: ending them, and noticing that they ended without a word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain.protocol.loose import as_list, as_mapping, as_text
from sayagain_codex.app_server import AppServer, Use
from sayagain_codex.translate.item_ids import item_id_for
from sayagain_codex.translate.live import LiveTranslator, OpenTerminal

__all__ = ["Terminals"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


class Terminals:
    """The commands of one session and its subagents. ``tell`` takes a notification that Codex left out."""

    def __init__(self, translator: LiveTranslator, tell: Callable[[str, Params], None]) -> None:
        self._translator = translator
        self._tell = tell
        self._ending: set[tuple[str, str]] = set()

    def started_in(self, turns: AbstractSet[tuple[str, str]]) -> Sequence[OpenTerminal]:
        """Those that run and were started in these turns, named by thread and turn."""
        return [t for t in self._translator.terminals() if (t.thread_id, t.turn_id) in turns]

    def told(self, method: str, params: Params) -> Params:
        """A command that was ended here is told as failed; it was cancelled."""
        item = as_mapping(params.get("item"))
        process = (as_text(params.get("threadId")), as_text(item.get("processId")))
        if method != "item/completed" or process not in self._ending:
            return params
        self._ending.discard(process)
        return {**params, "item": {**item, "status": "interrupted"}} if item.get("status") == "failed" else params

    async def cancel(self, server: AppServer | None, terminal_id: str) -> None:
        """End the command of a terminal; raises :class:`~sayagain.errors.InvalidParams` for ``terminalId`` (TC-4).

        Codex lists it no longer at once, and tells its end when the process is gone.
        """
        terminal = next((t for t in self._translator.terminals() if t.terminal_id == terminal_id), None)
        if terminal is None or server is None or not terminal.process_id:
            raise InvalidParams("terminalId", "no terminal under this id can be cancelled")
        process = (terminal.thread_id, terminal.process_id)
        if process in self._ending:
            return
        self._ending.add(process)
        ended = False
        try:
            answer = await Use(server).request(
                "thread/backgroundTerminals/terminate",
                {"threadId": terminal.thread_id, "processId": terminal.process_id},
            )
            ended = bool(answer.get("terminated"))
        finally:
            if not ended:
                self._ending.discard(process)
        if not ended:
            raise InvalidParams("terminalId", "the command has ended")

    async def check(self, server: AppServer, thread_id: str, status: str) -> None:
        """Tell the end of each command that its turn took with it, without a word (measured), with this ``status``."""
        left = [t for t in self._translator.terminals() if t.thread_id == thread_id and t.background]
        self._ending.intersection_update((t.thread_id, t.process_id) for t in self._translator.terminals())
        if not left:
            return
        try:
            answer = await Use(server).request("thread/backgroundTerminals/list", {"threadId": thread_id})
        except RuntimeFault as error:
            logger.debug("the background terminals could not be listed: %s", error)
            return
        if "data" not in answer:
            return
        listed = [as_mapping(entry) for entry in as_list(answer["data"])]
        for terminal in left:
            if (thread_id, terminal.process_id) in self._ending or any(_is(entry, terminal) for entry in listed):
                continue
            item = self._translator.item_of({"threadId": thread_id, "itemId": terminal.terminal_id})
            # Some may have ended in order meanwhile. What is left has the id for clients: no turn is to be added.
            if item is not None:
                self._tell("item/completed", {"threadId": thread_id, "turnId": "", "item": {**item, "status": status}})


def _is(entry: Params, terminal: OpenTerminal) -> bool:
    """Whether what Codex lists is this command; of one that had to be allowed no process is known (measured)."""
    if terminal.process_id:
        return entry.get("processId") == terminal.process_id
    return item_id_for(as_text(entry.get("itemId")), terminal.turn_id) == terminal.terminal_id
