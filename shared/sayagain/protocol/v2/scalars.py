"""Strings and numbers with a meaning: ids, paths, ranges."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Between, Replaces, Rule

__all__ = [
    "AbsolutePath",
    "AuthMethodId",
    "Base64",
    "CompactionId",
    "ElicitationId",
    "IdempotencyKey",
    "Int32",
    "Int64",
    "McpRequestId",
    "McpServerAcpId",
    "MediaType",
    "MessageId",
    "Object",
    "PermissionOptionId",
    "PlanId",
    "ProtocolVersion",
    "ProviderId",
    "RequestId",
    "SessionConfigGroupId",
    "SessionConfigId",
    "SessionConfigValueId",
    "SessionId",
    "SessionListCursor",
    "TerminalId",
    "Timestamp",
    "ToolCallId",
    "UInt16",
    "UInt32",
    "UInt64",
    "Uri",
]

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:[\\/]|\\\\[^\\]")


def _absolute_path(value: str) -> str | None:
    if not _ABSOLUTE.match(value):
        return "must be an absolute path"
    return "must not contain a NUL character" if "\0" in value else None


def _idempotency_key(value: object) -> str | None:
    # Imported here: the package behind message ids costs more to import than all of `initialize`.
    from sayagain.errors import InvalidParams
    from sayagain.identity import validate_key

    try:
        validate_key(value)
    except InvalidParams as error:
        return error.reason
    return None


def _request_id(value: object) -> str | None:
    if isinstance(value, str):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return None if -(2**63) <= value < 2**63 else "must fit 64 bits"
    return "must be a string or an integer"


class Object(TypedDict):
    """Any object of the protocol; also the type of results and capabilities that have no fields of their own.

    A key in ``_meta`` is somebody's extension, never ours to read without a name that we know (RPC-4).
    """

    _meta: NotRequired[dict[str, Any] | None]


AbsolutePath: TypeAlias = Annotated[str, Rule(_absolute_path)]
"""In the syntax of the agent's machine: POSIX (``/home``), Windows drive (``C:\\x``) or UNC (NEW-1)."""

IdempotencyKey: TypeAlias = Annotated[str | None, Replaces(_idempotency_key)]
"""1 to 255 code points, opaque; ``null`` means no key (KEY-1)."""

RequestId: TypeAlias = Annotated[int | str, Replaces(_request_id)]
"""A JSON-RPC id: a string or a 64-bit integer, never ``null`` (RPC-2)."""

Int32: TypeAlias = Annotated[int, Between(-(2**31), 2**31 - 1)]
Int64: TypeAlias = Annotated[int, Between(-(2**63), 2**63 - 1)]
UInt16: TypeAlias = Annotated[int, Between(0, 2**16 - 1)]
UInt32: TypeAlias = Annotated[int, Between(0, 2**32 - 1)]
UInt64: TypeAlias = Annotated[int, Between(0, 2**64 - 1)]
ProtocolVersion: TypeAlias = UInt16

AuthMethodId: TypeAlias = str
CompactionId: TypeAlias = str
ElicitationId: TypeAlias = str
McpRequestId: TypeAlias = str
McpServerAcpId: TypeAlias = str
MessageId: TypeAlias = str
PermissionOptionId: TypeAlias = str
PlanId: TypeAlias = str
ProviderId: TypeAlias = str
SessionConfigGroupId: TypeAlias = str
SessionConfigId: TypeAlias = str
SessionConfigValueId: TypeAlias = str
SessionId: TypeAlias = str
TerminalId: TypeAlias = str
ToolCallId: TypeAlias = str

SessionListCursor: TypeAlias = str
"""Opaque; the empty string is a cursor too (LST-3)."""

Base64: TypeAlias = str
MediaType: TypeAlias = str
Timestamp: TypeAlias = str
"""RFC 3339."""
Uri: TypeAlias = str
