"""What is about requests themselves: cancelling one, forwarding one, the data of standard errors."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Any, NotRequired

from sayagain.protocol.v2.scalars import Object, ProtocolVersion, RequestId, SessionId

__all__ = [
    "CancelRequestNotification",
    "ProxySuccessorRequest",
    "SessionNotFoundErrorData",
    "UnsupportedProtocolVersionErrorData",
]


class CancelRequestNotification(Object):
    """``$/cancel_request``: a wish; the request still gets its one answer (CAN-5)."""

    requestId: RequestId


class ProxySuccessorRequest(Object):
    """``proxy/successor``, request or notification: a message for the next component of a chain; unstable."""

    method: str
    params: NotRequired[Any]


class SessionNotFoundErrorData(Object):
    """``error.data`` of ``-32002``."""

    sessionId: SessionId


class UnsupportedProtocolVersionErrorData(Object):
    """``error.data`` of ``-32022``."""

    requested: ProtocolVersion
    supported: list[ProtocolVersion]
