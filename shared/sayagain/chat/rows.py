"""Sessions and prompts as rows to choose from. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from sayagain.chat.spans import excerpt
from sayagain.client import StoredPrompt

__all__ = ["prompt_row", "session_row"]

ID: Final = 12
"""Characters of an id that is shown whole."""


def session_row(row: Mapping[str, Any]) -> str:
    """A stored session: its title, when it was used last (local time), and of its id what tells it apart."""
    title, when, session_id = (str(row.get(name) or "") for name in ("title", "updatedAt", "sessionId"))
    with suppress(ValueError, OverflowError):
        when = datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M")
    # Ids that are made from the time begin alike.
    short = session_id if len(session_id) <= ID else f"{session_id[:4]}…{session_id[-4:]}"
    return "  ".join(filter(None, (excerpt(title) or "untitled", excerpt(when, 16), short)))


def prompt_row(row: StoredPrompt) -> str:
    """A prompt's text on one line."""
    return excerpt(" ".join(str(block.get("text", block.get("type"))) for block in row.content))
