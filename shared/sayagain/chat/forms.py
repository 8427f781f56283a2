"""A form of an elicitation, filled in line by line. No I/O.

A field at a time: its lines are shown, a line is read, and what does not fit the schema is asked again. The agent looks
at the answers again (ELI-4); this is for the user, who can still mend them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from math import isfinite
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from sayagain.protocol.loose import Json, as_list, as_mapping, as_text

__all__ = ["Field", "Form", "Unfit"]

Value: TypeAlias = str | int | float | bool | list[str]

_YES: Final = frozenset({"y", "yes", "true"})
_NO: Final = frozenset({"n", "no", "false"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Unfit(Exception):
    """A line that is no answer to its field; the text tells the user why."""


@dataclass(frozen=True, slots=True)
class _Choice:
    value: str
    title: str
    description: str


class Field:
    """One field of a form."""

    def __init__(self, name: str, schema: Json, *, required: bool) -> None:
        self.name = name
        self.required = required
        self._schema = schema
        self._kind = as_text(schema.get("type"))
        self._choices = _choices(as_mapping(schema.get("items")) if self._kind == "array" else schema)
        self.default = self._default(schema.get("default"))

    @property
    def can_be_shown(self) -> bool:
        """Whether this client knows such fields: other versions may have more."""
        return self._kind in _READERS or (self._kind == "array" and bool(self._choices))

    def lines(self) -> Iterator[str]:
        """What to show before the answer is read."""
        title, description = as_text(self._schema.get("title")) or self.name, as_text(self._schema.get("description"))
        yield f"{title}{' *' if self.required else ''}" + (f": {description}" if description else "")
        for number, choice in enumerate(self._choices, 1):
            yield f"  {number}. {choice.title}" + (f" ({choice.description})" if choice.description else "")
        yield f"({'; '.join(self._hints())})"

    def read(self, line: str) -> Value | None:
        """The value of a line; ``None`` for an empty one without a default. Raises :class:`Unfit`."""
        text = line.strip()
        if not text:
            return self.default
        if self._kind == "array":
            return self._several(text)
        if self._choices:
            return self._choice(text)
        return _READERS[self._kind](self._schema, line)

    def _hints(self) -> Iterator[str]:
        if self._kind == "array":
            yield f"numbers, such as 1,{len(self._choices)}"
        else:
            yield "number" if self._choices else _WANTED.get(self._kind, "text")
        if not self._choices or self._kind == "array":
            yield from _limits(self._schema)
        if self.default is not None:
            yield f"Enter for {self._told(self.default)}"
        else:
            yield "Enter to decline" if self.required else "Enter to skip"

    def _told(self, value: Value) -> str:
        titles = {choice.value: choice.title for choice in self._choices}
        if isinstance(value, list):
            return ", ".join(titles.get(item, item) for item in value) or "none"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return titles.get(value, value) if isinstance(value, str) else str(value)

    def _default(self, value: object) -> Value | None:
        """The schema's default if it fits the schema."""
        values = [choice.value for choice in self._choices]
        match self._kind, value:
            case "array", _:
                given = as_list(value)
                chosen = [item for item in given if isinstance(item, str) and item in values]
                fits = chosen and len(chosen) == len(given) and _many(self._schema, len(chosen))
                return chosen if fits else None
            case "boolean", bool():
                return value
            case "string", str() if values or not value:
                return value if value in values else None
            case ("number" | "integer", bool()) | ("boolean", _):
                return None
            case ("string", str()) | ("number" | "integer", int() | float()):
                try:
                    return _READERS[self._kind](self._schema, str(value))
                except Unfit:
                    return None
            case _:
                return None

    def _choice(self, text: str) -> str:
        if text.isdecimal() and text.isascii() and 1 <= int(text[:9]) <= len(self._choices):
            return self._choices[int(text[:9]) - 1].value
        for choice in self._choices:
            if text.casefold() in (choice.title.casefold(), choice.value.casefold()):
                return choice.value
        raise Unfit(f"That is none of the {len(self._choices)}.")

    def _several(self, text: str) -> list[str]:
        # By commas, so that titles may hold spaces; numbers alone by spaces too.
        parts = text.split() if re.fullmatch(r"[0-9 ]+", text) else [part for part in text.split(",") if part.strip()]
        chosen = list(dict.fromkeys(self._choice(part.strip()) for part in parts))
        if not _many(self._schema, len(chosen)):
            raise Unfit(f"That is {len(chosen)}; {', '.join(_limits(self._schema))}.")
        return chosen


