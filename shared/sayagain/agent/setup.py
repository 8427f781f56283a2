"""From the parameters of ``session/new``, ``resume`` and ``fork`` to a :class:`SessionSetup`.

The types check shapes; here is what depends on the runtime: kinds that it does not support are refused before any
session exists (NEW-3, NEW-8, NEW-5), with the field named.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.runtime.capabilities import RuntimeCapabilities
from sayagain.runtime.seam import SessionSetup

__all__ = ["changed", "check_prompt", "plain_title", "session_setup"]

_TURNING: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def session_setup(
    params: Mapping[str, Any], capabilities: RuntimeCapabilities, client_capabilities: Mapping[str, Any]
) -> SessionSetup:
    """The setup that validated ``params`` ask for; :class:`InvalidParams` for what the runtime can't do."""
    directories: Sequence[str] = params.get("additionalDirectories") or ()
    if directories and not capabilities.additional_directories:
        raise InvalidParams("additionalDirectories", "additional directories are not supported")
    servers: Sequence[Mapping[str, Any]] = params.get("mcpServers") or ()
    transports = {"stdio": capabilities.mcp_stdio, "http": capabilities.mcp_http}
    names: set[str] = set()
    for index, server in enumerate(servers):
        kind = server.get("type")
        if not transports.get(str(kind), False):
            raise InvalidParams(f"mcpServers.{index}.type", "this MCP transport is not supported")
        if server["name"] in names:
            raise InvalidParams(f"mcpServers.{index}.name", "two MCP servers have this name")
        names.add(server["name"])
    prompt: Mapping[str, Any] | None = params.get("systemPrompt")
    if prompt is not None:
        if prompt["mode"] not in capabilities.system_prompt_modes:
            raise InvalidParams("systemPrompt.mode", "this mode is not supported")
        for index, block in enumerate(prompt["content"]):
            if block.get("type") != "text":
                raise InvalidParams(f"systemPrompt.content.{index}.type", "only text is supported")
    return SessionSetup(
        cwd=params["cwd"],
        additional_directories=tuple(directories),
        mcp_servers=tuple(servers),
        system_prompt=prompt,
        client_capabilities=client_capabilities,
    )


def check_prompt(blocks: Sequence[Mapping[str, Any]], capabilities: RuntimeCapabilities) -> None:
    """Refuse what the runtime can't take, before anything is reserved (PRM-3, INI-7)."""
    if not blocks:
        raise InvalidParams("prompt", "must have at least one content block")
    supported = {
        "text": True,
        "resource_link": True,
        "image": capabilities.image,
        "audio": capabilities.audio,
        "resource": capabilities.embedded_context,
    }
    for index, block in enumerate(blocks):
        if not supported.get(str(block.get("type")), False):
            raise InvalidParams(f"prompt.{index}.type", "this kind of content is not supported")


def changed(kept: SessionSetup, asked: SessionSetup) -> Sequence[str]:
    """What a resume asks for that an active session was not opened with; what it leaves out it may not know."""
    was, wanted = _comparable(kept), _comparable(asked)
    return [what for what, value in wanted.items() if value and value != was[what]]


def _comparable(setup: SessionSetup) -> Mapping[str, object]:
    """What of a setup counts, by its name for users: not how paths are written, no order, no ``null`` (RPC-6)."""
    servers = [{name: value for name, value in server.items() if value is not None} for server in setup.mcp_servers]
    return {
        "working directory": posixpath.normpath(setup.cwd),
        "additional directories": {posixpath.normpath(path) for path in setup.additional_directories},
        "MCP servers": sorted(servers, key=lambda server: str(server.get("name"))),
        "system prompt": setup.system_prompt,
    }


def plain_title(title: str) -> str:
    """One line without what a list cannot show: control characters, and those that turn the direction of what follows
    (TTL-1)."""
    shown = (" " if c < " " or "\x7f" <= c <= "\x9f" or c in _TURNING else c for c in title)
    return " ".join("".join(shown).split())
