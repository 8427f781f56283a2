"""From a wire type to a pydantic-core validator.

pydantic's own TypeAdapter does the same for these types, but importing it and building its first schema takes about
100 ms (measured), and the first user-visible act of an agent is to answer ``initialize``. The wire needs few kinds of
types, so they are translated here, straight to the engine below pydantic: less than 40 ms, with all imports.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, Literal, NotRequired, Union, cast, get_args, get_origin, get_type_hints

from pydantic_core import PydanticCustomError, SchemaValidator
from typing_extensions import is_typeddict

from sayagain.protocol.v2.markers import Between, Known, NonEmpty, Open, Pick, Replaces, Rule

__all__ = ["INTERNAL", "RULE", "validator"]

INTERNAL: Final = "|"
"""First character of the location parts that are ours (union members), not the sender's."""

RULE: Final = "rule"
"""The error type of a broken :class:`~sayagain.protocol.v2.markers.Rule`; its message is the reason."""

_Schema = dict[str, Any]

_SCALARS: Final[dict[Any, _Schema]] = {
    str: {"type": "str"},
    int: {"type": "int"},
    float: {"type": "float", "allow_inf_nan": False},
    bool: {"type": "bool"},
    Any: {"type": "any"},
}


@cache
def validator(wire_type: Any) -> SchemaValidator:
    """The validator of a TypedDict or of an alias from this package; built on first use, then kept."""
    return SchemaValidator(cast("Any", _schema(wire_type)))


@cache
def _schema(wire_type: Any) -> _Schema:
    if wire_type in _SCALARS:
        return _SCALARS[wire_type]
    if is_typeddict(wire_type):
        return _object(wire_type)
    origin, args = get_origin(wire_type), get_args(wire_type)
    if origin is Annotated:
        return _annotated(args[0], wire_type.__metadata__)
    if origin is list:
        # One fault is reported, so looking for more in a long array would only cost memory.
        return {"type": "list", "items_schema": _schema(args[0]), "fail_fast": True}
    if origin is dict:
        return {"type": "dict", "keys_schema": _schema(args[0]), "values_schema": _schema(args[1])}
    if origin is Literal:
        return {"type": "literal", "expected": list(args)}
    if origin in (Union, types.UnionType) and len(args) == 2 and args[1] is type(None):
        return {"type": "nullable", "schema": _schema(args[0])}
    raise TypeError(f"not a wire type: {wire_type!r}")


@cache
def _hints(wire_type: Any) -> dict[str, Any]:
    return get_type_hints(wire_type, include_extras=True)


def _object(wire_type: Any) -> _Schema:
    fields: dict[str, _Schema] = {}
    for name, hint in _hints(wire_type).items():
        optional = get_origin(hint) is NotRequired
        schema = _schema(get_args(hint)[0] if optional else hint)
        fields[name] = {"type": "typed-dict-field", "schema": schema, "required": not optional}
    return {"type": "typed-dict", "fields": fields}


def _annotated(source: Any, markers: tuple[object, ...]) -> _Schema:
    first, *rest = markers
    schema: _Schema
    match first:
        case Open(field=field):
            schema = _open_union(get_args(source), field)
        case Pick(choose=choose):
            schema = _picked_union(get_args(source), choose)
        case Replaces(check=check):
            schema = {"type": "function-plain", "function": _function(check)}
        case _:
            schema, rest = _schema(source), list(markers)
    for marker in rest:
        match marker:
            case Between(low=low, high=high):
                schema = {**schema, "ge": low, "le": high}
            case NonEmpty():
                schema = {**schema, "min_length": 1}
            case Rule(check=check):
                schema = {"type": "function-after", "function": _function(check), "schema": schema}
            case Known():
                pass
            case _:
                raise TypeError(f"not a marker: {marker!r}")
    return schema


def _open_union(members: tuple[Any, ...], field: str) -> _Schema:
    *known, unknown = members
    labels: dict[object, str] = {}
    for member in known:
        # A member may itself be a union, told apart by another field: all its members share the tag.
        typed_dict = member if is_typeddict(member) else get_args(get_args(member)[0])[0]
        for tag in get_args(_hints(typed_dict)[field]):
            labels[tag] = _label(member)
    otherwise = _label(unknown)

    def label(value: object) -> str:
        tag = cast("dict[str, object]", value).get(field) if isinstance(value, dict) else None
        return labels.get(tag, otherwise) if isinstance(tag, str) else otherwise

    return _tagged(members, label)


def _picked_union(members: tuple[Any, ...], choose: Callable[[Any], int]) -> _Schema:
    labels = [_label(member) for member in members]

    def label(value: object) -> str:
        return labels[choose(value)]

    return _tagged(members, label)


def _tagged(members: tuple[Any, ...], label: Callable[[object], str]) -> _Schema:
    choices = {_label(member): _schema(member) for member in members}
    return {"type": "tagged-union", "choices": choices, "discriminator": label}


def _label(member: Any) -> str:
    return INTERNAL + (member.__name__ if is_typeddict(member) else repr(member))


def _function(check: Callable[[Any], str | None]) -> _Schema:
    def call(value: object) -> object:
        reason = check(value)
        if reason is not None:
            raise PydanticCustomError(RULE, "{reason}", {"reason": reason})
        return value

    return {"type": "no-info", "function": call}
