"""Questions of the model and of MCP servers as ``elicitation/create`` requests, and the client's result as an answer.

Pure. Forms are for clients that can show them (ELI-1), and never ask for secrets (ELI-3). What comes back is checked
against the form that was sent (ELI-4): whatever does not fit counts as no answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final
from urllib.parse import urlsplit

from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text

__all__ = [
    "asks_secret",
    "can",
    "checked",
    "form",
    "form_schema",
    "question_answers",
    "question_form",
    "safe_url",
    "url_request",
]

_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|passcode|secret|credential|private[ _-]?key|api[ _-]?key|access[ _-]?key"
    r"|(?<![a-z])(token|pin|cvv|cvc|otp|ssn)(?![a-z])",
    re.IGNORECASE,
)
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}


def can(capabilities: Json, mode: str) -> bool:
    """Whether the client can ask its user in this mode: ``form`` or ``url``."""
    return as_mapping(capabilities.get("elicitation")).get(mode) is not None


def form(session_id: str, message: str, schema: Block, tool_call_id: str = "") -> Block:
    """The params of a form."""
    params: Block = {"mode": "form", "sessionId": session_id, "message": message, "requestedSchema": schema}
    return params | {"toolCallId": tool_call_id} if tool_call_id else params


# AskUserQuestion


def question_form(session_id: str, request: Json) -> Block | None:
    """The form for an ``AskUserQuestion`` call; ``None`` for one that asks nothing that can be shown.

    Each question is a choice, and a field for an answer of the user's own beside it.
    """
    questions = _questions(request)
    properties: Block = {}
    for key, question in questions.items():
        header = as_text(question.get("header"))
        text = as_text(question.get("question"))
        choices = _choices(question)
        field: Block = {"title": header, "description": text} if header else {"title": text}
        if question.get("multiSelect") is True and choices:
            properties[key] = {"type": "array", **field, "items": {"anyOf": choices}}
        elif choices:
            properties[key] = {"type": "string", **field, "oneOf": choices}
        other = f"{header or 'Answer'}: something else" if choices else header or text
        properties[f"{key}_other"] = {"type": "string", "title": other}
    if not properties:
        return None
    [first, *more] = questions.values()
    message = as_text(first.get("question")) if not more else f"Claude has {len(questions)} questions"
    schema: Block = {"type": "object", "properties": properties}
    return form(session_id, message, schema, as_text(request.get("tool_use_id")))


def question_answers(request: Json, content: object) -> dict[str, str] | None:
    """The answers by question, as the tool takes them: several labels in one string. ``None`` when nothing fits."""
    form = question_form("", request)
    values = checked(as_mapping((form or {}).get("requestedSchema")), content)
    if values is None:
        return None
    answers: dict[str, str] = {}
    for key, question in _questions(request).items():
        chosen = values.get(key)
        labels = [as_text(chosen)] if isinstance(chosen, str) else [as_text(label) for label in as_list(chosen)]
        if other := as_text(values.get(f"{key}_other")).strip():
            # Their own words stand beside what they ticked, or instead of the one choice.
            labels = [*labels, other] if question.get("multiSelect") is True else [other]
        if labels:
            answers[as_text(question.get("question"))] = ", ".join(labels)
    return answers or None


def _questions(request: Json) -> dict[str, Json]:
    asked = map(as_mapping, as_list(as_mapping(request.get("input")).get("questions")))
    valid = [question for question in asked if as_text(question.get("question")).strip()]
    return {f"question_{number}": question for number, question in enumerate(valid, 1)}


def _choices(question: Json) -> list[Block]:
    choices: dict[str, Block] = {}
    for option in map(as_mapping, as_list(question.get("options"))):
        label, description = as_text(option.get("label")), as_text(option.get("description"))
        if label:
            choice = {"const": label, "title": label}
            choices[label] = choice | {"description": description} if description else choice
    return list(choices.values())


# MCP servers


def form_schema(schema: Json, order: object = ()) -> Block | None:
    """A server's ``requestedSchema`` as the wire has it; ``None`` when it holds what no form can show.

    ``order`` names the fields in the server's order.
    """
    properties = as_mapping(schema.get("properties"))
    names = list(dict.fromkeys([*(n for n in as_list(order) if isinstance(n, str) and n in properties), *properties]))
    fields: Block = {}
    for name in names:
        field = _field(as_mapping(properties[name]))
        if field is None:
            return None
        fields[name] = field
    result: Block = {"type": "object", "properties": fields}
    required = [name for name in as_list(schema.get("required")) if name in fields]
    return result | {"required": required} if required else result


def asks_secret(schema: Json) -> bool:
    """Whether a form asks for something that must not be typed into one (ELI-3)."""
    for name, value in as_mapping(schema.get("properties")).items():
        field = as_mapping(value)
        if field.get("type") == "boolean":
            continue
        if field.get("format") == "password" or field.get("writeOnly") is True:
            return True
        # Separated, so that words are found in camelCase and snake_case names.
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)
        if _SECRET.search(words) or _SECRET.search(name) or _SECRET.search(as_text(field.get("title"))):
            return True
    return False


def safe_url(url: str) -> bool:
    """Whether a user may be sent to this page: HTTPS, or this machine itself, and no credentials in it (ELI-6)."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if not host or parts.username is not None or parts.password is not None or not url.isprintable() or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1"))


