"""What a JSON-RPC message looks like, as strictly as ACP says it. Nothing here repairs or guesses."""

from __future__ import annotations

from typing import Any, TypeGuard, cast

__all__ = ["flaw", "is_id"]


def is_id(value: object) -> TypeGuard[str | int]:
    """Whether this is an id: a string or an integer (RPC-2). A boolean is an ``int`` to Python only."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def flaw(message: object) -> str:
    """What is wrong with a message; empty if nothing is."""
    if not isinstance(message, dict):
        return "it is no object"
    fields = cast("dict[str, Any]", message)
    if "jsonrpc" not in fields:
        return 'it has no "jsonrpc": "2.0"'
    if fields["jsonrpc"] != "2.0":
        return 'its jsonrpc is not "2.0"'
    return _asking(fields) if "method" in fields else _answering(fields)


def _asking(fields: dict[str, Any]) -> str:
    if not isinstance(fields["method"], str):
        return "its method is no string"
    if "id" in fields and not is_id(fields["id"]):
        return "its id is neither a string nor an integer"
    if "result" in fields or "error" in fields:
        return "it is a request and an answer in one"
    if not isinstance(fields.get("params"), dict | None):
        return "its params are no object"
    return ""


def _answering(fields: dict[str, Any]) -> str:
    if "result" not in fields and "error" not in fields:
        return "it has no method, no result and no error"
    if "result" in fields and "error" in fields:
        return "it has a result and an error"
    request_id = fields.get("id")
    # Of a request that could not be read nobody knows the id.
    if not is_id(request_id) and (request_id is not None or "id" not in fields or "result" in fields):
        return "its id is neither a string nor an integer"
    if "error" in fields:
        error = fields["error"]
        if not isinstance(error, dict):
            return "its error is no object"
        code, said = (cast("dict[str, Any]", error).get(name) for name in ("code", "message"))
        if not isinstance(code, int) or isinstance(code, bool):
            return "its error has no code that is an integer"
        if not isinstance(said, str):
            return "its error has no message that is a string"
    return ""
