"""Our verdict on values is the schema's, where a structural comparison says too little; and where ours is stricter."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sayagain.errors import InvalidParams
from sayagain.protocol.v2 import (
    config_options,
    content,
    elicitation,
    initialize,
    mcp,
    prompts,
    requests,
    updates,
)
from sayagain.protocol.v2.validate import validate
from support_schema import WireChecker, WireFault, definitions, fault_in, needs_oracles

ABSENT = object()
TEXT = {"type": "text", "text": "hello"}
FORM = {"type": "object", "properties": {"a": {"type": "string"}}}
OPTION = {"value": "a", "name": "A"}


def product(**choices: list[Any]) -> list[dict[str, Any]]:
    """All objects with each field taken from its choices, :data:`ABSENT` meaning left out."""
    rows = itertools.product(*choices.values())
    return [{key: value for key, value in zip(choices, row, strict=True) if value is not ABSENT} for row in rows]


def accepts(wire_type: Any, value: Any) -> bool:
    try:
        validate(wire_type, value)
    except InvalidParams:
        return False
    return True


UNIONS: list[tuple[str, Any, list[Any]]] = [
    (
        "CreateElicitationRequest",
        elicitation.CreateElicitationRequest,
        product(
            mode=["form", "url", "_x", ABSENT],
            message=["m", ABSENT],
            sessionId=["s", ABSENT],
            toolCallId=["t", None, ABSENT],
            requestId=[1, "r", ABSENT],
            requestedSchema=[FORM, {}, ABSENT],
            elicitationId=["e", 1, ABSENT],
            url=["https://a", ABSENT],
        ),
    ),
    (
        "MultiSelectItems",
        elicitation.MultiSelectItems,
        [
            items
            for items in product(
                type=["string", "_x", 1, ABSENT],
                enum=[["a"], [], [1], "a", ABSENT],
                anyOf=[[{"const": "a", "title": "A"}], [], [{}], ABSENT],
            )
            if not ("enum" in items and "anyOf" in items)  # then it is one kind to us, either one to the schema
        ],
    ),
    (
        "SessionConfigSelectOptions",
        config_options.SessionConfigSelectOptions,
        [
            [],
            [OPTION],
            [OPTION, {**OPTION, "value": 1}],
            [{"groupId": "g", "name": "G", "options": [OPTION]}],
            [{"groupId": "g", "name": "G", "options": []}],
            [{"groupId": "g", "options": [OPTION]}],
            [{"groupId": "g", "name": "G", "options": [OPTION]}, OPTION],
            [OPTION, {"groupId": "g", "name": "G", "options": [OPTION]}],
            "a",
            None,
        ],
    ),
    (
        "EmbeddedResourceResource",
        content.EmbeddedResourceResource,
        product(text=["t", ABSENT], blob=["b", ABSENT], uri=["a:b", 1, ABSENT], mimeType=["t/p", None, 1, ABSENT]),
    ),
    (
        "MessageMcpResponse",
        mcp.MessageMcpResponse,
        product(
            result=[None, 1, {}, ABSENT],
            error=[{"code": 1, "message": "m", "more": []}, ABSENT],
            _meta=[{}, None, ABSENT],
        )
        + product(error=[None, {}, {"code": "1", "message": "m"}, {"code": 1}]),
    ),
    ("RequestId", requests.RequestId, [1, 0, -1, "", "a", None, True, 1.5, [], {}]),
    (
        "StateUpdate",
        updates.StateUpdate,
        product(
            state=["idle", "running", "_x", 1, ABSENT],
            stopReason=["end_turn", "error", "_x", None, 1, ABSENT],
            error=[{"code": -32603, "message": "m"}, None, ABSENT],
            background=[[], [{"type": "_x"}], None, ABSENT],
        ),
    ),
    (
        "SetSessionConfigOptionRequest",
        config_options.SetSessionConfigOptionRequest,
        product(
            sessionId=["s", ABSENT],
            configId=["c", 1],
            type=["id", "boolean", "_x", ABSENT],
            value=["a", True, None, ABSENT],
        ),
    ),
    (
        "PromptRequest",
        prompts.PromptRequest,
        product(
            sessionId=["s", None, ABSENT],
            prompt=[[TEXT], [], [{"type": "_x"}], [{"type": "text"}], TEXT, ABSENT],
            idempotencyKey=["k", "k" * 255, "🔑" * 255, "k" * 256, "", None, 1, True, ["k"], ABSENT],
            _meta=[{"k": 1}, None, 1, ABSENT],
        ),
    ),
    (
        "InitializeRequest",
        initialize.InitializeRequest,
        product(
            protocolVersion=[0, 2, 65535, 65536, -1, "2", True, None, ABSENT],
            info=[{"name": "a", "version": "1"}, {"name": "a"}, ABSENT],
            capabilities=[{}, {"auth": {"terminal": {}}}, {"auth": 1}, 1, ABSENT],
        ),
    ),
    (
        "UpdateSessionNotification",
        updates.UpdateSessionNotification,
        [
            {"sessionId": "s", "update": update}
            for update in product(
                sessionUpdate=["replay_complete", "agent_message_chunk", "user_message", "_x", 1, ABSENT],
                messageId=["m", None, ABSENT],
                content=[TEXT, [TEXT], None, ABSENT],
                _meta=[{}, None, 1, ABSENT],
            )
            if "_meta" not in update or update.get("sessionUpdate") != "_x"
        ],
    ),
]


@needs_oracles
@pytest.mark.parametrize(("name", "wire_type", "values"), UNIONS, ids=[name for name, *_ in UNIONS])
def test_the_verdicts_agree(name: str, wire_type: Any, values: list[Any]) -> None:
    verdicts = [(accepts(wire_type, value), fault_in(name, value)) for value in values]
    disagreements = [
        (value, fault) for value, (ours, fault) in zip(values, verdicts, strict=True) if ours != (fault is None)
    ]
    assert disagreements == []
    assert {ours for ours, _ in verdicts} == {True, False}


STRICTER: list[tuple[str, Any, Any]] = [
    ("RequestId", requests.RequestId, 1.0),
    (
        "InitializeRequest",
        initialize.InitializeRequest,
        {"protocolVersion": 2.0, "info": {"name": "a", "version": "1"}},
    ),
    ("McpServer", mcp.McpServer, {"type": "stdio", "name": "a", "command": "relative"}),
    ("TextContent", content.TextContent, {"type": "text", "text": "\ud800"}),
]


@needs_oracles
@pytest.mark.parametrize(("name", "wire_type", "value"), STRICTER, ids=range(len(STRICTER)))
def test_where_we_are_stricter(name: str, wire_type: Any, value: Any) -> None:
    assert fault_in(name, value) is None
    assert not accepts(wire_type, value)


# The checker that other tests rely on


def call(method: str, params: Any = None, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **fields}


def answer(request_id: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **fields}


PROMPT = {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": "k"}
MARKER = {"sessionId": "s", "update": {"sessionUpdate": "replay_complete"}}


@needs_oracles
def test_a_good_conversation_passes() -> None:
    wire = WireChecker()
    wire.client_sent(call("session/prompt", PROMPT, id=1))
    assert wire.open_requests("agent") == {1: "session/prompt"}
    wire.agent_sent(
        call(
            "session/request_permission",
            {
                "sessionId": "s",
                "title": "t",
                "options": [{"optionId": "a", "name": "A", "kind": "allow_once"}],
            },
            id=1,
        )
    )
    wire.client_sent(answer(1, result={"outcome": {"outcome": "cancelled"}}))
    wire.agent_sent([call("session/update", MARKER), answer(1, result={"messageId": "m"})])
    wire.client_sent(b'{"jsonrpc":"2.0","method":"session/list","id":"a"}')
    wire.agent_sent(answer("a", error={"code": -32603, "message": "Internal error"}))
    wire.agent_sent(answer(None, error={"code": -32700, "message": "Parse error"}))
    wire.client_sent(call("_x/y", 1, id=2))
    wire.agent_sent(answer(2, result=1))
    wire.agent_sent(call("$/cancel_request", {"requestId": 5}))
    assert wire.open_requests("agent") == wire.open_requests("client") == {}


BAD_LINES: dict[str, Any] = {
    "no version": {"method": "session/update", "params": MARKER},
    "unknown method": call("session/upset", MARKER),
    "request as notification": call("session/request_permission", {}),
    "bad params": call("session/update", {"sessionId": "s"}),
    "bad params in a batch": [call("session/update", MARKER), call("session/update", {})],
    "empty batch": [],
    "misspelt field": call("session/update", {"sessionId": "s", "update": {
        "sessionUpdate": "tool_call_update", "toolCallId": "t", "rawinput": 1,
    }}),
    "bad tagged field": call("session/update", {"sessionId": "s", "update": {
        "sessionUpdate": "user_message", "messageId": 1,
    }}),
    "key in an update": call("session/update", {**MARKER, "idempotencyKey": "k"}),
    "id null": call("elicitation/create", {}, id=None),
    "root field": call("session/update", MARKER, extra=1),
    "answer to nothing": answer(9, result={}),
    "bad result": answer(1, result={}),
    "null result": answer(1, result=None),
    "result and error": answer(1, result={"messageId": "m"}, error={"code": 1, "message": "m"}),
    "bad error": answer(1, error={"code": "1", "message": "m"}),
    "neither": answer(1),
}  # fmt: skip


@needs_oracles
@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_found(line: Any) -> None:
    wire = WireChecker()
    wire.client_sent(call("session/prompt", PROMPT, id=1))
    with pytest.raises(WireFault):
        wire.agent_sent(line)


@needs_oracles
def test_a_second_answer_is_found() -> None:
    wire = WireChecker()
    wire.client_sent(call("session/prompt", PROMPT, id=1))
    wire.agent_sent(answer(1, result={"messageId": "m"}))
    with pytest.raises(WireFault):
        wire.agent_sent(answer(1, result={"messageId": "m"}))


@needs_oracles
def test_unknown_variants_may_hold_anything() -> None:
    update = {"sessionUpdate": "_x", "anything": {"a": 1}}
    WireChecker().agent_sent(call("session/update", {"sessionId": "s", "update": update}))


@needs_oracles
def test_the_shortcut_for_tags_changes_no_verdict() -> None:
    from jsonschema import Draft202012Validator

    for name, _, values in UNIONS:
        plain = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions()})
        for value in values[::7]:
            assert plain.is_valid(value) == (fault_in(name, value) is None)
