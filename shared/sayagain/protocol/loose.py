"""Reading JSON in which a model, an old file or another version may have put anything anywhere.

What is missing or of the wrong type reads as empty, and what these functions return can always be written to the wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

__all__ = [
    "Block",
    "Json",
    "as_count",
    "as_list",
    "as_mapping",
    "as_text",
    "clean",
    "clean_text",
    "is_absolute",
]

Json: TypeAlias = Mapping[str, Any]
Block: TypeAlias = dict[str, Any]

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:[\\/]|\\\\[^\\]")


def as_mapping(value: object) -> Json:
    """``value`` when it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - a cast is a call


def as_list(value: object) -> Sequence[object]:
    """``value`` when it is a list, else an empty one."""
    return value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType] - as above


def as_text(value: object) -> str:
    """``value`` when it is a string (made encodable), else an empty one."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else clean_text(value)  # seldom not: a call less for each field


def as_count(value: object) -> int | None:
    """``value`` when it is an integer that a signed 64-bit field can hold, else ``None``."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def is_absolute(path: str) -> bool:
    """Whether a path can go on the wire: absolute (POSIX, Windows drive or UNC), and one that a file can have."""
    return _ABSOLUTE.match(path) is not None and "\0" not in path


def clean_text(text: str) -> str:
    """``text`` that UTF-8 can encode: halves of surrogate pairs are joined, lone ones replaced."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(value: Any) -> Any:
    """A JSON value in which every string can be encoded and every number has a JSON form."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        return {clean_text(str(key)): clean(item) for key, item in items.items()}
    if isinstance(value, list):
        return [clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not -1e308 < value < 1e308:
        return None  # NaN and the infinities have no JSON form
    return value
