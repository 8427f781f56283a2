"""Messages whose own row was torn, known by the rows that follow: their ``parentUuid`` still names them.

Ids of keyed prompts are UUIDs of version 5 and those that the CLI makes are of version 4 (measured), so an id of
version 5 that a readable row has for its parent, and no readable row for its own, is that of a prompt that was stored
and answered. Sent again, it would run again (anthropics/claude-code#52387). A prompt that was cut with nothing behind
it may never have been whole: it stays unknown.
"""

from __future__ import annotations

import re
from typing import Final

from sayagain_claude.transcripts.row import Row

__all__ = ["MAY_NAME", "NAMED", "PARENT", "LostMessages", "is_derived"]

MAY_NAME: Final = rb'"(?:parentUuid|uuid)"[ \t\r\n]*:[ \t\r\n]*"[^"\\]{14}5'
"""In the bytes of every row that counts here, as the CLI writes them: no letter of a name or an id is escaped."""

_ID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_DERIVED: Final = re.compile(_ID)

PARENT: Final = b'"parentUuid"'

NAMED: Final = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*"(' + _ID.encode() + rb')"')
"""Behind :data:`PARENT`: every id that a row may name as its parent, in the bytes; some may stand elsewhere."""


def is_derived(message_id: str) -> bool:
    """Whether an id may be that of a keyed prompt."""
    return message_id[14:15] == "5" and _DERIVED.fullmatch(message_id) is not None


class LostMessages:
    """Fed with the readable rows of a transcript, in any order."""

    def __init__(self) -> None:
        self._own: set[str] = set()
        self._named: dict[str, None] = {}

    def row(self, row: Row) -> None:
        """One more row."""
        own, parent = row.get("uuid"), row.get("parentUuid")
        if isinstance(own, str) and is_derived(own):
            self._own.add(own)
        if isinstance(parent, str) and parent not in self._own and is_derived(parent):
            self._named[parent] = None

    def ids(self) -> list[str]:
        """Those that are named and not there, in the order in which they were named."""
        return [message_id for message_id in self._named if message_id not in self._own]
