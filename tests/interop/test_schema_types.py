"""Our wire types and the published schema say the same: fields, requiredness, nullability, ranges, tags, enums.

Both sides are brought to one form, a nested tuple, and compared for the params and the result of every method.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict

from sayagain.protocol.v2 import config_options, content, elicitation, mcp, requests, scalars, sessions, state
from sayagain.protocol.v2.markers import Between, Known, NonEmpty, Open
from sayagain.protocol.v2.methods import METHODS, Method
from support_schema import Kind, definition_for, definitions, needs_oracles, stable_definitions

RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}

# Definitions that no general rule describes: compared by name here, and by values in test_schema_values.
SPECIAL: dict[str, Any] = {
    "RequestId": scalars.RequestId,
    "IdempotencyKey": scalars.IdempotencyKey,
    "EmbeddedResourceResource": content.EmbeddedResourceResource,
    "SessionConfigSelectOptions": config_options.SessionConfigSelectOptions,
    "MultiSelectItems": elicitation.MultiSelectItems,
    "MessageMcpResponse": mcp.MessageMcpResponse,
    "CreateElicitationRequest": elicitation.CreateElicitationRequest,
}
ANY_JSON = ("any",)


def nullable(form: Any) -> Any:
    return form if form == ANY_JSON or form[0] == "null or" else ("null or", form)


# The schema's side


def schema_form(schema: Any) -> Any:
    if schema in (True, {}) or not set(schema) - {"description", "x-side", "x-method", "x-docs-ignore"}:
        return ANY_JSON
    if "$ref" in schema:
        return named_form(schema["$ref"].rsplit("/", 1)[1])
    branches = schema.get("anyOf", schema.get("oneOf"))
    if branches is not None:
        return union_form(schema, branches)
    if "allOf" in schema and "properties" not in schema:
        return schema_form(schema["allOf"][0])
    kind = schema.get("type")
    if isinstance(kind, list):
        return nullable(schema_form({**schema, "type": next(one for one in kind if one != "null")}))
    match kind:
        case None:
            return ANY_JSON
        case "string":
            return ("const", schema["const"]) if "const" in schema else ("string", schema.get("minLength", 0))
        case "boolean":
            return ("boolean",)
        case "integer":
            low, high = RANGES[schema["format"]]
            return ("integer", schema.get("minimum", low), schema.get("maximum", high))
        case "number":
            return ("number", schema.get("minimum"), schema.get("maximum"))
        case "array":
            return ("array", schema.get("minItems", 0), schema_form(schema["items"]))
        case "object" if "properties" in schema or "allOf" in schema:
            return object_form(schema)
        case "object":
            values = schema.get("additionalProperties")
            return ("map", schema_form(values)) if values is not None else ("object", {})
    raise AssertionError(f"no rule for {schema}")


def named_form(name: str) -> Any:
    if name in SPECIAL:
        return ("special", name)
    if name == "AbsolutePath":
        return ("absolute path",)
    if name == "IdleStateUpdate":  # a union over the stop reason, of which one branch alone has a field of its own
        schema = definitions()[name]
        fields = dict(object_form({k: v for k, v in schema.items() if k != "anyOf"})[1])
        reasons = [branch["properties"]["stopReason"].get("const") for branch in schema["anyOf"]]
        fields["stopReason"] = (False, nullable(("enum", frozenset(filter(None, reasons)))))
        fields["error"] = object_form(definitions()["ErrorStopReason"])[1]["error"]
        return ("object", fields)
    return schema_form(definitions()[name])


def object_form(schema: Any) -> Any:
    fields: dict[str, Any] = {}
    for part in schema.get("allOf", []):
        fields.update(schema_form(part)[1])
    required = set(schema.get("required", []))
    for name, prop in schema.get("properties", {}).items():
        form = schema_form(prop)
        # Readers are told to take null for the default here, so our types say it too.
        if "x-deserialize-default-on-null" in prop or "default" in prop:
            form = nullable(form)
        fields[name] = (name in required, form)
    return ("object", fields)


def union_form(schema: Any, branches: list[Any]) -> Any:
    options = [branch for branch in branches if branch.get("type") != "null"]
    if len(options) < len(branches):
        return nullable(schema_form(options[0])) if len(options) == 1 else nullable(union_form(schema, options))
    if all("properties" not in branch and branch.get("type") in ("string", "integer") for branch in options):
        if options[0]["type"] == "integer":
            return ("integer", *RANGES[options[0]["format"]])
        values = frozenset(branch["const"] for branch in options if "const" in branch)
        return ("enum", values) if len(values) < len(options) else ("const", *values)
    if any(not branch.get("type") and not branch.get("properties") for branch in options):
        return ANY_JSON  # one of the branches takes everything
    base = dict(object_form({k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")})[1])
    members: dict[str | None, Any] = {}
    field = next(name for name, prop in options[0]["properties"].items() if "const" in prop)
    for branch in options:
        tag = branch["properties"][field].get("const")
        inner = object_or_union(branch)
        members[tag] = (
            {key: {**base, **fields} for key, fields in inner.items()}
            if inner.keys() != {None}
            else {**base, **inner[None]}
        )
    return ("union", field, members)


def object_or_union(branch: Any) -> dict[str | None, Any]:
    """The fields of a union's branch; a branch that is itself a union gives one entry for each of its tags."""
    form = schema_form(branch["allOf"][0]) if "allOf" in branch else ("object", {})
    own = object_form({k: v for k, v in branch.items() if k != "allOf"})[1]
    if form[0] == "union":
        return {f"{form[1]}={tag}": {**fields, **own} for tag, fields in form[2].items()}
    return {None: {**form[1], **own}}


