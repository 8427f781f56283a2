"""Commands that run on in the background: ending them, and noticing that they ended without a word."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain_codex.app_server import AppServer
from sayagain_codex.translate.live import LiveTranslator

__all__ = ["cancel_terminal", "ended_silently"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


async def cancel_terminal(server: AppServer | None, translator: LiveTranslator, terminal_id: str) -> None:
    """End the command of a terminal; raises :class:`~sayagain.errors.InvalidParams` for ``terminalId`` (TC-4)."""
    terminal = next((t for t in translator.terminals() if t.terminal_id == terminal_id), None)
    if terminal is None or server is None or not terminal.process_id:
        raise InvalidParams("terminalId", "no terminal under this id can be cancelled")
    answer = await server.request(
        "thread/backgroundTerminals/terminate", {"threadId": terminal.thread_id, "processId": terminal.process_id}
    )
    if not answer.get("terminated"):
        raise InvalidParams("terminalId", "the command has ended")


async def ended_silently(server: AppServer, translator: LiveTranslator, thread_id: str) -> Sequence[Params]:
    """The params of an ``item/completed`` for each command that its turn took with it, without a word (measured)."""
    left = [t.terminal_id for t in translator.terminals() if t.thread_id == thread_id and t.background]
    if not left:
        return ()
    try:
        answer = await server.request("thread/backgroundTerminals/list", {"threadId": thread_id})
    except RuntimeFault as error:
        logger.debug("the background terminals could not be listed: %s", error)
        return ()
    running = {entry["itemId"] for entry in answer["data"]}
    ended: list[Params] = []
    for item_id in left:
        item = translator.item_of({"threadId": thread_id, "itemId": item_id})
        # Some may have ended in order meanwhile.
        if item is not None and item_id not in running:
            ended.append({"threadId": thread_id, "turnId": "", "item": {**item, "status": "failed"}})
    return ended
