"""MCP servers that a client gives to a session, and MCP over ACP (``acp`` servers, ``mcp/message``: unstable)."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.auth import EnvVariable
from sayagain.protocol.v2.markers import Open, Rule
from sayagain.protocol.v2.scalars import AbsolutePath, Int32, McpRequestId, McpServerAcpId, Object, Uri

__all__ = [
    "HttpHeader",
    "McpError",
    "McpServer",
    "McpServerAcp",
    "McpServerHttp",
    "McpServerStdio",
    "MessageMcpRequest",
    "MessageMcpResponse",
    "MessageMcpResult",
    "UnknownMcpServer",
]


class HttpHeader(Object):
    """One header of every request to an HTTP server."""

    name: str
    value: str


class McpServerStdio(Object):
    """A server that the agent starts. Of equal names in ``env`` the last one counts (NEW-3)."""

    type: Literal["stdio"]
    name: str
    command: AbsolutePath
    args: NotRequired[list[str] | None]
    env: NotRequired[list[EnvVariable] | None]


class McpServerHttp(Object):
    """A server that the agent reaches over HTTP."""

    type: Literal["http"]
    name: str
    url: Uri
    headers: NotRequired[list[HttpHeader] | None]


class McpServerAcp(Object):
    """A server that lives on this connection and is reached by ``mcp/message``."""

    type: Literal["acp"]
    name: str
    serverId: McpServerAcpId


class UnknownMcpServer(TypedDict):
    """A transport that this version does not know; a session with it is refused (NEW-3)."""

    type: str


McpServer: TypeAlias = Annotated[McpServerHttp | McpServerAcp | McpServerStdio | UnknownMcpServer, Open("type")]


class MessageMcpRequest(Object):
    """The params of ``mcp/message``: an inner MCP request, or (as a notification) news about an active one."""

    serverId: McpServerAcpId
    requestId: McpRequestId
    method: str
    params: NotRequired[dict[str, Any] | None]


class McpError(TypedDict):
    """The error that the inner MCP request ended with."""

    code: Int32
    message: str
    data: NotRequired[Any]


class MessageMcpResult(Object):
    """The outcome of the inner request: ``result`` (of any kind, ``null`` too) or ``error``; ``result`` goes first."""

    result: NotRequired[Any]
    error: NotRequired[McpError]


def _has_outcome(value: MessageMcpResult) -> str | None:
    return None if "result" in value or "error" in value else "must have a result or an error"


MessageMcpResponse: TypeAlias = Annotated[MessageMcpResult, Rule(_has_outcome)]
