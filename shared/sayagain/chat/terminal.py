"""Standard input and output, on a terminal and in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final, TextIO

from sayagain.chat.spans import Span
from sayagain.transports import ClosedTransport
from sayagain.transports.stdio import StdioTransport

__all__ = ["Keyboard", "Screen"]

_STYLES: Final = {
    "user": "36",
    "thought": "2",
    "tool": "33",
    "note": "2",
    "error": "31",
    "title": "1",
    "ask": "1;35",
    "added": "32",
    "removed": "31",
}

_MAX_LINE: Final = 1 << 20
"""Bytes of a line of input; what is longer is a mistake, not a prompt."""


class Screen:
    """Writes to ``stream``; in colours when that is a terminal and ``NO_COLOR`` is not set."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.is_terminal = self._stream.isatty()
        self._coloured = self.is_terminal and not os.environ.get("NO_COLOR")
        self._at_start = True
        self._prompted = False

    def show(self, spans: Iterable[Span]) -> None:
        """Print spans."""
        for style, text in spans:
            if not text:
                continue
            if self._prompted:
                self._prompted = False
                # The line on which the user may be typing is left alone.
                self._stream.write("\r\x1b[K")
            self._stream.write(f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._coloured and style else text)
            self._at_start = text.endswith("\n")
        self._stream.flush()

    def line(self, text: str, style: str = "") -> None:
        """Print a line of its own."""
        self.show([("", "" if self._at_start else "\n"), (style, text), ("", "\n")])

    def ready(self) -> None:
        """Invite input, where somebody sees it."""
        if self.is_terminal and not self._prompted:
            self.show([("", "" if self._at_start else "\n"), ("user", "> ")])
            self._prompted = True
            self._at_start = True

    def typed(self) -> None:
        """The user has ended a line."""
        self._prompted = False
        self._at_start = True


class Keyboard:
    """Standard input, line by line. The terminal's own line editing is used."""

    def __init__(self) -> None:
        self.is_terminal = os.isatty(0)
        self._transport = StdioTransport(os.dup(0), os.dup(1))
        self._rest = b""
        self._ended = False

    async def line(self) -> str | None:
        """The next line without its end; ``None`` at the end of the input."""
        while b"\n" not in self._rest and not self._ended:
            try:
                data = await self._transport.receive()
            except ClosedTransport:
                data = b""
            self._ended = not data or len(self._rest) > _MAX_LINE
            self._rest += data
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    async def aclose(self) -> None:
        """Let go of standard input."""
        await self._transport.aclose()
