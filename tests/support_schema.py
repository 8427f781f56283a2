"""The published v2 JSON schema as an oracle for wire lines. Independent of our own types.

The schema comes with the npm package ``@agentclientprotocol/sdk``; the environment variable ``SAYAGAIN_ORACLES`` names
the folder whose ``node_modules`` has it. The two fields that the package does not know yet (``idempotencyKey``,
``replay_complete``) are added as their specs define them.

API::

    @needs_oracles                           marks a test: "interop", and skipped without the folder
    definitions() -> dict                    the ``$defs`` of schema.unstable.json, with the two additions
    stable_definitions() -> dict             those of schema.json, as published
    fault_in(name, value) -> str | None      what the definition ``name`` has against ``value``
    definition_for(method, kind, side)       the definition of "request" and "notification" params, and of a "response"
                                             (a result); ``side`` is who serves the method: "agent", "client", "proxy"

    wire = WireChecker()                     one connection; remembers which method each open request id is for
    wire.agent_sent(line)                    a line (text, bytes or decoded; a batch too) that the agent wrote
    wire.client_sent(line)                   the same for the client
                                             both raise WireFault (an AssertionError) with the reason
    wire.open_requests("agent") -> dict      ids and methods that this side still has to answer

``agent_sent`` also refuses fields that our types don't name (RPC-4; misspelt optional fields pass the schema), unless
``WireChecker(allow_unknown_fields=True)``. Unknown variants and ``_meta`` may hold anything. A method that starts
with ``_`` is an extension: its envelope alone is checked. One validator is built per definition and tagged unions are
reduced to the one branch that the tag names, so a line costs well under a
millisecond.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic_core import ValidationError

from sayagain.protocol.v2.compiler import INTERNAL, validator
from sayagain.protocol.v2.methods import Method, served

__all__ = [
    "Kind",
    "Side",
    "WireChecker",
    "WireFault",
    "definition_for",
    "definitions",
    "fault_in",
    "needs_oracles",
    "stable_definitions",
]

Side = Literal["agent", "client", "proxy"]
Kind = Literal["request", "notification", "response"]

_FOLDER = os.environ.get("SAYAGAIN_ORACLES")


def needs_oracles(test: Callable[..., Any]) -> Callable[..., Any]:
    """Skip the test where the published SDKs are not installed."""
    missing = pytest.mark.skipif(_FOLDER is None, reason="SAYAGAIN_ORACLES names no folder with the npm packages")
    return pytest.mark.interop(missing(test))


class WireFault(AssertionError):
    """A line that breaks the protocol."""


@cache
def definitions() -> dict[str, Any]:
    """``$defs`` of the unstable schema, with ``idempotencyKey`` and ``replay_complete``."""
    found = copy.deepcopy(_published("schema.unstable.json"))
    if "ReplayComplete" in found:
        raise AssertionError("the published schema has replay_complete now: drop the addition here")
    found["IdempotencyKey"] = {"type": "string", "minLength": 1, "maxLength": 255}
    found["PromptRequest"]["properties"]["idempotencyKey"] = {
        "anyOf": [{"$ref": "#/$defs/IdempotencyKey"}, {"type": "null"}]
    }
    found["ReplayComplete"] = {"type": "object", "properties": {"_meta": found["Notice"]["properties"]["_meta"]}}
    tag = {
        "type": "object",
        "properties": {"sessionUpdate": {"type": "string", "const": "replay_complete"}},
        "required": ["sessionUpdate"],
    }
    branches = found["SessionUpdate"]["anyOf"]
    branches[-1]["not"]["anyOf"].append(tag)
    branches.insert(0, {**tag, "allOf": [{"$ref": "#/$defs/ReplayComplete"}]})
    return found


@cache
def stable_definitions() -> dict[str, Any]:
    """``$defs`` of the stable schema, as published."""
    return _published("schema.json")


def _published(name: str) -> dict[str, Any]:
    assert _FOLDER is not None, "SAYAGAIN_ORACLES is not set"
    path = Path(_FOLDER) / "node_modules/@agentclientprotocol/sdk/schema/v2" / name
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Any] = schema["$defs"]
    return found


def fault_in(name: str, value: object) -> str | None:
    """What the definition ``name`` has against ``value``; ``None`` when it is valid."""
    error = best_match(_validator(name).iter_errors(value))
    return None if error is None else f"{name}{error.json_path[1:]}: {error.message[:300]}"


@cache
def _validator(name: str) -> Validator:
    found: Validator = _Tagged({"$ref": f"#/$defs/{name}", "$defs": definitions()})
    return found


def _any_of(checker: Any, branches: list[Any], instance: Any, schema: Any) -> Any:
    """``anyOf``, but a tagged union is asked for the one branch that the tag names.

    The same verdict: branches of one tag exclude each other, and the open branch excludes all known tags.
    """
    field, by_tag = _tags(id(branches), branches)
    if field is not None and isinstance(instance, dict) and isinstance(instance.get(field), str):
        branch = by_tag.get(instance[field])
        if branch is not None:
            yield from checker.descend(instance, branch)
            return
    yield from Draft202012Validator.VALIDATORS["anyOf"](checker, branches, instance, schema)


_Tagged: Any = extend(Draft202012Validator, validators={"anyOf": _any_of})

_TAGS: dict[int, tuple[str | None, dict[str, Any]]] = {}


def _tags(key: int, branches: list[Any]) -> tuple[str | None, dict[str, Any]]:
    if key not in _TAGS:
        _TAGS[key] = _find_tags(branches)
    return _TAGS[key]


def _find_tags(branches: list[Any]) -> tuple[str | None, dict[str, Any]]:
    by_tag: dict[str, Any] = {}
    fields: set[str] = set()
    for branch in branches:
        consts = [(name, prop["const"]) for name, prop in branch.get("properties", {}).items() if "const" in prop]
        if len(consts) == 1:
            fields.add(consts[0][0])
            by_tag[consts[0][1]] = branch
        elif "not" not in branch:
            return None, {}
    return (fields.pop(), by_tag) if len(fields) == 1 else (None, {})


def definition_for(method: str, kind: Kind, side: Side) -> str | None:
    """The name of the definition, or ``None`` for a method that the schema doesn't have there."""
    return _index().get((method, kind, side))


