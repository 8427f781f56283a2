"""Names the rules that a test shows. ``tests/rules`` holds the list of all rules and checks it both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["rule"]

F = TypeVar("F", bound=Callable[..., object])


def rule(*ids: str) -> Callable[[F], F]:
    """Found by reading the source: write the ids as literals."""

    def mark(test: F) -> F:
        test.__dict__["rules"] = ids
        return test

    return mark
