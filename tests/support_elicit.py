"""An MCP server over stdio whose tools ask the user: by a form, for a secret, for a yes, on a page.

Run by path: it imports nothing of ours. Each tool's result is what the client answered.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["FORM", "main"]

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 2},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "colour": {"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]},
    },
    "required": ["name"],
}

ASKS: dict[str, dict[str, Any]] = {
    "form": {"message": "Who are you?", "requestedSchema": FORM},
    "secret": {
        "message": "Log in",
        "requestedSchema": {"type": "object", "properties": {"apiKey": {"type": "string"}}},
    },
    "sure": {"message": "Are you sure?", "requestedSchema": {"type": "object", "properties": {}}},
    "page": {"mode": "url", "elicitationId": "visit-1", "url": "https://example.com/go", "message": "Sign in there"},
}


def main() -> None:
    """Serve until standard input ends."""
    calls: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        method, message_id = message.get("method"), message.get("id")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "asker", "version": "1"}
            _send(message_id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            schema = {"type": "object", "properties": {}}
            _send(message_id, {"tools": [{"name": n, "description": n, "inputSchema": schema} for n in ASKS]})
        elif method == "tools/call":
            name = message["params"]["name"]
            calls[f"ask-{message_id}"] = message_id
            _write({"id": f"ask-{message_id}", "method": "elicitation/create", "params": ASKS[name]})
        elif method is None and message_id in calls:
            text = json.dumps(message.get("result", message.get("error")))
            _send(calls.pop(message_id), {"content": [{"type": "text", "text": text}]})
        elif message_id is not None:
            _send(message_id, {})


def _send(message_id: Any, result: dict[str, Any]) -> None:
    _write({"id": message_id, "result": result})


def _write(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    main()
