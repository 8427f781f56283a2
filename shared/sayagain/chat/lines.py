"""The user's lines: whom each is for, and what a user picks by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio

from sayagain.chat.asking import Asking
from sayagain.chat.spans import clean
from sayagain.chat.terminal import Keyboard, Screen

__all__ = ["Lines"]


class Lines:
    """On a terminal, run :meth:`listen` in a task: what stands there may be asked for at any time. A pipe is read when
    a line is wanted.
    """

    def __init__(self, keyboard: Keyboard, screen: Screen, asking: Asking) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._asking = asking
        self._typed, self._others = anyio.create_memory_object_stream[str](math.inf)

    async def listen(self) -> None:
        """A line is for the question that stands there, else for who waits for :meth:`next`."""
        async with self._typed:
            while (line := await self._keyboard.line()) is not None:
                self._screen.typed()
                if self._asking.is_open:
                    self._asking.take(line)
                else:
                    self._typed.send_nowait(line)

    async def next(self) -> str | None:
        """The next line that answers no question; ``None`` at the end of the input."""
        if not self._keyboard.is_terminal:
            return await self._keyboard.line()
        try:
            return await self._others.receive()
        except anyio.EndOfStream:
            return None

    async def choose(self, rows: Sequence[str]) -> int | None:
        """The index of the row that the user picks; ``None`` for an empty line, and at the end of the input.

        A terminal's user is asked again after what is no choice; in a pipe the next line was meant for something else.
        """
        for number, row in enumerate(rows, 1):
            self._screen.line(f"  {number}. {clean(row)}")
        while True:
            self._screen.line("Which one? (number, or Enter for none)", "ask")
            text = ((await self.next()) or "").strip()
            if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= len(rows):
                return int(text[:9]) - 1
            if not text or not self._keyboard.is_terminal:
                return None
