"""Sending a user message."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, NotRequired

from sayagain.protocol.v2.content import ContentBlock
from sayagain.protocol.v2.markers import NonEmpty
from sayagain.protocol.v2.scalars import IdempotencyKey, MessageId, Object, SessionId

__all__ = ["PromptRequest", "PromptResponse"]


class PromptRequest(Object):
    """``session/prompt``. With a key, all attempts together insert the message at most once (KEY-2)."""

    sessionId: SessionId
    prompt: Annotated[list[ContentBlock], NonEmpty()]
    idempotencyKey: NotRequired[IdempotencyKey]


class PromptResponse(Object):
    """The message **is** in the session, under this id (PRM-1)."""

    messageId: MessageId
