"""What a wire type says beyond Python's type syntax, as ``Annotated`` metadata.

Plain data and functions: the types can be imported without paying for a validator. ``compiler`` gives them effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["Between", "Known", "NonEmpty", "Open", "Pick", "Replaces", "Rule", "unique"]

_Marker = TypeVar("_Marker")


class Known:
    """The values of an open enum that this protocol version names; any other string is legal too (RPC-5)."""

    __slots__ = ("values",)

    def __init__(self, *values: str) -> None:
        self.values: Final = values


class Between:
    """An integer or number from ``low`` to ``high``, both included."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float) -> None:
        self.low: Final = low
        self.high: Final = high


class NonEmpty:
    """A string or array with at least one character or item."""

    __slots__ = ()


class Rule:
    """A rule that a type cannot say. ``check`` gets a value of the right type and returns what is wrong, or ``None``.

    The text is a phrase that follows the field's name, such as ``must be an absolute path``. It never quotes the
    value.
    """

    __slots__ = ("check",)

    def __init__(self, check: Callable[[Any], str | None]) -> None:
        self.check: Final = check


class Replaces:
    """Like :class:`Rule`, but ``check`` gets whatever came, ``null`` included, and alone decides."""

    __slots__ = ("check",)

    def __init__(self, check: Callable[[Any], str | None]) -> None:
        self.check: Final = check


class Open:
    """A union told apart by the string in ``field``; its last member takes every tag that the others don't name.

    The other members name their tags as ``field: Literal[...]``, so a known tag with a malformed body fails in that
    body.
    """

    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field: Final = field


class Pick:
    """A union without a usable tag: ``choose`` returns the index of the member that the value must match."""

    __slots__ = ("choose",)

    def __init__(self, choose: Callable[[Any], int]) -> None:
        self.choose: Final = choose


def unique(field: str) -> Rule:
    """Each object of an array has another value in ``field``."""

    def check(items: list[dict[str, Any]]) -> str | None:
        values = [item[field] for item in items if field in item]
        return None if len(set(values)) == len(values) else f"must have a different {field} in each item"

    return Rule(check)
