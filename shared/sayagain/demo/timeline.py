"""The demo's output: one line for each thing that happened, when and who did it."""

from __future__ import annotations

import os
import sys
import time
from typing import Final, TextIO

__all__ = ["Timeline"]

_STYLES: Final = {"client": "36", "agent": "32", "crash": "1;31", "note": "2", "good": "1;32", "bad": "1;31"}


class Timeline:
    """Writes to ``stream``; in colours when that is a terminal and ``NO_COLOR`` is not set."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._coloured = self._stream.isatty() and not os.environ.get("NO_COLOR")
        self._start = time.monotonic()

    def title(self, text: str) -> None:
        """A line of its own, with an empty one behind it."""
        self._line(self._style("1", text))
        self._line("")

    def sent(self, text: str) -> None:
        """The client wrote something."""
        self._event("client", "client ->", text)

    def received(self, text: str) -> None:
        """The agent wrote something."""
        self._event("agent", "<- agent ", text)

    def crashed(self, text: str) -> None:
        """A process was killed."""
        self._event("crash", "  KILLED ", text)

    def note(self, text: str) -> None:
        """What happened outside the wire."""
        self._event("note", "         ", text)

    def verdict(self, text: str, *, good: bool) -> None:
        """The last line."""
        self._line("")
        self._line(self._style("good" if good else "bad", text))

    def _event(self, style: str, who: str, text: str) -> None:
        seconds = time.monotonic() - self._start
        self._line(f"{seconds:6.2f} s  {self._style(style, who)}  {text}")

    def _style(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES.get(style, style)}m{text}\x1b[0m" if self._coloured else text

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
