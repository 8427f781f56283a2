"""Commands that run on in the background: ending them, and noticing that they ended without a word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain.protocol.loose import as_list, as_mapping
from sayagain_codex.app_server import AppServer, Use
from sayagain_codex.translate.live import LiveTranslator, OpenTerminal

__all__ = ["Terminals"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


class Terminals:
    """The commands of one session and its subagents. ``tell`` takes a notification that Codex left out."""

    def __init__(self, translator: LiveTranslator, tell: Callable[[str, Params], None]) -> None:
        self._translator = translator
        self._tell = tell
        self._ending: set[str] = set()

    def started_in(self, turns: AbstractSet[tuple[str, str]]) -> Sequence[OpenTerminal]:
        """Those that run and were started in these turns, named by thread and turn."""
        return [t for t in self._translator.terminals() if (t.thread_id, t.turn_id) in turns]

    def told(self, method: str, params: Params) -> Params:
        """A command that was ended here is told as failed; it was cancelled."""
        item = as_mapping(params.get("item"))
        if method != "item/completed" or item.get("id") not in self._ending:
            return params
        self._ending.discard(item["id"])
        return {**params, "item": {**item, "status": "interrupted"}} if item.get("status") == "failed" else params

    async def cancel(self, server: AppServer | None, terminal_id: str) -> None:
        """End the command of a terminal; raises :class:`~sayagain.errors.InvalidParams` for ``terminalId`` (TC-4).

        Codex lists it no longer at once, and tells its end when the process is gone.
        """
        terminal = next((t for t in self._translator.terminals() if t.terminal_id == terminal_id), None)
        if terminal is None or server is None or not terminal.process_id:
            raise InvalidParams("terminalId", "no terminal under this id can be cancelled")
        if terminal_id in self._ending:
            return
        self._ending.add(terminal_id)
        ended = False
        try:
            answer = await Use(server).request(
                "thread/backgroundTerminals/terminate",
                {"threadId": terminal.thread_id, "processId": terminal.process_id},
            )
            ended = bool(answer.get("terminated"))
        finally:
            if not ended:
                self._ending.discard(terminal_id)
        if not ended:
            raise InvalidParams("terminalId", "the command has ended")

    async def check(self, server: AppServer, thread_id: str, status: str) -> None:
        """Tell the end of each command that its turn took with it, without a word (measured), with this ``status``."""
        left = [t.terminal_id for t in self._translator.terminals() if t.thread_id == thread_id and t.background]
        self._ending.intersection_update(t.terminal_id for t in self._translator.terminals())
        if not left:
            return
        try:
            answer = await Use(server).request("thread/backgroundTerminals/list", {"threadId": thread_id})
        except RuntimeFault as error:
            logger.debug("the background terminals could not be listed: %s", error)
            return
        if "data" not in answer:
            return
        running = {as_mapping(entry).get("itemId") for entry in as_list(answer["data"])}
        for item_id in left:
            item = self._translator.item_of({"threadId": thread_id, "itemId": item_id})
            # Some may have ended in order meanwhile.
            if item is not None and item_id not in running and item_id not in self._ending:
                self._tell("item/completed", {"threadId": thread_id, "turnId": "", "item": {**item, "status": status}})
