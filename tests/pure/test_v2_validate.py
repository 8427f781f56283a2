"""How values are checked, whatever their type: keys first, no quoting, nothing crashes, nothing heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import ValidationError

from sayagain.errors import InvalidParams
from sayagain.identity import validate_key
from sayagain.protocol.v2.compiler import validator
from sayagain.protocol.v2.initialize import InitializeRequest
from sayagain.protocol.v2.methods import METHODS, Method
from sayagain.protocol.v2.plain_json import MAX_DEPTH
from sayagain.protocol.v2.prompts import PromptRequest
from sayagain.protocol.v2.providers import SetProviderRequest
from sayagain.protocol.v2.scalars import Object
from sayagain.protocol.v2.updates import UpdateSessionNotification
from sayagain.protocol.v2.validate import validate

SURROGATE = "\ud800"


def prompt(**fields: Any) -> dict[str, Any]:
    return {"sessionId": "s", "prompt": [{"type": "text", "text": "hello"}], **fields}


def fault(wire_type: Any, value: Any) -> InvalidParams:
    with pytest.raises(InvalidParams) as caught:
        validate(wire_type, value)
    return caught.value


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


# Keys


BAD_KEYS: dict[str, Any] = {
    "empty": "",
    "long": "k" * 256,
    "integer": 1,
    "boolean": True,
    "float": 1.5,
    "array": [],
    "object": {},
    "string in an array": ["k"],
    "lone surrogate": SURROGATE,
    "nested": nested(100_000),
    "huge": 10**5000,
}


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_malformed_key_wins_over_every_other_fault(key: Any) -> None:
    with pytest.raises(InvalidParams) as expected:
        validate_key(key)
    for value in (prompt(), {}, {"sessionId": 1, "prompt": [{}] * 5}, {"_meta": nested(1000), "prompt": SURROGATE}):
        found = fault(PromptRequest, {**value, "idempotencyKey": key})
        assert (found.field, found.reason) == ("idempotencyKey", expected.value.reason)


def test_a_field_of_that_name_elsewhere_has_no_such_meaning() -> None:
    validate(InitializeRequest, {"protocolVersion": 2, "info": {"name": "a", "version": "1"}, "idempotencyKey": 5})


# Paths and reasons


@pytest.mark.parametrize(
    ("wire_type", "value"),
    [
        (PromptRequest, prompt(prompt=[{"type": "text", "text": {"SECRET": 1}}])),
        (PromptRequest, prompt(prompt="SECRET")),
        (PromptRequest, prompt(idempotencyKey=["SECRET"])),
        (PromptRequest, prompt(idempotencyKey="SECRET" * 100)),
        (PromptRequest, prompt(_meta={"a": "SECRET" + SURROGATE})),
        (InitializeRequest, {"protocolVersion": "SECRET"}),
        (SetProviderRequest, {"providerId": "p", "apiType": "a", "baseUrl": "b", "headers": {"a": ["SECRET"]}}),
    ],
)
def test_no_error_quotes_a_value(wire_type: Any, value: Any) -> None:
    found = fault(wire_type, value)
    assert "SECRET" not in json.dumps(found.data)
    assert "SECRET" not in str(found)
    shown = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    assert shown is None  # the engine's own error, which has the value, stays out of tracebacks


def test_a_senders_own_names_are_bounded_and_printable_in_a_path() -> None:
    headers = {"providerId": "p", "apiType": "a", "baseUrl": "b"}
    found = fault(SetProviderRequest, {**headers, "headers": {"x" * 10_000: 1}})
    assert found.field.startswith("headers.xxx")
    assert len(found.field) <= 201
    found = fault(SetProviderRequest, {**headers, "headers": {SURROGATE: 1}})
    found.field.encode()
    found = fault(SetProviderRequest, {**headers, "headers": {SURROGATE: "x"}})
    assert found.field == "headers"


def test_a_non_string_field_name_is_a_fault() -> None:
    headers = {"providerId": "p", "apiType": "a", "baseUrl": "b", "headers": {1: "x"}}
    assert fault(SetProviderRequest, headers).field == "headers.1"


# What no type describes


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"_meta": {"a": [1, SURROGATE]}}, "_meta.a.1"),
        ({"_meta": {"a": {SURROGATE: 1}}}, "_meta.a"),
        ({"unknown": SURROGATE}, "unknown"),
        ({"unknown": 10**400}, "unknown"),
        ({"unknown": [-(10**5000)]}, "unknown.0"),
        ({"unknown": float("inf")}, "unknown"),
        ({"unknown": {"a": float("nan")}}, "unknown.a"),
        ({"unknown": (1, 2)}, "unknown"),
        ({"unknown": b"x"}, "unknown"),
    ],
    ids=range(9),
)
def test_what_cannot_be_written_out_again_is_a_fault(value: Any, path: str) -> None:
    assert fault(Object, value).field == path


@pytest.mark.parametrize("value", ["é", "🔑", 2**64, -1.5e300, True, None, {"a": [{}]}, "\x00"])
def test_any_other_json_is_left_alone(value: Any) -> None:
    params = {"unknown": value}
    assert validate(Object, params) is params


def test_nesting_has_a_limit() -> None:
    validate(Object, {"x": nested(MAX_DEPTH - 1)})
    assert fault(Object, {"x": nested(MAX_DEPTH)}).field.startswith("x.0.0")
    assert fault(Object, {"x": nested(200_000)}).field.startswith("x.0.0")


@pytest.mark.parametrize("field", ["sessionId", "prompt", "_meta"])
def test_deep_nesting_in_a_typed_field_is_a_fault(field: str) -> None:
    assert fault(PromptRequest, prompt(**{field: nested(200_000)})).field.startswith(field)


def test_a_value_that_holds_itself_is_a_fault() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert fault(Object, {"x": loop}).field.startswith("x.loop.loop")


def test_a_long_array_of_faults_costs_one() -> None:
    value = prompt(prompt=[0] * 1_000_000)
    assert fault(PromptRequest, value).field == "prompt.0"
    with pytest.raises(ValidationError) as caught:
        validator(PromptRequest).validate_python(value, strict=True)
    assert caught.value.error_count() == 1


# Types


def test_what_is_no_wire_type_is_a_programming_error() -> None:
    for no_type in (set, int | str, tuple[int, ...], Annotated[int, "note"]):
        with pytest.raises(TypeError):
            validate(no_type, 1)


def test_validators_are_built_once() -> None:
    assert validator(PromptRequest) is validator(PromptRequest)


FIELDS = st.sampled_from(
    [
        "sessionId", "prompt", "idempotencyKey", "type", "text", "resource", "uri", "blob", "update", "sessionUpdate",
        "state", "content", "messageId", "options", "groupId", "value", "currentValue", "configId", "mode", "items",
        "anyOf", "enum", "requestedSchema", "properties", "requestId", "cwd", "mcpServers", "env", "name", "action",
        "outcome", "subject", "toolCall", "changes", "operation", "plan", "entries", "result", "error", "_meta",
        "availableCommands", "replayFrom", "headers", "capabilities", "info", "authMethods",
    ]
)  # fmt: skip
TAGS = st.sampled_from(
    [
        "text", "resource", "select", "boolean", "id", "start", "stdio", "http", "terminal", "form", "url", "array",
        "string", "diff", "items", "state_update", "idle", "tool_call_update", "plan_update", "tool_call", "selected",
        "agent_message_chunk", "available_commands_update", "config_option_update", "subagent_update", "add", "move",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=6),
    max_leaves=20,
)


@st.composite
def plausible(draw: st.DrawFn, depth: int = 0) -> Any:
    """Junk with the names and tags of the protocol, so that it gets past the first check."""
    if depth > 4:
        return draw(JSON)
    match draw(st.integers(0, 7)):
        case 0 | 1 | 2 | 3:
            return {name: draw(plausible(depth + 1)) for name in draw(st.lists(FIELDS, max_size=5))}
        case 4:
            return [draw(plausible(depth + 1)) for _ in range(draw(st.integers(0, 3)))]
        case 5 | 6:
            return draw(TAGS)
        case _:
            return draw(JSON)


@settings(max_examples=30, deadline=None)
@given(st.data())
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.kind} {method.name}")
def test_junk_is_accepted_or_refused_and_nothing_else(method: Method, data: st.DataObject) -> None:
    value = data.draw(plausible())
    for wire_type in (method.params_type(), method.result_type()):
        try:
            assert validate(wire_type, value) is value
        except InvalidParams as error:
            json.dumps(error.data, ensure_ascii=False).encode()


@given(st.data())
def test_an_accepted_value_can_be_written_out(data: st.DataObject) -> None:
    value = {"sessionId": "s", "update": {"sessionUpdate": "_x", "raw": data.draw(JSON)}}
    try:
        validate(UpdateSessionNotification, value)
    except InvalidParams:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


# Start-up


@pytest.mark.parametrize("extra", ["", "import sayagain.protocol.v2.methods; "])
def test_answering_initialize_needs_neither_pydantic_nor_the_other_types(extra: str) -> None:
    code = (
        # What the libraries below import by themselves differs with their versions.
        "import json, sys, pydantic_core, typing_extensions; theirs = set(sys.modules); "
        f"{extra}from sayagain.protocol.v2.validate import validate; "
        "from sayagain.protocol.v2.initialize import InitializeRequest; "
        "validate(InitializeRequest, {'protocolVersion': 2, 'info': {'name': 'a', 'version': '1'}}); "
        "print(json.dumps(sorted(set(sys.modules) - theirs)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(ran.stdout))
    assert not modules & {"pydantic", "uuid6", "importlib.metadata", "asyncio", "sayagain.identity"}
    assert not modules & {f"sayagain.protocol.v2.{name}" for name in ("updates", "sessions", "content", "prompts")}
