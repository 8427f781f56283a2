"""Bytes in, lines out: the incremental splitter under every newline-delimited stream.

Time is linear in the bytes fed, whatever their chunking, and memory is bounded by one line: a line that is too long is
reported once and skipped up to its newline, after which the stream goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["HEAD", "MAX_LINE", "LineSplitter", "TooLong"]

# A prompt may carry images and whole files as base64, so the limit has to be far above chat-sized messages; a peer that
# never ends its line must not fill the memory. 32 MiB is one image of the largest size that model services take
# (about 5 MB each, base64 adds a third) several times over. Precedents: asyncio's StreamReader stops at 64 KiB, which
# agents keep hitting and raising; websockets at 1 MiB per message; the ACP Python SDK raises its reader to 50 MiB.
MAX_LINE: Final = 32 * 1024 * 1024
"""Longest line in bytes, its newline not counted (design section 4)."""

HEAD: Final = 512
"""Bytes kept of a line that is too long."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands where a line longer than ``limit`` bytes was; the rest of that line is skipped.

    It is reported as soon as the limit is passed, since the line may never end. ``seen`` counts the bytes of the line
    up to then: it is above ``limit``, by how much depends on the chunking.
    """

    seen: int
    limit: int
    head: bytes = field(default=b"", compare=False)
    """The first bytes of the line, :data:`HEAD` at most: enough to tell which request it was."""


class LineSplitter:
    r"""Splits a byte stream at ``\n``; a ``\r`` before it is dropped, blank lines are ignored."""

    __slots__ = ("_buffer", "_limit", "_skipping")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that ``data`` completes, without their line ends, in order."""
        found: list[bytes | TooLong] = []
        *ended, rest = data.split(b"\n")
        if ended:
            self._grow(ended[0], found)
            self._end_line(found)
            for line in ended[1:]:
                if len(line) > self._limit:
                    found.append(TooLong(len(line), self._limit, line[:HEAD]))
                else:
                    _keep(line, found)
        if rest:
            self._grow(rest, found)
        return found

    def eof(self) -> list[bytes | TooLong]:
        """What is left when the stream ends without a newline: one line, or none."""
        found: list[bytes | TooLong] = []
        self._end_line(found)
        return found

    def _grow(self, part: bytes, found: list[bytes | TooLong]) -> None:
        if self._skipping:
            return
        seen = len(self._buffer) + len(part)
        if seen > self._limit:
            head = bytes(self._buffer[:HEAD])
            found.append(TooLong(seen, self._limit, head + part[: HEAD - len(head)]))
            # A new one instead of clear(): the memory of the long line goes back at once.
            self._buffer = bytearray()
            self._skipping = True
        else:
            self._buffer += part

    def _end_line(self, found: list[bytes | TooLong]) -> None:
        if self._skipping:
            self._skipping = False
        elif self._buffer:
            line = bytes(self._buffer)
            self._buffer = bytearray()
            _keep(line, found)


def _keep(line: bytes, found: list[bytes | TooLong]) -> None:
    if line.endswith(b"\r"):
        line = line[:-1]
    # Only what JSON calls whitespace is blank; a form feed is left for the parser to refuse.
    if line.strip(b" \t\r"):
        found.append(line)
