"""The state of a session's foreground work, and what runs in the background."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Known, Open
from sayagain.protocol.v2.scalars import Int32, Object, SessionId, TerminalId, ToolCallId, UInt64

__all__ = [
    "BackgroundSubagent",
    "BackgroundTerminal",
    "BackgroundToolCall",
    "BackgroundWork",
    "Error",
    "IdleState",
    "RequiresActionState",
    "RunningState",
    "StateUpdate",
    "StopReason",
    "UnknownBackgroundWork",
    "UnknownState",
    "UnobservedState",
    "Usage",
]

StopReason: TypeAlias = Annotated[
    str, Known("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "error")
]
"""``cancelled`` is for stops by the user or client alone (UPD-7)."""


class Error(TypedDict):
    """A JSON-RPC error object."""

    code: Int32
    message: str
    data: NotRequired[Any]


class Usage(Object):
    """Tokens of the work that just ended; unstable."""

    totalTokens: UInt64
    inputTokens: UInt64
    outputTokens: UInt64
    thoughtTokens: NotRequired[UInt64 | None]
    cachedReadTokens: NotRequired[UInt64 | None]
    cachedWriteTokens: NotRequired[UInt64 | None]


class BackgroundTerminal(Object):
    """A terminal whose command outlives the foreground work."""

    type: Literal["terminal"]
    terminalId: TerminalId


class BackgroundToolCall(Object):
    """A tool call that outlives the foreground work."""

    type: Literal["tool_call"]
    toolCallId: ToolCallId


class BackgroundSubagent(Object):
    """A detached child session with anything running; unstable."""

    type: Literal["subagent"]
    sessionId: SessionId


class UnknownBackgroundWork(TypedDict):
    """A kind of work that this version does not know."""

    type: str


BackgroundWork: TypeAlias = Annotated[
    BackgroundTerminal | BackgroundToolCall | BackgroundSubagent | UnknownBackgroundWork, Open("type")
]


class _State(Object):
    # The whole list; [] is none, left out or null is not known (UPD-8).
    background: NotRequired[list[BackgroundWork] | None]


class RunningState(_State):
    """Foreground work goes on (UPD-4)."""

    state: Literal["running"]


class IdleState(_State):
    """No foreground work; ``stopReason`` says why the last one ended, ``error`` belongs to the reason ``error``."""

    state: Literal["idle"]
    stopReason: NotRequired[StopReason | None]
    error: NotRequired[Error | None]
    usage: NotRequired[Usage | None]


class RequiresActionState(_State):
    """All foreground work waits for the user (UPD-5)."""

    state: Literal["requires_action"]


class UnobservedState(_State):
    """The work of this session cannot be observed; unstable (SUB-6)."""

    state: Literal["unknown"]


class UnknownState(TypedDict):
    """A state that this version does not know; it never stands for one of the others (UPD-13)."""

    state: str


StateUpdate: TypeAlias = Annotated[
    RunningState | IdleState | RequiresActionState | UnobservedState | UnknownState, Open("state")
]
