"""The first exchange of a connection: version, names, capabilities."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import NotRequired

from sayagain.protocol.v2.auth import AuthMethod
from sayagain.protocol.v2.capabilities import AgentCapabilities, ClientCapabilities
from sayagain.protocol.v2.scalars import Object, ProtocolVersion

__all__ = ["Implementation", "InitializeRequest", "InitializeResponse"]


class Implementation(Object):
    """Who is on the other side: ``name`` for programs, ``title`` for people (INI-2)."""

    name: str
    title: NotRequired[str | None]
    version: str


class InitializeRequest(Object):
    """``protocolVersion`` is the highest that the client speaks (INI-1)."""

    protocolVersion: ProtocolVersion
    info: Implementation
    capabilities: NotRequired[ClientCapabilities | None]


class InitializeResponse(Object):
    """``protocolVersion`` is the highest in common; a non-empty ``authMethods`` promises login and logout (INI-6)."""

    protocolVersion: ProtocolVersion
    info: Implementation
    capabilities: NotRequired[AgentCapabilities | None]
    authMethods: NotRequired[list[AuthMethod]]
