"""``session/update``: everything that an agent tells about a session."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.capabilities import SubagentSessionCapabilities
from sayagain.protocol.v2.commands import AvailableCommands
from sayagain.protocol.v2.config_options import SessionConfigOption
from sayagain.protocol.v2.content import ContentBlock
from sayagain.protocol.v2.markers import Known, NonEmpty, Open
from sayagain.protocol.v2.plans import PlanUpdateContent
from sayagain.protocol.v2.scalars import (
    AbsolutePath,
    Base64,
    CompactionId,
    MessageId,
    Object,
    PlanId,
    SessionId,
    TerminalId,
    Timestamp,
    ToolCallId,
    UInt64,
)
from sayagain.protocol.v2.state import (
    IdleState,
    RequiresActionState,
    RunningState,
    StateUpdate,
    UnknownState,
    UnobservedState,
)
from sayagain.protocol.v2.terminals import TerminalPatch
from sayagain.protocol.v2.tools import ToolCallContent, ToolCallPatch

__all__ = [
    "AvailableCommandsUpdate",
    "CompactionStatus",
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "ConfigOptionUpdate",
    "Cost",
    "MessageChunk",
    "MessageUpdate",
    "Notice",
    "NoticeSeverity",
    "PlanRemoved",
    "PlanUpdate",
    "ReplayComplete",
    "SessionInfoUpdate",
    "SessionMessage",
    "SessionMessageChunk",
    "SessionStateUpdate",
    "SessionUpdate",
    "SubagentUpdate",
    "TerminalOutputChunk",
    "TerminalUpdate",
    "ToolCallContentChunk",
    "ToolCallUpdate",
    "UnknownUpdate",
    "UpdateSessionNotification",
    "UsageUpdate",
]

CompactionStatus: TypeAlias = Annotated[str, Known("in_progress", "completed", "failed", "cancelled")]
NoticeSeverity: TypeAlias = Annotated[str, Known("info", "warning", "error")]


class MessageChunk(Object):
    """More of a message; another id starts another message (UPD-1)."""

    sessionUpdate: Literal["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]
    messageId: MessageId
    content: ContentBlock


class MessageUpdate(Object):
    """A whole message: ``content`` replaces, left out leaves, ``[]`` and ``null`` clear (UPD-2)."""

    sessionUpdate: Literal["user_message", "agent_message", "agent_thought"]
    messageId: MessageId
    content: NotRequired[list[ContentBlock] | None]


class _StateTag(TypedDict):
    sessionUpdate: Literal["state_update"]


class _Running(RunningState, _StateTag):
    pass


class _Idle(IdleState, _StateTag):
    pass


class _RequiresAction(RequiresActionState, _StateTag):
    pass


class _Unobserved(UnobservedState, _StateTag):
    pass


class _UnknownState(UnknownState, _StateTag):
    pass


SessionStateUpdate: TypeAlias = Annotated[
    _Running | _Idle | _RequiresAction | _Unobserved | _UnknownState, Open("state")
]
"""A :data:`~sayagain.protocol.v2.state.StateUpdate` as a session update."""


class ToolCallUpdate(ToolCallPatch):
    """A tool call, or what changed of it."""

    sessionUpdate: Literal["tool_call_update"]


class ToolCallContentChunk(Object):
    """One more piece of content of a tool call."""

    sessionUpdate: Literal["tool_call_content_chunk"]
    toolCallId: ToolCallId
    content: ToolCallContent


class TerminalUpdate(TerminalPatch):
    """A terminal, or what changed of it."""

    sessionUpdate: Literal["terminal_update"]


class TerminalOutputChunk(Object):
    """More bytes of a terminal: decode, then append (TC-2)."""

    sessionUpdate: Literal["terminal_output_chunk"]
    terminalId: TerminalId
    data: Base64


class PlanUpdate(Object):
    """A plan, whole."""

    sessionUpdate: Literal["plan_update"]
    plan: PlanUpdateContent


class PlanRemoved(Object):
    """A plan is gone; unstable."""

    sessionUpdate: Literal["plan_removed"]
    planId: PlanId


class AvailableCommandsUpdate(Object):
    """All commands that the session offers now."""

    sessionUpdate: Literal["available_commands_update"]
    availableCommands: AvailableCommands


class ConfigOptionUpdate(Object):
    """All options with their current values (CFG-6)."""

    sessionUpdate: Literal["config_option_update"]
    configOptions: list[SessionConfigOption]


class SessionInfoUpdate(Object):
    """Title and time of the last change; left out is unchanged, ``null`` clears."""

    sessionUpdate: Literal["session_info_update"]
    title: NotRequired[str | None]
    updatedAt: NotRequired[Timestamp | None]


class Cost(Object):
    """``currency`` is an ISO 4217 code."""

    amount: float
    currency: str


class UsageUpdate(Object):
    """Tokens in the context window, and its size (UPD-9)."""

    sessionUpdate: Literal["usage_update"]
    used: UInt64
    size: UInt64
    cost: NotRequired[Cost | None]


class Notice(Object):
    """Something to tell the user; no history (RES-7)."""

    sessionUpdate: Literal["notice"]
    severity: NoticeSeverity
    title: Annotated[str, NonEmpty()]
    description: NotRequired[str | None]


class CompactionUpdate(Object):
    """The context is being compacted, or was."""

    sessionUpdate: Literal["compaction_update"]
    compactionId: CompactionId
    status: CompactionStatus
    summary: NotRequired[list[ContentBlock] | None]
    error: NotRequired[str | None]


class CompactionSummaryChunk(Object):
    """More of a compaction's summary."""

    sessionUpdate: Literal["compaction_summary_chunk"]
    compactionId: CompactionId
    content: ContentBlock


