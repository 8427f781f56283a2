"""Text of others, fit to be shown: without what a terminal would obey, and not longer than the room. No I/O."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["clean", "excerpt", "plain"]

_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, movements of the cursor, titles: what programs write for a terminal of their own."""


def clean(text: str) -> str:
    """Without what a terminal would obey: an agent's text is not trusted to move the cursor, or to reverse a line."""
    return "".join(map(_shown, text))


def plain(text: str) -> str:
    """The output of a program without its colours; what else a terminal would obey is replaced."""
    return clean(_SEQUENCE.sub("", text))


def excerpt(text: str, longest: int = 60) -> str:
    """The text on one line, cut to a length."""
    line = " ".join(clean(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t":
        return char
    # Parts of line ends, and of emoji.
    return "" if char in "\r\u200d" else "\N{REPLACEMENT CHARACTER}"
