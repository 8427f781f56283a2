"""Questions that want data: the model's own (``request_user_input``), and MCP servers' elicitations.

Asked by ``elicitation/create`` in the modes that the client has (ELI-1). What comes back is looked at again (ELI-4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text, clean

__all__ = ["input_request", "input_response", "mcp_request", "mcp_response"]

_METHOD: Final = "elicitation/create"
_OTHER: Final = ".other"
"""Suffix of the field for an answer in the user's own words."""

_DECLINED: Final[Block] = {"action": "decline", "content": None, "_meta": None}

_LIMITS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "string": {"minLength": int, "maxLength": int, "pattern": str, "format": str, "default": str},
    "number": {"minimum": (int, float), "maximum": (int, float), "default": (int, float)},
    "integer": {"minimum": int, "maximum": int, "default": int},
    "boolean": {"default": bool},
    "array": {"minItems": int, "maxItems": int},
}


def _can(capabilities: Mapping[str, Any] | None, mode: str) -> bool:
    return capabilities is None or as_mapping(capabilities.get("elicitation")).get(mode) is not None


# The model's questions


def _questions(params: Json) -> list[Json]:
    """The questions that can be asked in a form: a secret has no place in one (ELI-3)."""
    questions = [as_mapping(question) for question in as_list(params.get("questions"))]
    return [q for q in questions if as_text(q.get("id")) and q.get("isSecret") is not True]


def input_request(
    session_id: str, params: Json, capabilities: Mapping[str, Any] | None
) -> tuple[str, Mapping[str, Any]] | None:
    """The form for ``item/tool/requestUserInput``; a permission request for one choice where there are no forms."""
    questions = _questions(params)
    if not questions:
        return None
    if not _can(capabilities, "form"):
        return _choice(session_id, questions)
    properties: dict[str, Block] = {}
    required: list[str] = []
    for question in questions:
        name = as_text(question["id"])
        field: Block = {"type": "string", "title": as_text(question.get("header")) or as_text(question.get("question"))}
        if as_text(question.get("question")):
            field["description"] = as_text(question["question"])
        options = _options(question)
        if options:
            field["oneOf"] = [
                {"const": label, "title": label, **({"description": text} if text else {})} for label, text in options
            ]
        properties[name] = field
        if options and question.get("isOther") is True:
            properties[name + _OTHER] = {"type": "string", "title": "Or in your own words"}
        else:
            required.append(name)
    schema: Block = {"type": "object", "properties": properties, "required": required}
    message = as_text(questions[0].get("question")) if len(questions) == 1 else "Codex has some questions"
    params_: Block = {
        "mode": "form",
        "sessionId": session_id,
        "message": message or "Codex has a question",
        "requestedSchema": schema,
    }
    return _METHOD, params_


def input_response(params: Json, result: Mapping[str, Any] | None) -> Block:
    """The answers, by question; a question without one has an empty list."""
    names = [as_text(as_mapping(question).get("id")) for question in as_list(params.get("questions"))]
    answers: dict[str, list[str]] = {name: [] for name in names if name}
    given = as_mapping(result)
    outcome = as_mapping(given.get("outcome"))
    content = as_mapping(given.get("content") if given.get("action") == "accept" else None)
    for question in _questions(params):
        name, labels = as_text(question["id"]), [label for label, _ in _options(question)]
        other = as_text(content.get(name + _OTHER))
        chosen = as_text(content.get(name))
        if other.strip():
            answers[name] = [other]
        elif chosen and (not labels or chosen in labels):
            answers[name] = [chosen]
        elif outcome.get("outcome") == "selected" and as_text(outcome.get("optionId")) in labels:
            answers[name] = [as_text(outcome["optionId"])]
    return {"answers": {name: {"answers": texts} for name, texts in answers.items()}}


def _options(question: Json) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for option in map(as_mapping, as_list(question.get("options"))):
        label = as_text(option.get("label"))
        if label:
            found.setdefault(label, as_text(option.get("description")))
    return list(found.items())


def _choice(session_id: str, questions: Sequence[Json]) -> tuple[str, Mapping[str, Any]] | None:
    options = _options(questions[0])
    if len(questions) > 1 or not options:
        return None
    question = questions[0]
    ask: Block = {
        "sessionId": session_id,
        "title": as_text(question.get("question")) or as_text(question.get("header")) or "Codex has a question",
        "options": [{"optionId": label, "name": label, "kind": "allow_once"} for label, _ in options],
    }
    details = "\n".join(f"- {label}: {text}" for label, text in options if text)
    if details:
        ask["description"] = details
    return "session/request_permission", ask


# MCP servers' elicitations


