"""Checks a wire value against its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, overload

from pydantic_core import ValidationError

from sayagain.errors import InvalidParams
from sayagain.protocol.v2.compiler import INTERNAL, RULE, validator
from sayagain.protocol.v2.plain_json import find_fault

__all__ = ["validate"]

_T = TypeVar("_T")

_KEY_FIELD: Final = "idempotencyKey"

_MAX_FIELD: Final = 200
"""Longest path reported, in characters: parts of it are the sender's own field names."""

_REASONS: Final = {
    "missing": "is required",
    "string_type": "must be a string",
    "string_unicode": "has a lone surrogate, which UTF-8 cannot encode",
    "string_too_short": "must not be empty",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "too_short": "must not be empty",
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
}


@overload
def validate(wire_type: type[_T], value: object) -> _T: ...
@overload
def validate(wire_type: object, value: object) -> Any: ...
def validate(wire_type: object, value: object) -> Any:
    """``value`` itself, unchanged, when it is a valid ``wire_type``: a TypedDict or an alias of this package.

    Nothing is coerced, so ``"1"`` is no integer and ``true`` no number. Unknown fields are left alone. Raises
    :class:`~sayagain.errors.InvalidParams` for the first fault found, a malformed ``idempotencyKey`` before any other
    (KEY-1: it is never overlooked); its ``reason`` never quotes the value.
    """
    try:
        validator(wire_type).validate_python(value, strict=True)
    except ValidationError as error:
        raise _fault(error) from None
    found = find_fault(value)
    if found is not None:
        path, reason = found
        raise InvalidParams(_field(path), reason)
    return value


def _fault(error: ValidationError) -> InvalidParams:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    fault = next((fault for fault in faults if fault["loc"] == (_KEY_FIELD,)), faults[0])
    kind = fault["type"]
    reason = fault["msg"] if kind == RULE else _REASONS.get(kind, "is not valid")
    return InvalidParams(_field(fault["loc"]), reason)


def _field(path: Sequence[str | int]) -> str:
    parts = [str(part) for part in path if not (isinstance(part, str) and part.startswith(INTERNAL))]
    if parts and parts[-1] == "[key]":
        parts.pop()
    dotted = ".".join(parts).encode("utf-8", "backslashreplace").decode()
    return dotted if len(dotted) <= _MAX_FIELD else dotted[:_MAX_FIELD] + "…"