def url_request(session_id: str, elicitation_id: str, message: str, url: str) -> Block:
    """The params of a visit to a page."""
    return {
        "mode": "url",
        "sessionId": session_id,
        "message": message,
        "elicitationId": elicitation_id,
        "url": url,
    }


def _field(field: Json) -> Block | None:
    kind = as_text(field.get("type"))
    if kind not in _LIMITS:
        return None
    result: Block = {"type": kind}
    result |= {key: as_text(field[key]) for key in ("title", "description") if as_text(field.get(key))}
    for key in _LIMITS[kind]:
        value = field.get(key)
        if isinstance(value, str if key == "pattern" else int | float) and not isinstance(value, bool):
            result[key] = value
    if kind == "string" and as_text(field.get("format")) in _FORMATS:
        result["format"] = field["format"]
    choices = _enumeration(field if kind == "string" else as_mapping(field.get("items")))
    if kind == "array":
        if not choices:
            return None
        result["items"] = {"anyOf": choices}
    elif choices:
        result["oneOf"] = choices
    if "default" in field and _fits(result, field["default"]):
        result["default"] = field["default"]
    return result


def _enumeration(field: Json) -> list[Block]:
    """The values of ``enum`` (with ``enumNames``), ``oneOf`` or ``anyOf``."""
    names = [as_text(name) for name in as_list(field.get("enumNames"))]
    pairs = [(as_text(value), names[i] if i < len(names) else "") for i, value in enumerate(as_list(field.get("enum")))]
    entries = map(as_mapping, as_list(field.get("oneOf")) or as_list(field.get("anyOf")))
    pairs += [(as_text(entry.get("const")), as_text(entry.get("title"))) for entry in entries]
    return [{"const": value, "title": name or value} for value, name in dict(pairs).items() if value]


# Answers


def checked(schema: Json, content: object) -> Block | None:
    """The values of a form that was filled in; ``None`` when one does not fit or a required one is missing (ELI-4)."""
    given, fields = as_mapping(content), as_mapping(schema.get("properties"))
    values: Block = {}
    for name, field in fields.items():
        value = given.get(name)
        if value is None or (value == "" and name not in as_list(schema.get("required"))):
            continue
        if not _fits(as_mapping(field), value):
            return None
        values[name] = int(value) if field.get("type") == "integer" else value
    return values if all(name in values for name in as_list(schema.get("required"))) else None


def _fits(field: Json, value: Any) -> bool:
    match field.get("type"):
        case "string":
            return isinstance(value, str) and _text_fits(field, value)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            allowed = [choice["const"] for choice in field["items"]["anyOf"]]
            return (
                isinstance(value, list)
                and all(item in allowed for item in value)  # pyright: ignore[reportUnknownVariableType]
                and _within(len(value), field.get("minItems"), field.get("maxItems"))  # pyright: ignore
            )
        case kind:
            return (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and (isinstance(value, int) or value.is_integer() or (kind == "number" and isfinite(value)))
                and _within(value, field.get("minimum"), field.get("maximum"))
            )


def _text_fits(field: Json, value: str) -> bool:
    if "oneOf" in field:
        return value in [choice["const"] for choice in field["oneOf"]]
    if not _within(len(value), field.get("minLength"), field.get("maxLength")):
        return False
    try:
        return "pattern" not in field or re.search(field["pattern"], value) is not None
    except re.error:
        return True  # not for us to judge: the server checks it too


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)
