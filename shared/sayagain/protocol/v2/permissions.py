"""Asking the user for permission."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Known, NonEmpty, Open, unique
from sayagain.protocol.v2.scalars import AbsolutePath, Object, PermissionOptionId, SessionId, TerminalId, ToolCallId
from sayagain.protocol.v2.tools import ToolCallPatch

__all__ = [
    "CancelledPermissionOutcome",
    "CommandPermissionSubject",
    "PermissionOption",
    "PermissionOptionKind",
    "RequestPermissionOutcome",
    "RequestPermissionRequest",
    "RequestPermissionResponse",
    "RequestPermissionSubject",
    "SelectedPermissionOutcome",
    "ToolCallPermissionSubject",
    "UnknownPermissionOutcome",
    "UnknownPermissionSubject",
]

PermissionOptionKind: TypeAlias = Annotated[str, Known("allow_once", "allow_always", "reject_once", "reject_always")]
"""A hint for the look of the option; what it means is known by its id alone."""


class PermissionOption(Object):
    """One answer that the user can give."""

    optionId: PermissionOptionId
    name: str
    kind: PermissionOptionKind


class ToolCallPermissionSubject(Object):
    """It is about this tool call; the client applies it like an update (PER-4)."""

    type: Literal["tool_call"]
    toolCall: ToolCallPatch


class CommandPermissionSubject(Object):
    """It is about this command; a description, no order to run it (PER-2)."""

    type: Literal["command"]
    command: str
    cwd: AbsolutePath
    toolCallId: NotRequired[ToolCallId | None]
    terminalId: NotRequired[TerminalId | None]


class UnknownPermissionSubject(TypedDict):
    """A kind of subject that this version does not know."""

    type: str


RequestPermissionSubject: TypeAlias = Annotated[
    ToolCallPermissionSubject | CommandPermissionSubject | UnknownPermissionSubject, Open("type")
]


class RequestPermissionRequest(Object):
    """``session/request_permission``; the option ids differ (PER-1)."""

    sessionId: SessionId
    title: str
    description: NotRequired[str | None]
    subject: NotRequired[RequestPermissionSubject | None]
    options: Annotated[list[PermissionOption], NonEmpty(), unique("optionId")]


class CancelledPermissionOutcome(Object):
    """No answer: not approved (PER-3)."""

    outcome: Literal["cancelled"]


class SelectedPermissionOutcome(Object):
    """The user's answer; approved only if the option was offered and says so (PER-3)."""

    outcome: Literal["selected"]
    optionId: PermissionOptionId


class UnknownPermissionOutcome(TypedDict):
    """An outcome that this version does not know: not approved (PER-3)."""

    outcome: str


RequestPermissionOutcome: TypeAlias = Annotated[
    CancelledPermissionOutcome | SelectedPermissionOutcome | UnknownPermissionOutcome, Open("outcome")
]


class RequestPermissionResponse(Object):
    """The answer."""

    outcome: RequestPermissionOutcome
