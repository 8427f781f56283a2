r"""JSON text, both ways, as one line of UTF-8.

Two libraries share the work, because neither does all of it well (measured on a 244-byte ``session/update``, CPython
3.11, pydantic_core 2.50):

* Decoding is the standard library's: 2.0 us against 1.0 us, but pydantic_core refuses a lone surrogate escape
  (``"\ud83d"``), which is legal JSON and which real prompts and transcripts hold. Clients send few lines.
* :func:`dumps` is the standard library's too: answers are few, and ``initialize`` must not wait for the 26 ms that
  importing pydantic_core takes.
* :func:`dumps_fast` is pydantic_core's, for updates: 0.7 us against 3.1 us. What it cannot encode falls back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

__all__ = ["MAX_DEPTH", "dumps", "dumps_fast", "loads"]

# The standard library's parser nests as deep as the interpreter's stack happens to allow (about 950 levels); what it
# lets through would break a later step that recurses from deeper in the stack. 200 is pydantic_core's own limit, and
# 20 times what ACP messages use.
MAX_DEPTH: Final = 200
"""Deepest nesting of arrays and objects that is accepted."""


def loads(line: bytes) -> Any:
    """The value in ``line``, which must be one JSON text in UTF-8.

    Raises :class:`ValueError`, with a text that quotes nothing of the line, for anything else: also for ``NaN``,
    ``Infinity`` and numbers beyond a double, integers of more than 4300 digits (the interpreter's limit, against
    quadratic time) and nesting beyond :data:`MAX_DEPTH`. Of equal keys the last wins. Lone surrogate escapes survive.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    # Nesting needs an opening bracket per level, so most lines are cleared by counting.
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _is_deep(value):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def dumps(value: Any) -> bytes:
    r"""``value`` as compact JSON in UTF-8, without any character that a reader may take for a line end.

    Lone surrogates leave as ``\udXXX`` escapes; floats that JSON cannot express as ``null``. Raises :class:`TypeError`
    for values that are no JSON, :class:`ValueError` for nesting that the interpreter cannot follow.
    """
    try:
        try:
            text = _encode(value)
        except ValueError:
            text = _encode(_finite(value))
    except RecursionError:
        raise ValueError("nested too deep to encode") from None
    # In JSON text a surrogate can only stand inside a string, and never after an unfinished escape: what the error
    # handler writes is just the JSON escape.
    return _one_line(text.encode("utf-8", "backslashreplace"))


def dumps_fast(value: Any) -> bytes:
    """Like :func:`dumps`, faster once pydantic_core is imported (by the first call).

    Floats may be spelled differently, and some types that are no JSON (bytes, sets, dates) pass as strings and arrays.
    """
    global _to_json
    if _to_json is None:
        from pydantic_core import to_json

        _to_json = to_json
    try:
        data = _to_json(value, inf_nan_mode="null", fallback=_plain)
    except (ValueError, RecursionError):
        return dumps(value)
    return _one_line(data)


_to_json: Callable[..., bytes] | None = None


def _one_line(data: bytes) -> bytes:
    # Readers that split decoded text (Python's str.splitlines) end a line at U+2028, U+2029 and U+0085 as well; a
    # client that does is served at the price of two searches, since JSON allows all three to be escaped.
    if data.isascii():  # most lines are: 0.4 us instead of 5.9 for one of 1.6 kB (measured)
        return data
    # One byte is found many times faster than two (measured: 30 ns against 1.3 us in such a line).
    if 0xE2 in data and b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if 0xC2 in data and b"\xc2\x85" in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data


def _plain(value: object) -> Any:
    """What stands in for a read-only mapping or another sequence."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return list(cast("Sequence[object]", value))
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _finite(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("Sequence[object]", value)]
    return value


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for parent in level:
            if isinstance(parent, dict):
                below += cast("dict[str, object]", parent).values()
            elif isinstance(parent, list):
                below += cast("list[object]", parent)
        level = [child for child in below if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is out of range")
    return number


_decode: Final[Callable[[str], Any]] = json.JSONDecoder(parse_constant=_constant, parse_float=_float).decode
_encode: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False, default=_plain
).encode
