"""Rows of a transcript, in file order and in bounded memory, with everything recovered that a crash left readable.

What a kill, a full disk or a power cut leaves behind, and what becomes of it (all seen in public reports):

* a row cut in the middle, the next one appended to the same line: :class:`Damaged` for the first, the second is read;
* runs of NUL bytes, alone, before a row or at the end: one :class:`Damaged` a run, rows around it are read;
* a last line without its newline: a row when it is complete, :class:`Damaged` when it is not, and nothing at all when
  it is just being written;
* bytes that are no UTF-8: a row with replacement characters where that is JSON, else :class:`Damaged`;
* a byte order mark, CRLF, raw control characters in strings, lone surrogate escapes: read as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, cast

from pydantic_core import from_json

from sayagain_claude.transcripts.lines import LINE_LIMIT, blocks
from sayagain_claude.transcripts.row import Row

__all__ = ["Damaged", "Row", "parse_line", "read_rows"]


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes of the file that are no row: ``size`` of them from ``offset`` (of their line when that is all we know).

    ``reason`` is a short phrase, and quotes nothing of the file.
    """

    offset: int
    size: int
    reason: str


_NO_OBJECT: Final = "JSON that is no object, or an empty one"
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n"
_NUL_RUN: Final = re.compile(rb"\0[\0 \t\r\n]*")
_DECODER: Final = json.JSONDecoder(strict=False)

# A record that was glued behind a torn one begins somewhere in the line. The CLI writes no spaces, and a quote inside
# of a JSON string is escaped, so these two bytes are either a real object or the end of a string that ends in "{".
_OBJECT_START: Final = '{"'

# Looking for such a record may parse the line again and again. This many times the line's own length is enough for
# everything but input made to be slow; what is not found within it counts as damaged.
_EFFORT: Final = 16
_LEAST_EFFORT: Final = 16
_DEEP_EFFORT: Final = 1 << 16

_INSIDE: Final = (",", "}", "]")


def read_rows(path: Path, *, end: int | None = None) -> Generator[Row | Damaged, None, None]:
    """The rows of a transcript up to ``end`` bytes (default: its size when it is opened).

    Holds one block or the longest line (up to :data:`~sayagain_claude.transcripts.lines.LINE_LIMIT` bytes; a longer
    one is one :class:`Damaged`). Blank lines are nothing. Raises as
    :func:`~sayagain_claude.transcripts.lines.blocks` does, also after rows were yielded: whoever consumes must not
    take what came before an error for the whole.
    """
    for block in blocks(path, end):
        if block.skipped:
            yield Damaged(block.offset, block.skipped, f"a line of more than {LINE_LIMIT >> 20} MiB")
            continue
        offset = block.offset
        for line in block.data.split(b"\n"):
            for item in parse_line(line, offset) if line else ():
                if not (block.growing and isinstance(item, Damaged)):
                    yield item
            offset += len(line) + 1


def parse_line(line: bytes, offset: int = 0) -> list[Row | Damaged]:
    """What one line of a transcript holds, in order: mostly one row. ``offset`` is that of the line in its file."""
    try:
        value: object = from_json(line, cache_strings="keys")
    except ValueError:
        return _parse_damaged(line, offset)
    return [_row(value) or Damaged(offset, len(line), _NO_OBJECT)]


def _parse_damaged(line: bytes, offset: int) -> list[Row | Damaged]:
    items: list[Row | Damaged] = []
    start = 0
    for run in _NUL_RUN.finditer(line):
        items += _parse_segment(line[start : run.start()], offset + start)
        items.append(Damaged(offset + run.start(), run.end() - run.start(), "NUL bytes"))
        start = run.end()
    return items + _parse_segment(line[start:], offset + start)


def _parse_segment(segment: bytes, offset: int) -> list[Row | Damaged]:
    text = segment.strip(_BLANK).removeprefix(_BOM).strip(_BLANK).decode("utf-8", errors="replace")
    items: list[Row | Damaged] = []
    position = 0
    while position < len(text):
        decoded = _decode(text, position)
        if decoded.whole:
            items.append(_row(decoded.value) or Damaged(offset, len(segment), _NO_OBJECT))
            position = decoded.end
            while text[position : position + 1].isspace():
                position += 1
            continue
        items.append(Damaged(offset, len(segment), "JSON that is cut, broken or nested too deeply"))
        glued = _find_glued(text, position + 1)
        if glued is None:
            break
        position = glued
    return items


class _Decoded(NamedTuple):
    """A JSON value and where it ends; when it is not whole, about how far the parser came."""

    value: object
    end: int
    whole: bool


def _decode(text: str, position: int) -> _Decoded:
    try:
        return _Decoded(*_DECODER.raw_decode(text, position), whole=True)
    except json.JSONDecodeError as error:
        # A string without its end is reported where it begins, and was searched to the end of the text.
        return _Decoded(None, len(text) if error.msg.startswith("Unterminated") else error.pos, whole=False)
    except ValueError:  # an integer of too many digits
        return _Decoded(None, len(text), whole=False)
    except RecursionError:
        return _Decoded(None, position + _DEEP_EFFORT, whole=False)


def _find_glued(text: str, position: int) -> int | None:
    """Where a whole record begins behind a torn one; ``None`` when there is none.

    Any object within the torn record looks whole too: only one with the fields of a record, and with nothing behind
    it that says that it lies in another value, is taken. What a tool or a prompt quotes is in a string, where it
    cannot be mistaken.
    """
    last = text.rfind('"sessionId"')
    effort = _EFFORT * len(text)
    while 0 <= position < last and effort > 0:
        position = text.find(_OBJECT_START, position, last)
        if position < 0:
            break
        decoded = _decode(text, position)
        if decoded.whole and _is_record(decoded.value) and text[decoded.end : decoded.end + 1] not in _INSIDE:
            return position
        effort -= max(decoded.end - position, _LEAST_EFFORT)
        position = decoded.end if decoded.whole else position + 1
    return None


def _is_record(value: object) -> bool:
    row = _row(value) or {}
    return isinstance(row.get("type"), str) and isinstance(row.get("sessionId"), str)


def _row(value: object) -> Row | None:
    """``value`` when it is an object with anything in it."""
    return cast("Row", value) if type(value) is dict and value else None
