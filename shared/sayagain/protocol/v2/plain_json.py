"""Whether a value is JSON that can be handled and passed on, in the parts that no type describes.

``_meta``, unknown fields and raw tool data are kept as they came. What cannot be written out again would otherwise
surface much later, in a place that cannot blame anybody: a lone surrogate has no UTF-8 form, a number beyond a double
no portable one, and deep nesting ends in a RecursionError.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, TypeAlias, cast

__all__ = ["MAX_DEPTH", "Path", "find_fault"]

MAX_DEPTH: Final = 128
"""Deepest nesting of ``params``: the limit of serde_json, so the protocol's reference implementation has it too."""

_MAX_BITS: Final = 1024
"""Integers with more bits exceed every double (RFC 8259 section 6 expects no more range from a receiver)."""

Path: TypeAlias = tuple[str | int, ...]
_Link: TypeAlias = "tuple[_Link, str | int] | None"


def find_fault(value: object) -> tuple[Path, str] | None:
    """Where ``value`` is no usable JSON, and why; ``None`` when it is. Neither recursive nor quadratic."""
    stack: list[tuple[object, _Link, int]] = [(value, None, 0)]
    while stack:
        current, link, depth = stack.pop()
        items: Any
        if isinstance(current, dict):
            items = cast("dict[object, object]", current).items()
        elif isinstance(current, list):
            items = enumerate(cast("list[object]", current))
        else:
            reason = _leaf_fault(current)
            if reason is None:
                continue
            return _path(link), reason
        if depth == MAX_DEPTH:
            return _path(link), f"must not be nested deeper than {MAX_DEPTH} levels"
        for key, item in items:
            if isinstance(key, str) and not key.isascii() and not _encodes(key):
                return _path(link), "has a field name with a lone surrogate"
            if isinstance(item, (dict, list)):
                stack.append((cast("object", item), (link, key), depth + 1))
            else:
                reason = _leaf_fault(item)
                if reason is not None:
                    return _path((link, key)), reason
    return None


def _leaf_fault(value: object) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() or _encodes(value) else "has a lone surrogate, which UTF-8 cannot encode"
    if isinstance(value, int):
        return None if value.bit_length() <= _MAX_BITS else "must not be larger than a double can be"
    if isinstance(value, float):
        return None if isfinite(value) else "must be a finite number"
    return None if value is None else "must be JSON"


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _path(link: _Link) -> Path:
    parts: list[str | int] = []
    while link is not None:
        link, key = link
        parts.append(key)
    return tuple(reversed(parts))