class Form:
    """A form that is being filled in. Raises :class:`ValueError` for a schema that is none."""

    def __init__(self, schema: object) -> None:
        whole = as_mapping(schema)
        if not isinstance(whole.get("properties"), dict):
            raise ValueError("a form needs an object of properties")
        self.title = as_text(whole.get("title"))
        self.description = as_text(whole.get("description"))
        required = as_list(whole.get("required"))
        fields = [
            Field(name, as_mapping(each), required=name in required)
            for name, each in as_mapping(whole["properties"]).items()
        ]
        self.values: dict[str, Value] = {}
        self.declined = any(field.required and not field.can_be_shown for field in fields)
        """A field that has to be filled in was not, or cannot be here."""
        self._left = [field for field in fields if field.can_be_shown]
        self.is_empty = not self._left and not self.declined
        """It asks for a yes alone."""

    @property
    def field(self) -> Field | None:
        """The field to ask for now; ``None`` when the form is done."""
        return None if self.declined or not self._left else self._left[0]

    def take(self, line: str) -> None:
        """The answer to :attr:`field`. Raises :class:`Unfit`: then the field is still the one to ask for."""
        field = self._left[0]
        value = field.read(line)
        if value is None and field.required:
            self.declined = True
            return
        if value is not None:
            self.values[field.name] = value
        del self._left[0]


def _choices(schema: Json) -> Sequence[_Choice]:
    listed = [_Choice(value, value, "") for value in as_list(schema.get("enum")) if isinstance(value, str)]
    titled = map(as_mapping, [*as_list(schema.get("oneOf")), *as_list(schema.get("anyOf"))])
    return [
        *listed,
        *(
            _Choice(as_text(each.get("const")), as_text(each.get("title")) or value, as_text(each.get("description")))
            for each in titled
            if isinstance(value := each.get("const"), str)
        ),
    ]


# What a line says.


def _text(schema: Json, line: str) -> str:
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if not _within(len(line), least, most):
        raise Unfit(f"That has {len(line)} characters; {', '.join(_limits(schema))}.")
    if isinstance(pattern, str) and _misses(pattern, line):
        raise Unfit(f"That does not match {pattern}")
    known = _FORMATS.get(as_text(schema.get("format")))
    if known is not None and not known(line.strip()):
        raise Unfit(f"That is no {_FORMAT_NAMES[as_text(schema.get('format'))]}.")
    return line.strip() if known is not None else line


def _integer(schema: Json, line: str) -> int:
    if not _INTEGER.fullmatch(line.strip()):
        raise Unfit("That is no whole number.")
    value = int(line)
    _measure(schema, value)
    return value


def _number(schema: Json, line: str) -> float:
    if not _NUMBER.fullmatch(line.strip()) or not isfinite(float(line)):
        raise Unfit("That is no number.")
    value = int(line) if _INTEGER.fullmatch(line.strip()) else float(line)
    _measure(schema, value)
    return value


def _measure(schema: Json, value: float) -> None:
    if not _within(value, schema.get("minimum"), schema.get("maximum")):
        raise Unfit(f"That is out of the limits: {', '.join(_limits(schema))}.")


def _yes_or_no(_: Json, line: str) -> bool:
    word = line.strip().casefold()
    if word not in _YES | _NO:
        raise Unfit("Please type y or n.")
    return word in _YES


_READERS: Final[Mapping[str, Callable[[Json, str], Value]]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _yes_or_no,
}

_WANTED: Final = {"integer": "whole number", "number": "number", "boolean": "y or n"}


# Limits.


def _limits(schema: Json) -> Iterator[str]:
    for least, most, unit in (
        ("minLength", "maxLength", " characters"),
        ("minimum", "maximum", ""),
        ("minItems", "maxItems", ""),
    ):
        low, high = _limit(schema.get(least)), _limit(schema.get(most))
        if low is not None and high is not None:
            yield f"{low} to {high}{unit}"
        elif low is not None:
            yield f"at least {low}{unit}"
        elif high is not None:
            yield f"at most {high}{unit}"
    kind = as_text(schema.get("format"))
    if kind in _FORMAT_NAMES:
        yield _FORMAT_NAMES[kind]


def _limit(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _within(value: float, least: object, most: object) -> bool:
    low, high = _limit(least), _limit(most)
    return (low is None or value >= low) and (high is None or value <= high)


def _many(schema: Json, count: int) -> bool:
    return _within(count, schema.get("minItems"), schema.get("maxItems"))


def _misses(pattern: str, line: str) -> bool:
    """Patterns are ECMA-262; one that Python does not read is left to the agent."""
    try:
        return re.search(pattern, line) is None
    except (re.error, RecursionError, OverflowError):
        return False


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and " " not in text


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text)) and len(text) == len("2026-11-30")
    except ValueError:
        return False


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
    "uri": _is_uri,
    "date": _is_date,
    "date-time": _is_moment,
}

_FORMAT_NAMES: Final = {
    "email": "email address",
    "uri": "URI, such as https://example.com",
    "date": "date, such as 2026-11-30",
    "date-time": "time with its zone, such as 2026-11-30T18:00:00Z",
}
