"""A Model Context Protocol server over stdio with one tool, ``ask``, that asks the user: for recordings, and for tests.

``ask`` takes ``mode``: ``form`` elicits a colour, ``url`` sends the user to a page. Its result says what came back.
Run as ``python -m sayagain.testing.mcp_asking``, or by path: it imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["elicitation", "main"]

_TOOL = {
    "name": "ask",
    "description": "Ask the user.",
    "annotations": {"readOnlyHint": True},
    "inputSchema": {"type": "object", "properties": {"mode": {"type": "string"}}, "required": ["mode"]},
}
_FORM = {
    "type": "object",
    "properties": {"colour": {"type": "string", "title": "Colour", "description": "Any will do"}},
    "required": ["colour"],
}


def elicitation(mode: str) -> dict[str, Any]:
    """The parameters of ``elicitation/create``."""
    if mode == "url":
        where = {"elicitationId": "page-1", "url": "https://example.com/page"}
        return {"mode": "url", "message": "Look at this page.", **where}
    return {"mode": "form", "message": "Which colour?", "requestedSchema": _FORM}


def _say(message: Mapping[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def _ask(arguments: Mapping[str, Any]) -> dict[str, Any]:
    _say({"id": "ask-1", "method": "elicitation/create", "params": elicitation(arguments["mode"])})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "ask-1":
            answer = json.dumps(message.get("result", message.get("error")), sort_keys=True)
            return {"content": [{"type": "text", "text": f"answer: {answer}"}]}
    raise SystemExit("the client went away")


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        params: Mapping[str, Any] = message.get("params") or {}
        match message["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "asking", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [_TOOL]}
            case "tools/call":
                result = _ask(params["arguments"])
            case _:
                _say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
                continue
        _say({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
