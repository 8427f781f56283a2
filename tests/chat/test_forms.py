"""Forms of elicitations, filled in line by line."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.chat.forms import Field, Form, Unfit


def form(required: bool = True, **field: Any) -> Form:
    return Form({"type": "object", "properties": {"f": field}, "required": ["f"] if required else []})


def filled(line: str, required: bool = True, **field: Any) -> Any:
    made = form(required, **field)
    made.take(line)
    assert made.field is None
    return made.values.get("f")


TITLED = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue", "description": "as the sky"}]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("Ann", {"type": "string"}, "Ann"),
        (" Ann ", {"type": "string"}, " Ann "),
        ("a@b.c", {"type": "string", "format": "email"}, "a@b.c"),
        (" 2026-11-30 ", {"type": "string", "format": "date"}, "2026-11-30"),
        ("2026-11-30T18:00:00Z", {"type": "string", "format": "date-time"}, "2026-11-30T18:00:00Z"),
        ("https://example.com", {"type": "string", "format": "uri"}, "https://example.com"),
        ("any", {"type": "string", "format": "_custom"}, "any"),
        ("x1", {"type": "string", "pattern": "^x[0-9]$"}, "x1"),
        ("x", {"type": "string", "pattern": "(?<js>unknown"}, "x"),
        ("2", {"type": "string", "enum": ["r", "b"]}, "b"),
        ("B", {"type": "string", "enum": ["r", "b"]}, "b"),
        ("1", {"type": "string", "oneOf": TITLED}, "r"),
        ("blue", {"type": "string", "oneOf": TITLED}, "b"),
        ("7", {"type": "integer", "minimum": 1, "maximum": 9}, 7),
        ("-7", {"type": "integer"}, -7),
        ("0.5", {"type": "number"}, 0.5),
        ("1e3", {"type": "number"}, 1000.0),
        ("3", {"type": "number"}, 3),
        ("Y", {"type": "boolean"}, True),
        ("no", {"type": "boolean"}, False),
        ("2,1", {"type": "array", "items": {"anyOf": TITLED}}, ["b", "r"]),
        ("2 1 2", {"type": "array", "items": {"type": "string", "enum": ["r", "b"]}}, ["b", "r"]),
        ("Red, blue", {"type": "array", "items": {"anyOf": TITLED}}, ["r", "b"]),
    ],
)
def test_values(line: str, field: dict[str, Any], value: Any) -> None:
    got = filled(line, **field)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        ("A", {"type": "string", "minLength": 2}, "at least 2 characters"),
        ("Anna", {"type": "string", "minLength": 1, "maxLength": 3}, "1 to 3 characters"),
        ("y", {"type": "string", "pattern": "^x"}, "match"),
        ("ann", {"type": "string", "format": "email"}, "no email address"),
        ("20261130", {"type": "string", "format": "date"}, "no date"),
        ("2026-11-30T18:00:00", {"type": "string", "format": "date-time"}, "with its zone"),
        ("here", {"type": "string", "format": "uri"}, "no URI"),
        ("3", {"type": "string", "enum": ["r", "b"]}, "none of the 2"),
        ("0", {"type": "string", "enum": ["r", "b"]}, "none of the 2"),
        ("1.0", {"type": "integer"}, "no whole number"),
        ("1_0", {"type": "integer"}, "no whole number"),
        ("9" * 5000, {"type": "integer"}, "no whole number"),
        ("0", {"type": "integer", "minimum": 1}, "at least 1"),
        ("nan", {"type": "number"}, "no number"),
        ("1e999", {"type": "number"}, "no number"),
        ("10", {"type": "number", "maximum": 9.5}, "at most 9.5"),
        ("maybe", {"type": "boolean"}, "y or n"),
        ("1", {"type": "array", "minItems": 2, "items": {"anyOf": TITLED}}, "at least 2"),
        ("1,3", {"type": "array", "items": {"anyOf": TITLED}}, "none of the 2"),
    ],
)
def test_what_does_not_fit_is_asked_again(line: str, field: dict[str, Any], said: str) -> None:
    made = form(**field)
    with pytest.raises(Unfit, match=said):
        made.take(line)
    assert made.field is not None
    assert made.values == {}


@pytest.mark.parametrize("line", ["", "   "])
def test_an_empty_line(line: str) -> None:
    assert filled(line, required=False, type="string") is None
    assert filled(line, type="integer", default=3) == 3
    assert filled(line, type="boolean", default=False) is False
    assert filled(line, type="string", oneOf=TITLED, default="b") == "b"
    assert filled(line, type="array", items={"anyOf": TITLED}, default=["r"]) == ["r"]
    made = form(type="string")
    made.take(line)
    assert made.declined


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "minLength": 2, "default": "x"},
        {"type": "string", "enum": ["r"], "default": "b"},
        {"type": "integer", "default": 1.5},
        {"type": "integer", "default": True},
        {"type": "number", "maximum": 1, "default": 2},
        {"type": "boolean", "default": "yes"},
        {"type": "array", "items": {"anyOf": TITLED}, "default": ["z"]},
    ],
)
def test_a_default_that_does_not_fit_is_none(field: dict[str, Any]) -> None:
    assert Field("f", field, required=False).default is None


def test_what_is_shown() -> None:
    colour = {"title": "Colour", "description": "of the door", "type": "string", "oneOf": TITLED, "default": "b"}
    assert list(Field("c", colour, required=True).lines()) == [
        "Colour *: of the door",
        "  1. Red",
        "  2. Blue (as the sky)",
        "(number; Enter for Blue)",
    ]
    assert list(Field("count", {"type": "integer", "minimum": 1}, required=False).lines()) == [
        "count",
        "(whole number; at least 1; Enter to skip)",
    ]
    assert list(Field("sure", {"type": "boolean"}, required=True).lines())[-1] == "(y or n; Enter to decline)"


def test_fields_that_nobody_knows() -> None:
    assert form(type="_new").declined
    skipped = form(required=False, type="_new")
    assert (skipped.field, skipped.declined, skipped.is_empty) == (None, False, True)
    assert form(type="array", items={"type": "_new"}).declined


@pytest.mark.parametrize("schema", [None, [], {}, {"properties": None}, {"properties": []}])
def test_what_is_no_form(schema: Any) -> None:
    with pytest.raises(ValueError, match="properties"):
        Form(schema)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["type", "title", "enum", "oneOf", "items", "default", "minimum", "maxLength", "pattern"]),
        JUNK | st.sampled_from(["string", "integer", "number", "boolean", "array"]),
    ),
    st.lists(st.text(max_size=6), max_size=4),
)
def test_whatever_an_agent_sends(schema: dict[str, Any], lines: list[str]) -> None:
    made = Form({"properties": {"f": schema, "g": schema}, "required": ["g"]})
    for line in lines:
        if made.field is None:
            break
        assert list(made.field.lines())
        with suppress(Unfit):
            made.take(line)


LIMITED = st.one_of(
    st.fixed_dictionaries({"type": st.just("string"), "minLength": st.integers(0, 3), "maxLength": st.integers(3, 6)}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"]), "minimum": st.integers(-5, 0), "maximum": st.integers(1, 5)}
    ),
    st.fixed_dictionaries({"type": st.just("string"), "enum": st.just(["r", "b"])}),
    st.just({"type": "boolean"}),
)


@given(LIMITED, st.text(max_size=7) | st.integers(-9, 9).map(str) | st.floats(-9, 9).map(str))
def test_what_is_taken_fits_the_schema(field: dict[str, Any], line: str) -> None:
    made = form(**field)
    try:
        made.take(line)
    except Unfit:
        return
    if not made.declined:
        jsonschema.validate(made.values["f"], field)
