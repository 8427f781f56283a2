"""Tool calls and what they show."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.capabilities import ToolCallCapabilities
from sayagain.protocol.v2.content import ContentBlock
from sayagain.protocol.v2.diffs import Diff
from sayagain.protocol.v2.markers import Between, Known, Open
from sayagain.protocol.v2.scalars import AbsolutePath, Object, SessionId, TerminalId, ToolCallId

__all__ = [
    "CancelToolCallRequest",
    "Content",
    "Terminal",
    "ToolCallContent",
    "ToolCallLocation",
    "ToolCallPatch",
    "ToolCallStatus",
    "ToolKind",
    "UnknownToolCallContent",
]

ToolKind: TypeAlias = Annotated[
    str, Known("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
]

ToolCallStatus: TypeAlias = Annotated[
    str, Known("pending", "in_progress", "paused", "completed", "failed", "cancelled")
]
"""The last three are final (TC-1)."""


class Content(Object):
    """A content block in a tool call."""

    type: Literal["content"]
    content: ContentBlock


class Terminal(Object):
    """A terminal in a tool call, by its id."""

    type: Literal["terminal"]
    terminalId: TerminalId


class UnknownToolCallContent(TypedDict):
    """Content that this version does not know, such as a reference to a child session (SUB-8)."""

    type: str


ToolCallContent: TypeAlias = Annotated[Content | Diff | Terminal | UnknownToolCallContent, Open("type")]


class ToolCallLocation(Object):
    """A place in a file that the tool works on; lines count from 1."""

    path: AbsolutePath
    line: NotRequired[Annotated[int, Between(1, 2**32 - 1)] | None]


class ToolCallPatch(Object):
    """A tool call, or what changed of it: left out is unchanged, ``null`` clears (UPD-3)."""

    toolCallId: ToolCallId
    name: NotRequired[str | None]
    title: NotRequired[str | None]
    kind: NotRequired[ToolKind | None]
    status: NotRequired[ToolCallStatus | None]
    content: NotRequired[list[ToolCallContent] | None]
    locations: NotRequired[list[ToolCallLocation] | None]
    rawInput: NotRequired[Any]
    rawOutput: NotRequired[Any]
    capabilities: NotRequired[ToolCallCapabilities | None]


class CancelToolCallRequest(Object):
    """``tool_call/cancel``: answered on acceptance, confirmed by an update (TC-4)."""

    sessionId: SessionId
    toolCallId: ToolCallId
