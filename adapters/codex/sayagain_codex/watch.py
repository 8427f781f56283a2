"""Whether Codex lives: while anything is under way, a process that says nothing for long is asked.

Silence alone means nothing, as a turn may wait for its model for minutes. A process that does not answer either is
ended, and every session learns what became of its work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from sayagain.errors import RuntimeFault
from sayagain_codex.app_server import AppServer

__all__ = ["watch"]

logger = logging.getLogger(__name__)


async def watch(server: AppServer, works: Callable[[], bool], patience: float) -> None:
    """Ask the process after each ``patience`` seconds without a word, while anything ``works``; until it is gone."""
    while not server.gone.is_set():
        pause = server.heard + patience - anyio.current_time()
        with anyio.move_on_after(pause if pause > 0 else patience):
            await server.gone.wait()
        if not server.gone.is_set() and works() and anyio.current_time() >= server.heard + patience:
            try:
                await server.request("thread/loaded/list", {})
            except RuntimeFault as error:
                logger.debug("asked whether it lives: %s", error)