def mcp_request(
    session_id: str, params: Json, capabilities: Mapping[str, Any] | None
) -> tuple[str, Mapping[str, Any]] | None:
    """The ``elicitation/create`` for one of an MCP server; ``None`` for modes that the client doesn't have."""
    server, message = as_text(params.get("serverName")), as_text(params.get("message"))
    ask: Block = {"sessionId": session_id, "message": message or f"{server or 'An MCP server'} asks for input"}
    mode = as_text(params.get("mode"))
    if mode == "url" and _can(capabilities, "url"):
        url, elicitation_id = as_text(params.get("url")), as_text(params.get("elicitationId"))
        return (_METHOD, {"mode": "url", **ask, "elicitationId": elicitation_id, "url": url}) if url else None
    if mode == "form" and _can(capabilities, "form"):
        schema = _schema(as_mapping(params.get("requestedSchema")))
        return (_METHOD, {"mode": "form", **ask, "requestedSchema": schema}) if schema is not None else None
    return None


def mcp_response(params: Json, result: Mapping[str, Any] | None) -> Block:
    """The MCP answer. Content that the form did not ask for, of another type or outside of its limits is no answer."""
    action = as_text(as_mapping(result).get("action"))
    if result is None:
        return dict(_DECLINED)
    if action == "decline":
        return dict(_DECLINED)
    if action != "accept":
        return {"action": "cancel", "content": None, "_meta": None}
    if params.get("mode") == "url":
        return {"action": "accept", "content": None, "_meta": None}
    schema = as_mapping(params.get("requestedSchema"))
    properties = as_mapping(schema.get("properties"))
    given = as_mapping(result.get("content"))
    content = {name: clean(value) for name, value in given.items() if _fits(as_mapping(properties.get(name)), value)}
    missing = [name for name in map(as_text, as_list(schema.get("required"))) if name not in content]
    return dict(_DECLINED) if missing else {"action": "accept", "content": content, "_meta": None}


def _fits(field: Json, value: object) -> bool:
    match field.get("type"):
        case "string":
            choices = _choices(field)
            return isinstance(value, str) and (value in dict(choices) if choices else _text_fits(field, value))
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return type(value) is int and _within(value, field, "minimum", "maximum")
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                return False
            return _within(value, field, "minimum", "maximum")
        case "array":
            allowed, items = dict(_choices(as_mapping(field.get("items")))), as_list(value)
            known = isinstance(value, list) and all(as_text(item) in allowed for item in items)
            return known and _within(len(items), field, "minItems", "maxItems")
        case _:
            return False


def _text_fits(field: Json, value: str) -> bool:
    if not _within(len(value), field, "minLength", "maxLength"):
        return False
    try:
        return re.search(as_text(field.get("pattern")), value) is not None
    except re.error:
        return True  # in a dialect that is not ours: the server checks it too


def _within(value: float, field: Json, least: str, most: str) -> bool:
    """Whether a number is in the limits of a field, those that are numbers themselves."""
    low, high = field.get(least), field.get(most)
    return not (isinstance(low, int | float) and value < low) and not (isinstance(high, int | float) and value > high)


def _schema(schema: Json) -> Block | None:
    """An MCP form as an ACP form; ``None`` when a field that it requires is of an unknown type."""
    properties: dict[str, Block] = {}
    for name, value in as_mapping(schema.get("properties")).items():
        field = _field(as_mapping(value))
        if field is not None:
            properties[as_text(name)] = field
    required = [name for name in map(as_text, as_list(schema.get("required"))) if name]
    if any(name not in properties for name in required):
        return None
    found: Block = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return found


def _field(value: Json) -> Block | None:
    kind = as_text(value.get("type"))
    limits = _LIMITS.get(kind)
    if limits is None:
        return None
    field: Block = {"type": kind}
    for name in ("title", "description"):
        if as_text(value.get(name)):
            field[name] = as_text(value[name])
    for name, wanted in limits.items():
        limit = value.get(name)
        if isinstance(limit, wanted) and (kind == "boolean" or not isinstance(limit, bool)):
            field[name] = clean(limit)
    choices = _choices(as_mapping(value.get("items")) if kind == "array" else value)
    titled = [{"const": const, "title": title} for const, title in choices]
    if kind == "array":
        if not choices:
            return None
        field["items"] = {"anyOf": titled}
    elif kind == "string" and choices:
        field["oneOf"] = titled
    return field


def _choices(value: Json) -> list[tuple[str, str]]:
    """The values of an enumeration with their titles, in any of MCP's three forms."""
    titled = as_list(value.get("oneOf")) or as_list(value.get("anyOf"))
    pairs = [(as_text(as_mapping(choice).get("const")), as_text(as_mapping(choice).get("title"))) for choice in titled]
    if not pairs:
        names = [as_text(name) for name in as_list(value.get("enumNames"))]
        consts = [as_text(const) for const in as_list(value.get("enum"))]
        pairs = [(const, names[index] if index < len(names) else const) for index, const in enumerate(consts)]
    return [(const, title or const) for const, title in pairs if const]
