"""The command line and environment of a Claude Code process: one place for every flag that we rely on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.runtime.seam import SessionSetup

__all__ = ["check_setup", "command_line", "environment", "initialize", "mcp_servers"]

LONGEST_PATH: Final = 4096
"""Bytes of a path that the system takes (``PATH_MAX`` on Linux, less elsewhere)."""


def command_line(executable: str, session_id: str, setup: SessionSetup, *, stored: bool) -> list[str]:
    """The arguments for a session. ``stored`` resumes it; else the id becomes that of a new one (measured: the CLI
    refuses each where the other is right).

    Other users of the machine can read it: nothing of what the client says belongs here but paths.
    """
    arguments = [
        executable,
        "--output-format=stream-json",
        "--input-format=stream-json",
        "--verbose",
        "--include-partial-messages",
        # The stored rows on standard output: the one proof of insertion (measured).
        "--session-mirror",
        "--permission-prompt-tool=stdio",
        # The equals form binds values that begin with a dash.
        f"--resume={session_id}" if stored else f"--session-id={session_id}",
    ]
    for directory in setup.additional_directories:
        arguments += ["--add-dir", directory]
    return arguments


def check_setup(setup: SessionSetup) -> None:
    """Raise :class:`InvalidParams` for paths that no process can be started with. Looks at the disk."""
    if not os.path.isdir(setup.cwd):  # noqa: PTH112 - a path that no file can have is none, and no error
        raise InvalidParams("cwd", "is no directory")
    for index, directory in enumerate(setup.additional_directories):
        try:
            encoded = os.fsencode(directory)
        except UnicodeEncodeError:
            encoded = b"\0"
        if b"\0" in encoded or len(encoded) > LONGEST_PATH:
            raise InvalidParams(f"additionalDirectories.{index}", "is no path")


def initialize(setup: SessionSetup) -> dict[str, Any]:
    """The first control request. The system prompt goes with it, where its size and characters do not matter."""
    request: dict[str, Any] = {
        "subtype": "initialize",
        "hooks": None,
        "forwardSubagentText": True,
        # Each task can be stopped by itself here; without this word an interrupt ends them all (measured, CAN-1).
        "perTaskStopAffordance": True,
    }
    if setup.system_prompt is not None:
        text = "\n\n".join(block["text"] for block in setup.system_prompt["content"])
        if setup.system_prompt["mode"] == "append":
            request["appendSystemPrompt"] = text
        else:
            request["systemPrompt"] = [text]
    return request


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, with what makes the CLI keep the promises that we build on."""
    result = dict(env)
    # Set inside Claude Code's own shells; the CLI would take itself for a nested one.
    result.pop("CLAUDECODE", None)
    result.setdefault("CLAUDE_CODE_ENTRYPOINT", "sdk-py")
    # The user row is on disk before the model is asked (measured: 4 of 4 kills at system/init, 0 of 4 without).
    result["CLAUDE_CODE_EAGER_FLUSH"] = "1"
    # session_state_changed is the authoritative word on running and idle.
    result["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    return result


def mcp_servers(servers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The client's MCP servers as the CLI takes them, by name. Repeated variable names: the last wins (NEW-3)."""
    result: dict[str, dict[str, Any]] = {}
    for server in servers:
        if server["type"] == "http":
            headers = {header["name"]: header["value"] for header in server.get("headers") or ()}
            result[server["name"]] = {"type": "http", "url": server["url"], "headers": headers}
        else:
            variables = {variable["name"]: variable["value"] for variable in server.get("env") or ()}
            result[server["name"]] = {
                "type": "stdio",
                "command": server["command"],
                "args": list(server.get("args") or ()),
                "env": variables,
            }
    return result
