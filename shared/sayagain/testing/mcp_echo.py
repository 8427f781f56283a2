"""A Model Context Protocol server over stdio with one tool, ``echo``: enough for a recording, and for tests.

Run as ``python -m sayagain.testing.mcp_echo``, or by path: it imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["answer", "main"]

_TOOL = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of a request; ``None`` if the method is unknown."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }
        case "tools/list":
            return {"tools": [_TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"echo: {params['arguments']['text']}"}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        outcome = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
