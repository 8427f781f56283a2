"""The ids of all stored user messages, and the check for one: fast enough to run before every first prompt.

Both read the same blocks, cut them into the same lines and parse these with the same function as
:func:`~sayagain_claude.transcripts.reader.read_rows`, so they find ids in exactly the same damaged places. They only
leave out lines that cannot hold one. That rests on how any JSON writer writes (a quote within a string is escaped)
and on how the CLI's does: it escapes no letter of a name, and writes no name twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sayagain_claude.transcripts.lines import blocks
from sayagain_claude.transcripts.lost import MAY_NAME, NAMED, PARENT, LostMessages
from sayagain_claude.transcripts.reader import Damaged, parse_line
from sayagain_claude.transcripts.row import row_message_ids

__all__ = ["contains", "message_ids"]

_MAY_HOLD_ID: Final = re.compile(rb'"(?:user|source_uuid|submitUuid)"')
_MAY_NAME: Final = re.compile(MAY_NAME)

# How the CLI begins the row of a tool result, the most frequent and largest of a user's rows: it has no id. Behind
# this, another record on the same line would bring one of the names above again.
_TOOL_RESULT: Final = re.compile(
    rb'\{"parentUuid":(?:null|"[^"\\]*"),"isSidechain":(?:true|false),(?:"[A-Za-z]+":"[^"\\]*",)*'
    rb'"type":"user","message":\{"role":"user","content":\[\{(?:"tool_use_id":"[^"\\]*",)?"type":"tool_result",'
)


def message_ids(path: Path, *, end: int | None = None) -> set[str]:
    """Every id under which a stored user message must be recognised, as
    :func:`~sayagain_claude.transcripts.row.row_message_ids` and
    :class:`~sayagain_claude.transcripts.lost.LostMessages` say. Raises as ``read_rows`` does.
    """
    found: set[str] = set()
    named: set[bytes] = set()
    for block in blocks(path, end):
        _add_named(block.data, named)
        for line in _lines(block.data, _MAY_HOLD_ID, _TOOL_RESULT):
            for item in parse_line(line):
                if not isinstance(item, Damaged):
                    found.update(row_message_ids(item))
    if any(name.decode() not in found for name in named):
        found.update(_lost(path, end))
    return found


def _add_named(data: bytes, named: set[bytes]) -> None:
    # A look at the version's place in what stands behind each name is faster than any search for the pattern. Written
    # with white space, and without a parent, it stands elsewhere.
    for value in data.split(PARENT)[1:]:
        if (value[16:17] == b"5" or not value.startswith(b':"')) and (name := NAMED.match(value)):
            named.add(name[1])


def _lost(path: Path, end: int | None) -> list[str]:
    lost = LostMessages()
    for block in blocks(path, end):
        for line in _lines(block.data, _MAY_NAME):
            for item in parse_line(line):
                if not isinstance(item, Damaged):
                    lost.row(item)
    return lost.ids()


def contains(path: Path, message_id: str) -> bool:
    """Whether a user message with this id is stored; raises as ``read_rows`` does.

    Looks for the id's bytes and parses only lines that hold them, so a text that quotes the id does not count.
    """
    if not message_id:
        return False
    pattern = re.compile(re.escape(message_id.encode("utf-8", errors="replace")))
    lost = LostMessages()
    for block in blocks(path):
        for line in _lines(block.data, pattern):
            for item in parse_line(line):
                if not isinstance(item, Damaged):
                    if message_id in row_message_ids(item):
                        return True
                    lost.row(item)
    return message_id in lost.ids()


def _lines(data: bytes, pattern: re.Pattern[bytes], besides: re.Pattern[bytes] | None = None) -> Iterator[bytes]:
    """The lines in which ``pattern`` is found, besides a beginning of the line that matches ``besides``."""
    position = 0
    while hit := pattern.search(data, position):
        start = data.rfind(b"\n", 0, hit.start()) + 1
        position = data.find(b"\n", hit.end())
        if position < 0:
            position = len(data)
        known = besides.match(data, start, position) if besides is not None else None
        if known is None or pattern.search(data, known.end(), position):
            yield data[start:position]
