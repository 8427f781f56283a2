"""Text for a terminal, in a style. No I/O."""

from __future__ import annotations

from typing import TypeAlias

from sayagain.legible import clean, excerpt, plain

__all__ = ["Span", "clean", "excerpt", "plain"]

Span: TypeAlias = tuple[str, str]
"""A style (a name that :mod:`sayagain.chat.terminal` has a colour for, or ``""``), and a text in it."""
