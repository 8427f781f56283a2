"""Every exception and the wire error that it becomes: the one table (rules section 15, design section 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sayagain import errors
from sayagain.errors import (
    AuthRequired,
    ClientFault,
    HistoryUnreadable,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseFault,
    PromptRefused,
    RequestCancelled,
    RuntimeDied,
    RuntimeFault,
    RuntimeMissing,
    RuntimeTimeout,
    SayagainError,
    SessionInUse,
    SessionNotFound,
    UnsupportedVersion,
    to_wire,
)

TABLE: list[tuple[SayagainError, int, str, dict[str, Any] | None]] = [
    (ParseFault("not JSON"), -32700, "Parse error: not JSON", None),
    (InvalidRequest("empty batch"), -32600, "Invalid request: empty batch", None),
    (MethodNotFound("x/y"), -32601, "Method not found: x/y", {"method": "x/y"}),
    (
        InvalidParams("prompt.0.type", "is odd"),
        -32602,
        "Invalid params: prompt.0.type: is odd",
        {"field": "prompt.0.type", "reason": "is odd"},
    ),
    (
        InvalidParams("", "must be an object"),
        -32602,
        "Invalid params: must be an object",
        {"field": "", "reason": "must be an object"},
    ),
    (SessionNotFound("s"), -32002, "Session not found: s", {"sessionId": "s"}),
    (
        UnsupportedVersion(1, (2, 3)),
        -32022,
        "Unsupported protocol version 1; supported: 2, 3",
        {"requested": 1, "supported": [2, 3]},
    ),
    (RequestCancelled(), -32800, "Request cancelled: withdrawn before it was inserted", None),
    (RequestCancelled("the session was closed"), -32800, "Request cancelled: the session was closed", None),
    (AuthRequired(), -32000, "Authentication required", {"reason": "auth_required"}),
    (AuthRequired("Sign in first"), -32000, "Sign in first", {"reason": "auth_required"}),
    (RuntimeFault(), -32603, "The runtime failed", {"reason": "runtime_fault"}),
    (PromptRefused(), -32603, "The runtime refused the prompt", {"reason": "prompt_refused"}),
    (RuntimeDied(), -32603, "The runtime ended before the message was stored", {"reason": "runtime_died"}),
    (RuntimeMissing("no executable"), -32603, "no executable", {"reason": "runtime_missing"}),
    (RuntimeTimeout(), -32603, "The runtime stopped answering", {"reason": "runtime_timeout"}),
    (SessionInUse(), -32603, "Another process works on this session", {"reason": "session_in_use"}),
    (HistoryUnreadable(), -32603, "The stored session cannot be read", {"reason": "history_unreadable"}),
]


@pytest.mark.parametrize(("error", "code", "message", "data"), TABLE)
def test_the_wire_form(error: SayagainError, code: int, message: str, data: dict[str, Any] | None) -> None:
    expected: dict[str, Any] = {"code": code, "message": message}
    assert to_wire(error) == (expected if data is None else expected | {"data": data})
    json.dumps(to_wire(error))


def test_every_error_is_in_the_table_and_in_the_tree_of_the_docstring() -> None:
    classes = {getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert {type(error) for error, *_ in TABLE} == classes - {SayagainError, ClientFault}
    assert errors.__doc__ is not None
    assert all(each.__name__ in errors.__doc__ for each in classes)


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), KeyError("secret"), ExceptionGroup("secret", [ValueError()])]
)
def test_our_own_faults_tell_nothing(error: BaseException) -> None:
    assert to_wire(error) == {"code": -32603, "message": "Internal error"}


def test_what_a_client_sent_is_not_sent_back_whole() -> None:
    for error in (SessionNotFound("s" * 100_000), MethodNotFound("m" * 100_000)):
        assert len(json.dumps(to_wire(error))) < 1000


def test_reasons_are_unique() -> None:
    reasons = [
        error.reason
        for error in {type(error): error for error, *_ in TABLE}.values()
        if isinstance(error, RuntimeFault)
    ]
    assert len(set(reasons)) == len(reasons)
