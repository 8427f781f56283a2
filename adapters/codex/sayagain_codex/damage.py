"""Rows of a thread's file that cannot be read, and what they say nevertheless.

The file is the record, and what Codex lists is made from it. When that is made anew, as by a Codex of another version,
a damaged row is skipped without a word (measured): its item is missing, and a message would be stored a second time
under its key. So the file is looked through as well::

    {"timestamp":"...","ordinal":8,"type":"event_msg","payload":{"type":"item_completed","thread_id":"...",
     "turn_id":"...","item":{"type":"UserMessage","id":"...","client_id":"...", ...}}}
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from sayagain.protocol.loose import Json, as_text
from sayagain_codex.rollouts import opened

__all__ = ["DamagedRow", "Gaps", "damaged_rows"]

MOST: Final = 1000
"""Rows that are told apart; what is damaged further on is counted as one more. More are damaged in no file that was
written as files of Codex are."""

_START: Final = b'{"timestamp":"'
"""How a row begins."""

_NO_ITEM: Final = re.compile(
    rb'\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"'
    rb'(?:(?!event_msg")\w+"|event_msg","payload":\{"type":"(?!item_completed"|user_message"|agent_\w+")\w+")'
)
"""A row of which nothing is listed: what the model saw, counts of tokens, the beginnings and ends of turns."""

_ID: Final = re.compile(rb'"(?:id|client_id)":"([^"\\]+)"')
_MESSAGE: Final = re.compile(rb'"turn_id":"(?P<turn>[^"\\]+)","item":\{[^{}]*?"client_id":"(?P<id>[^"\\]+)"')


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """What can be seen in a damaged row: the ids in it, and those of clients' messages that were stored.

    A message was stored when its turn went on, as other rows show. The row of one whose turn did not may have been torn
    as it was written: it was never whole, and nobody was told so.
    """

    ids: frozenset[str]
    message_ids: frozenset[str]


async def damaged_rows(rollout: Path, *, tail: bool = False, end: float = math.inf) -> Sequence[DamagedRow]:
    """The rows of a thread's file that held items, or may have held them, and cannot be read; of those before the byte
    ``end``.

    With ``tail`` a last row without an end is one of them: nobody is about to write the rest. A file that is not there
    has none, nor has one that Codex has packed; one that cannot be read is told by Codex.
    """
    if rollout.suffix != ".jsonl":
        return ()
    return await anyio.to_thread.run_sync(_look_through, rollout, tail, end, abandon_on_cancel=True)


def _look_through(rollout: Path, tail: bool, end: float) -> Sequence[DamagedRow]:
    reader = _Reader()
    read = 0
    with suppress(OSError), opened(rollout) as file:
        for line in file:
            read += len(line)
            if read > end:
                break
            if tail or line.endswith(b"\n"):
                reader.take(line)
    return reader.found()


class _Reader:
    """Takes the rows of a file, one after the other."""

    def __init__(self) -> None:
        # It refuses what Codex's parser refuses, lone surrogates too; imported late, since it takes 26 ms.
        from pydantic_core import from_json

        self._parse = from_json
        self._rows: list[tuple[frozenset[str], set[str]]] = []
        self._turns: dict[bytes, list[tuple[set[str], str]]] = {}

    def take(self, line: bytes) -> None:
        for turn_id in [turn_id for turn_id in self._turns if turn_id in line]:
            for stored, message_id in self._turns.pop(turn_id):
                stored.add(message_id)
        if len(self._rows) <= MOST and self._is_damaged(line):
            stored = set[str]()
            self._rows.append((frozenset(map(_text, _ID.findall(line))), stored))
            for message in _MESSAGE.finditer(line):
                if line.find(message["turn"], message.end()) >= 0:
                    stored.add(_text(message["id"]))
                else:
                    self._turns.setdefault(message["turn"], []).append((stored, _text(message["id"])))

    def found(self) -> Sequence[DamagedRow]:
        return [DamagedRow(ids, frozenset(stored)) for ids, stored in self._rows]

    def _is_damaged(self, line: bytes) -> bool:
        # Most rows hold no item, and need not be parsed.
        if line.isspace() or (_NO_ITEM.match(line) and line.count(_START) == 1):
            return False
        try:
            self._parse(line, allow_inf_nan=False, cache_strings=False)
        except ValueError:
            return True
        return False


def _text(found: bytes) -> str:
    return found.decode(errors="replace")


class Gaps:
    """Which damaged rows of a thread are missing in what Codex lists of it; it is told of each item."""

    def __init__(self, rows: Iterable[DamagedRow]) -> None:
        self._rows = list(rows)
        self._ids = {item_id for row in self._rows for item_id in row.ids}
        self._seen: set[str] = set()

    def saw(self, item: Json) -> None:
        """An item is listed, and so is all that stands in a row with its id."""
        if self._ids:
            self._seen |= self._ids & {as_text(item.get("id")), as_text(item.get("clientId"))}

    @property
    def count(self) -> int:
        """How many rows are missing."""
        return len(self._missing())

    @property
    def message_ids(self) -> frozenset[str]:
        """Messages that are missing, and were stored."""
        return frozenset(message_id for row in self._missing() for message_id in row.message_ids)

    def _missing(self) -> Sequence[DamagedRow]:
        return [row for row in self._rows if row.ids.isdisjoint(self._seen)]
