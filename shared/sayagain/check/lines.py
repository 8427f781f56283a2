"""Lines of the wire in few words, for people."""

from __future__ import annotations

import json
from typing import Any, Final

from sayagain.check.trace import Event, as_mapping, blocks_text
from sayagain.legible import excerpt

__all__ = ["describe", "label"]

LONGEST: Final = 60
"""Characters of a text that are shown."""

LONGEST_LINE: Final = 400
"""Characters of a line."""


def describe(event: Event) -> str:
    """A line with its place: ``#12 client -> session/prompt …``."""
    arrow = {"client": "client ->", "agent": "<- agent ", "note": "   note  "}[event.side]
    return f"#{event.index} {arrow} {label(event)}"


def label(event: Event) -> str:
    """What a line says, fit to be shown."""
    return _short(_label(event), LONGEST_LINE)


def _label(event: Event) -> str:
    if event.side == "note":
        return event.text
    if not event.is_object:
        return f"no JSON-RPC message: {_short(event.text)}"
    if event.kind:
        return _update(event.update)
    if event.method is not None:
        number = f" (id {_json(event.message['id'])})" if "id" in event.message else ""
        return f"{event.method}{number}{_params(event.method, event.params)}"
    fields = as_mapping(event.message)
    if "error" in fields:
        error = as_mapping(fields["error"])
        return f"error {error.get('code')} to id {_json(fields.get('id'))}: {_short(str(error.get('message')))}"
    return f"result of id {_json(fields.get('id'))}{_result(as_mapping(fields.get('result')))}"


def _update(update: dict[str, Any]) -> str:
    kind = str(update["sessionUpdate"])
    told: list[str] = [kind]
    for name in ("messageId", "toolCallId", "sessionId", "state", "stopReason", "status", "title"):
        value = update.get(name)
        if isinstance(value, str):
            told.append(_id(value) if name.endswith("Id") else _short(value))
    content = update.get("content")
    if kind.endswith("_chunk"):
        content = [content]
    if kind.startswith(("user_message", "agent_message", "agent_thought")) and "content" in update:
        told.append(_quoted(blocks_text(content)))
    return " ".join(told)


def _params(method: str, params: dict[str, Any]) -> str:
    told: list[str] = []
    if method == "session/prompt":
        told.append(_quoted(blocks_text(params.get("prompt"))))
        if "idempotencyKey" in params:
            told.append(f"key {_short(json.dumps(params['idempotencyKey']), 30)}")
    if "replayFrom" in params:
        told.append(f"replayFrom {_short(json.dumps(params['replayFrom']))}")
    if "requestId" in params:
        told.append(f"of id {_json(params['requestId'])}")
    if "protocolVersion" in params:
        told.append(f"version {params['protocolVersion']}")
    if isinstance(params.get("sessionId"), str):
        told.append(f"session {_id(params['sessionId'])}")
    return f" {', '.join(told)}" if told else ""


def _result(result: dict[str, Any]) -> str:
    for name in ("messageId", "sessionId", "protocolVersion"):
        if name in result:
            return f": {name} {_id(str(result[name]))}"
    return ""


def _json(value: object) -> str:
    """Ids that differ look different: 1 is not "1"."""
    return _short(json.dumps(value), 40)


def _id(value: str) -> str:
    """Ids that differ, differ at one of their ends."""
    return value if len(value) <= 18 else f"{value[:8]}…{value[-6:]}"


def _quoted(text: str) -> str:
    return f'"{_short(text)}"'


def _short(text: str, longest: int = LONGEST) -> str:
    # What an agent writes may be as long as a line is allowed to be.
    return excerpt(text[: 4 * longest], longest)
