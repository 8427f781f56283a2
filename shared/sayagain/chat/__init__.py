"""``sayagain chat``: a small terminal client, to try an agent by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from sayagain.chat.app import chat
from sayagain.chat.options import ChatOptions

__all__ = ["ChatOptions", "run_chat"]


def run_chat(
    command: Sequence[str], *, name: str, cwd: Path, resume: str | None = None, outbox: Path | None = None
) -> int:
    """Chat with the agent that ``command`` starts, until the input ends; the exit status.

    ``resume`` is a session's id, or ``""`` for a list to choose from. ``outbox`` keeps unconfirmed prompts; by default
    a file in the state folder for each ``name``.
    """
    return anyio.run(chat, ChatOptions(tuple(command), name, cwd, resume, outbox))