class SubagentUpdate(Object):
    """On the parent's stream: a child session exists, or what changed of it (SUB-1); unstable.

    ``sessionId`` is the child's. ``capabilities`` are replaced whole (SUB-5).
    """

    sessionUpdate: Literal["subagent_update"]
    sessionId: SessionId
    title: NotRequired[str | None]
    description: NotRequired[str | None]
    capabilities: NotRequired[SubagentSessionCapabilities | None]
    state: NotRequired[StateUpdate | None]
    cwd: NotRequired[AbsolutePath | None]
    additionalDirectories: NotRequired[list[AbsolutePath] | None]


class SessionMessage(Object):
    """A message between sessions; unstable."""

    sessionUpdate: Literal["session_message"]
    messageId: MessageId
    senderSessionId: NotRequired[SessionId | None]
    recipientSessionId: NotRequired[SessionId | None]
    senderMessageId: NotRequired[MessageId | None]
    recipientMessageId: NotRequired[MessageId | None]
    content: NotRequired[list[ContentBlock] | None]


class SessionMessageChunk(Object):
    """More of a message between sessions; unstable."""

    sessionUpdate: Literal["session_message_chunk"]
    messageId: MessageId
    content: ContentBlock


class ReplayComplete(Object):
    """All history selected for a replay of this session was sent; what follows is none of it (RPL-1)."""

    sessionUpdate: Literal["replay_complete"]


class UnknownUpdate(TypedDict):
    """An update that this version does not know."""

    sessionUpdate: str


SessionUpdate: TypeAlias = Annotated[
    MessageChunk
    | MessageUpdate
    | SessionStateUpdate
    | ToolCallUpdate
    | ToolCallContentChunk
    | TerminalUpdate
    | TerminalOutputChunk
    | PlanUpdate
    | PlanRemoved
    | AvailableCommandsUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | Notice
    | CompactionUpdate
    | CompactionSummaryChunk
    | SubagentUpdate
    | SessionMessage
    | SessionMessageChunk
    | ReplayComplete
    | UnknownUpdate,
    Open("sessionUpdate"),
]


class UpdateSessionNotification(Object):
    """The params of ``session/update``."""

    sessionId: SessionId
    update: SessionUpdate