@cache
def _index() -> dict[tuple[str, Kind, str], str]:
    found: dict[tuple[str, Kind, str], str] = {}
    for name, definition in definitions().items():
        if "x-method" not in definition:
            continue
        kind: Kind = (
            "notification" if name.endswith("Notification") else "response" if name.endswith("Response") else "request"
        )
        sides = ("agent", "client", "proxy") if definition["x-side"] == "protocol" else (definition["x-side"],)
        for side in sides:
            found[definition["x-method"], kind, side] = name
    return found


class WireChecker:
    """Checks the lines of one connection against the schema, in the order in which they were written."""

    def __init__(self, *, allow_unknown_fields: bool = False) -> None:
        self._allow_unknown_fields = allow_unknown_fields
        self._open: dict[Side, dict[str | int, str]] = {"agent": {}, "client": {}, "proxy": {}}

    def agent_sent(self, line: str | bytes | dict[str, Any] | list[Any]) -> None:
        """A line that the agent wrote."""
        self._line("agent", line)

    def client_sent(self, line: str | bytes | dict[str, Any] | list[Any]) -> None:
        """A line that the client wrote."""
        self._line("client", line)

    def open_requests(self, side: Side) -> dict[str | int, str]:
        """Ids and methods of the requests that ``side`` has not answered."""
        return dict(self._open[side])

    def _line(self, sender: Side, line: str | bytes | dict[str, Any] | list[Any]) -> None:
        decoded = json.loads(line) if isinstance(line, (str, bytes)) else line
        if decoded == []:
            raise WireFault(f"{sender}: an empty batch")
        for message in decoded if isinstance(decoded, list) else [decoded]:
            try:
                self._message(sender, message)
            except WireFault as fault:
                raise WireFault(f"{sender}: {fault}: {json.dumps(message)[:1000]}") from None

    def _message(self, sender: Side, message: Any) -> None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise WireFault("no JSON-RPC 2.0 message")
        if "method" in message:
            self._call(sender, message)
        else:
            self._answer(sender, message)

    def _call(self, sender: Side, message: dict[str, Any]) -> None:
        extra = set(message) - {"jsonrpc", "id", "method", "params"}
        if extra:
            raise WireFault(f"unknown envelope fields {sorted(extra)}")
        receiver: Side = "client" if sender == "agent" else "agent"
        method = message["method"]
        kind: Kind = "request" if "id" in message else "notification"
        if kind == "request":
            if (fault := fault_in("RequestId", message["id"])) is not None:
                raise WireFault(fault)
            if message["id"] in self._open[receiver]:
                raise WireFault("the id of an open request again")
            self._open[receiver][message["id"]] = method
        if not isinstance(method, str):
            raise WireFault("method is no string")
        if method.startswith("_"):
            return
        params = message.get("params")
        self._value(method, kind, receiver, sender, {} if params is None else params)

    def _answer(self, sender: Side, message: dict[str, Any]) -> None:
        if "id" not in message or ("result" in message) == ("error" in message):
            raise WireFault("neither a call nor an answer")
        extra = set(message) - {"jsonrpc", "id", "result", "error"}
        if extra:
            raise WireFault(f"unknown envelope fields {sorted(extra)}")
        method = self._open[sender].pop(message["id"], None) if message["id"] is not None else None
        if "error" in message:
            if (fault := fault_in("Error", message["error"])) is not None:
                raise WireFault(fault)
            if method is None and message["id"] is not None:
                raise WireFault("an answer to no open request")
            return
        if method is None:
            raise WireFault("an answer to no open request")
        if not method.startswith("_"):
            self._value(method, "response", sender, sender, message["result"])

    def _value(self, method: str, kind: Kind, side: Side, sender: Side, value: object) -> None:
        name = definition_for(method, kind, side)
        if name is None:
            raise WireFault(f"no {kind} {method} is served by the {side}")
        if (fault := fault_in(name, value)) is not None:
            raise WireFault(fault)
        if sender == "agent" and not self._allow_unknown_fields:
            ours = served(side, "notification" if kind == "notification" else "request")[method]
            if unknown := _unknown_fields(ours, kind, value):
                raise WireFault(f"unknown fields {unknown}")


def _unknown_fields(method: Method, kind: Kind, value: object) -> list[str]:
    wire_type = method.result_type() if kind == "response" else method.params_type()
    try:
        validator(wire_type).validate_python(value, strict=True, extra="forbid")
    except ValidationError as error:
        return [
            ".".join(str(part) for part in fault["loc"] if not str(part).startswith(INTERNAL))
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
            if fault["type"] == "extra_forbidden"
            and not any(str(part).lstrip(INTERNAL + "_").startswith("Unknown") for part in fault["loc"][:-1])
        ]
    return []
