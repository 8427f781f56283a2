"""Terminals that a client shows; the agent owns them."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, NotRequired

from sayagain.protocol.v2.capabilities import TerminalCapabilities
from sayagain.protocol.v2.markers import Between
from sayagain.protocol.v2.scalars import AbsolutePath, Base64, Int64, Object, SessionId, TerminalId

__all__ = ["CancelTerminalRequest", "TerminalExitStatus", "TerminalOutput", "TerminalPatch", "TerminalSize"]


class TerminalOutput(Object):
    """All bytes so far; replaces what was there (TC-2)."""

    data: Base64


class TerminalExitStatus(Object):
    """How the command ended."""

    exitCode: NotRequired[Int64 | None]
    signal: NotRequired[str | None]


class TerminalSize(Object):
    """Size in character cells."""

    cols: Annotated[int, Between(1, 2**16 - 1)]
    rows: Annotated[int, Between(1, 2**16 - 1)]


class TerminalPatch(Object):
    """A terminal, or what changed of it: left out is unchanged, ``null`` clears (UPD-3)."""

    terminalId: TerminalId
    command: NotRequired[str | None]
    cwd: NotRequired[AbsolutePath | None]
    output: NotRequired[TerminalOutput | None]
    exitStatus: NotRequired[TerminalExitStatus | None]
    size: NotRequired[TerminalSize | None]
    capabilities: NotRequired[TerminalCapabilities | None]


class CancelTerminalRequest(Object):
    """``terminal/cancel``: answered on acceptance, confirmed by an update (TC-4)."""

    sessionId: SessionId
    terminalId: TerminalId
