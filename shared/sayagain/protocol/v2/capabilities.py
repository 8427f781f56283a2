"""What agents and clients can do. Present (even ``{}``) means yes; left out or ``null`` means no (INI-3)."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import NotRequired

from sayagain.protocol.v2.scalars import Object

__all__ = [
    "AgentAuthCapabilities",
    "AgentCapabilities",
    "ClientAuthCapabilities",
    "ClientCapabilities",
    "ElicitationCapabilities",
    "McpCapabilities",
    "PromptCapabilities",
    "SessionCapabilities",
    "SessionSystemPromptCapabilities",
    "SessionSystemPromptModeCapabilities",
    "SubagentSessionCapabilities",
    "TerminalCapabilities",
    "ToolCallCapabilities",
]


class PromptCapabilities(Object):
    """Blocks beyond text and resource links that a prompt may hold (INI-7)."""

    image: NotRequired[Object | None]
    audio: NotRequired[Object | None]
    embeddedContext: NotRequired[Object | None]


class McpCapabilities(Object):
    """Transports of MCP servers that a session can connect to (INI-8). ``acp`` is unstable."""

    stdio: NotRequired[Object | None]
    http: NotRequired[Object | None]
    acp: NotRequired[Object | None]


class SessionSystemPromptModeCapabilities(Object):
    """Modes of ``systemPrompt`` beyond ``append``."""

    override: NotRequired[Object | None]


class SessionSystemPromptCapabilities(Object):
    """``systemPrompt`` is honoured in its ``append`` mode, and in those that ``mode`` names."""

    mode: NotRequired[SessionSystemPromptModeCapabilities | None]


class SessionCapabilities(Object):
    """``{}`` alone promises new, list, resume, close, prompt, cancel, update, keys and markers (INI-4, INI-5)."""

    prompt: NotRequired[PromptCapabilities | None]
    mcp: NotRequired[McpCapabilities | None]
    delete: NotRequired[Object | None]
    additionalDirectories: NotRequired[Object | None]
    systemPrompt: NotRequired[SessionSystemPromptCapabilities | None]
    fork: NotRequired[Object | None]
    archive: NotRequired[Object | None]
    status: NotRequired[Object | None]
    title: NotRequired[Object | None]


class AgentAuthCapabilities(Object):
    """Extras of authentication; login and logout are announced by ``authMethods``, not here (INI-6)."""

    status: NotRequired[Object | None]


class AgentCapabilities(Object):
    """All that an agent can do."""

    session: NotRequired[SessionCapabilities | None]
    auth: NotRequired[AgentAuthCapabilities | None]
    providers: NotRequired[Object | None]


class ClientAuthCapabilities(Object):
    """``terminal``: the client can run a sign-in command in a terminal (INI-6)."""

    terminal: NotRequired[Object | None]


class ElicitationCapabilities(Object):
    """Modes in which the client can ask its user (ELI-1)."""

    form: NotRequired[Object | None]
    url: NotRequired[Object | None]


class ClientCapabilities(Object):
    """All that a client can do."""

    auth: NotRequired[ClientAuthCapabilities | None]
    elicitation: NotRequired[ElicitationCapabilities | None]


class ToolCallCapabilities(Object):
    """``cancel`` is there only while this tool call can be cancelled (TC-4)."""

    cancel: NotRequired[Object | None]


class TerminalCapabilities(Object):
    """``cancel`` is there only while this terminal's command can be cancelled (TC-4)."""

    cancel: NotRequired[Object | None]


class SubagentSessionCapabilities(Object):
    """What a client may do to a child session; ``{}`` means nothing (SUB-5)."""

    cancel: NotRequired[Object | None]
