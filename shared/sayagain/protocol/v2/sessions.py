"""The life of a session: new, list, resume, fork, close, delete, archive, status, title."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.commands import AvailableCommands
from sayagain.protocol.v2.config_options import SessionConfigOption
from sayagain.protocol.v2.content import ContentBlock
from sayagain.protocol.v2.markers import Known, Open
from sayagain.protocol.v2.mcp import McpServer
from sayagain.protocol.v2.scalars import AbsolutePath, Object, SessionId, SessionListCursor, Timestamp
from sayagain.protocol.v2.state import StateUpdate

__all__ = [
    "ForkSessionRequest",
    "ForkSessionResponse",
    "ListSessionsRequest",
    "ListSessionsResponse",
    "NewSessionRequest",
    "NewSessionResponse",
    "ReplayFrom",
    "ReplayFromStart",
    "ResumeSessionRequest",
    "ResumeSessionResponse",
    "SessionArchiveFilter",
    "SessionInfo",
    "SessionReference",
    "SessionStatus",
    "SessionStatusResponse",
    "SetSessionTitleRequest",
    "SetSessionTitleResponse",
    "SystemPrompt",
    "SystemPromptMode",
    "UnknownReplayFrom",
]

SessionArchiveFilter: TypeAlias = Annotated[str, Known("exclude", "include", "only")]
"""An unknown filter is refused, not guessed (LST-5)."""

SessionStatus: TypeAlias = Annotated[str, Known("open", "saved")]

SystemPromptMode: TypeAlias = Annotated[str, Known("append", "override")]


class SystemPrompt(Object):
    """Instructions beside (``append``) or instead of (``override``) the agent's own; unstable (NEW-8)."""

    mode: SystemPromptMode
    content: list[ContentBlock]


class _SessionSetup(Object):
    cwd: AbsolutePath
    additionalDirectories: NotRequired[list[AbsolutePath] | None]
    mcpServers: NotRequired[list[McpServer] | None]
    systemPrompt: NotRequired[SystemPrompt | None]


class NewSessionRequest(_SessionSetup):
    """``session/new``; lists are complete each time, nothing is restored from before (NEW-5)."""


class ForkSessionRequest(_SessionSetup):
    """``session/fork``: a new session that starts with all of another's history; unstable."""

    sessionId: SessionId


class ReplayFromStart(Object):
    """Everything that is retained (RES-2)."""

    type: Literal["start"]


class UnknownReplayFrom(TypedDict):
    """A cursor that this version does not know; refused, never replaced (RES-3)."""

    type: str


ReplayFrom: TypeAlias = Annotated[ReplayFromStart | UnknownReplayFrom, Open("type")]


class ResumeSessionRequest(_SessionSetup):
    """``session/resume``; without ``replayFrom`` there is neither history nor marker (RES-1)."""

    sessionId: SessionId
    replayFrom: NotRequired[ReplayFrom | None]


class ResumeSessionResponse(Object):
    """What the session offers now."""

    configOptions: NotRequired[list[SessionConfigOption]]
    availableCommands: NotRequired[AvailableCommands]


class NewSessionResponse(ResumeSessionResponse):
    """The id is unique (NEW-2)."""

    sessionId: SessionId


class ForkSessionResponse(ResumeSessionResponse):
    """The id of the new session."""

    sessionId: SessionId


class SessionReference(Object):
    """The params of close, delete, archive, unarchive, status and cancel: a session, nothing more."""

    sessionId: SessionId


class ListSessionsRequest(Object):
    """``cwd`` matches exactly (LST-1); ``cursor`` comes from an earlier page."""

    cwd: NotRequired[AbsolutePath | None]
    cursor: NotRequired[SessionListCursor | None]
    archived: NotRequired[SessionArchiveFilter | None]


class SessionInfo(Object):
    """One stored session."""

    sessionId: SessionId
    cwd: AbsolutePath
    additionalDirectories: NotRequired[list[AbsolutePath] | None]
    title: NotRequired[str | None]
    updatedAt: NotRequired[Timestamp | None]
    archived: NotRequired[bool | None]


class ListSessionsResponse(Object):
    """A page; without ``nextCursor`` it is the last one (LST-3)."""

    sessions: list[SessionInfo]
    nextCursor: NotRequired[SessionListCursor | None]


class SessionStatusResponse(Object):
    """``session/status``: a look without side effects (STS-1); unstable."""

    status: SessionStatus
    state: NotRequired[StateUpdate | None]


class SetSessionTitleRequest(Object):
    """``session/set_title``; unstable (TTL-1)."""

    sessionId: SessionId
    title: str


class SetSessionTitleResponse(Object):
    """The title as it was stored."""

    title: str