# Our side


def type_form(hint: Any) -> Any:
    for name, special in SPECIAL.items():
        if hint == special:
            return ("special", name)
    if hint == scalars.AbsolutePath:
        return ("absolute path",)
    if is_typeddict(hint):
        return ("object", fields_of(hint))
    if hint in (str, bool, float, Any):
        return {str: ("string", 0), bool: ("boolean",), float: ("number", None, None), Any: ANY_JSON}[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return annotated_form(args[0], args[1:])
    if origin is list:
        return ("array", 0, type_form(args[0]))
    if origin is dict:
        return ("map", type_form(args[1]))
    if origin is Literal:
        return ("const", *args)
    if origin in (Union, types.UnionType) and args[1:] == (type(None),):
        return nullable(type_form(args[0]))
    raise AssertionError(f"no rule for {hint}")


def annotated_form(source: Any, markers: tuple[Any, ...]) -> Any:
    if isinstance(markers[0], Open):
        field = markers[0].field
        members: dict[str | None, Any] = {}
        for member in get_args(source):
            inner = type_form(member)
            if inner[0] == "union":
                [tag] = get_args(get_type_hints(get_args(get_args(member)[0])[0])[field])
                members[tag] = {f"{inner[1]}={key}": fields for key, fields in inner[2].items()}
                continue
            required, form = inner[1][field]
            for tag in form[1:] if form[0] == "const" else [None]:
                own = (required, ("const", tag) if tag is not None else form)
                members[tag] = {**inner[1], field: own}
        return ("union", field, members)
    if isinstance(markers[0], Known):
        return ("enum", frozenset(markers[0].values))
    if isinstance(markers[0], Between):
        return ("integer" if source is int else "number", markers[0].low, markers[0].high)
    form = type_form(source)
    if isinstance(markers[0], NonEmpty):
        return (form[0], 1, *form[2:])
    return form


def fields_of(hint: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in get_type_hints(hint, include_extras=True).items():
        optional = get_origin(field) is NotRequired
        fields[name] = (not optional, type_form(get_args(field)[0] if optional else field))
    return fields


def normal(form: Any) -> Any:
    """Keys to the same form on both sides: ``null`` inside a special or an any adds nothing."""
    if isinstance(form, dict):
        return {key: normal(value) for key, value in form.items()}
    if isinstance(form, tuple):
        if form == ("null or", ("special", "IdempotencyKey")):
            return form[1]
        return tuple(normal(part) for part in form)
    return form


def kinds(method: Method) -> list[tuple[Kind, Any]]:
    if method.kind == "notification":
        return [("notification", method.params_type())]
    return [("request", method.params_type()), ("response", method.result_type())]


CASES = [(method, kind, hint) for method in METHODS for kind, hint in kinds(method)]


@needs_oracles
@pytest.mark.parametrize(("method", "kind", "hint"), CASES, ids=[f"{case[1]} {case[0].name}" for case in CASES])
def test_types_agree(method: Method, kind: Kind, hint: Any) -> None:
    name = definition_for(method.name, kind, "agent" if method.side == "both" else method.side)
    assert name is not None
    assert normal(type_form(hint)) == normal(named_form(name))


SPECIAL_PARTS: list[tuple[str, Any]] = [
    ("TextResourceContents", content.TextResourceContents),
    ("BlobResourceContents", content.BlobResourceContents),
    ("SessionConfigSelectOption", config_options.SessionConfigSelectOption),
    ("SessionConfigSelectGroup", config_options.SessionConfigSelectGroup),
    ("TitledMultiSelectItems", elicitation.TitledMultiSelectItems),
    ("ElicitationSchema", elicitation.ElicitationSchema),
    ("McpError", mcp.McpError),
    ("Error", state.Error),
    ("SessionInfo", sessions.SessionInfo),
    ("SessionNotFoundErrorData", requests.SessionNotFoundErrorData),
    ("UnsupportedProtocolVersionErrorData", requests.UnsupportedProtocolVersionErrorData),
]


@needs_oracles
@pytest.mark.parametrize(("name", "hint"), SPECIAL_PARTS, ids=[name for name, _ in SPECIAL_PARTS])
def test_parts_that_no_method_reaches_by_a_rule_agree(name: str, hint: Any) -> None:
    assert normal(type_form(hint)) == normal(named_form(name))


@needs_oracles
def test_no_definition_is_left_out() -> None:
    seen: set[str] = set()

    def visit(schema: Any) -> None:
        if isinstance(schema, list):
            for item in schema:
                visit(item)
        elif isinstance(schema, dict):
            ref = schema.get("$ref")
            if ref is not None and (name := ref.rsplit("/", 1)[1]) not in seen:
                seen.add(name)
                visit(definitions()[name])
            for value in schema.values():
                visit(value)

    for method, kind, _ in CASES:
        name = definition_for(method.name, kind, "agent" if method.side == "both" else method.side)
        assert name is not None
        seen.add(name)
        visit(definitions()[name])
    envelopes = {
        f"{side}{kind}"
        for side in ("Agent", "Client", "Proxy", "Ext")
        for kind in ("Request", "Response", "Notification")
    }
    error_parts = {"ErrorData", "SessionNotFoundErrorData", "UnsupportedProtocolVersionErrorData"}
    assert set(definitions()) - seen - envelopes - error_parts == set()


@needs_oracles
def test_the_method_table_is_the_schemas() -> None:
    def table(found: dict[str, Any]) -> set[tuple[str, str, str]]:
        return {
            (
                definition["x-method"],
                {"protocol": "both"}.get(definition["x-side"], definition["x-side"]),
                "notification" if name.endswith("Notification") else "request",
            )
            for name, definition in found.items()
            if "x-method" in definition
        }

    assert {(method.name, method.side, method.kind) for method in METHODS} == table(definitions())
    stable = {(method.name, method.side, method.kind) for method in METHODS if method.stable}
    assert stable == table(stable_definitions())
