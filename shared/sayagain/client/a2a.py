"""The client's half of A2A's ``idempotency/v1``: one body under one ``messageId``, the same bytes until it is answered.

The HTTP client is the application's: give :func:`send_frozen` a function that posts bytes, and what :func:`declared`
finds in the AgentCard.

The hash that the spec binds a ``messageId`` to is the server's affair (section 4.3). Bytes that never change have the
same hash whatever the canonicalization, so nothing is canonicalized here.
"""

from __future__ import annotations

import base64
import json
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, cast

import anyio

from sayagain.client.errors import ClientError, GaveUp, OutcomeUnknown
from sayagain.client.prompts import new_key
from sayagain.client.retries import Retries

__all__ = [
    "EXTENSION",
    "BodyChanged",
    "Declaration",
    "FrozenMessage",
    "HttpAnswer",
    "MessageTooOld",
    "Post",
    "declared",
    "freeze",
    "send_frozen",
]

EXTENSION: Final = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"

TTL: Final = 86400.0
"""Seconds for which a server remembers a message, if it does not say otherwise (section 3.3)."""

_REUSED: Final = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD"

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a gateway, or of a server that did not come to the request: worth another attempt."""

_LONGEST_ASKED: Final = 60.0
"""Seconds that a server may put an attempt off by ``Retry-After``."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What an AgentCard says of the extension (section 3.3)."""

    required: bool
    """The agent refuses requests without it; :class:`FrozenMessage` always has it."""

    ttl_seconds: float
    """For how long a message is remembered at most; the server may forget it earlier."""


def declared(card: Mapping[str, Any]) -> Declaration | None:
    """The extension in an AgentCard; ``None`` for an agent that does not have it, where a repeat may run twice."""
    capabilities: object = card.get("capabilities")
    found: object = cast("Mapping[str, Any]", capabilities).get("extensions") if _is_object(capabilities) else None
    for entry in cast("list[object]", found) if isinstance(found, list) else ():
        if _is_object(entry) and (extension := cast("Mapping[str, Any]", entry)).get("uri") == EXTENSION:
            params: object = extension.get("params")
            ttl: object = cast("Mapping[str, Any]", params).get("ttl_seconds") if _is_object(params) else None
            # Some servers write 86400.0: the A2A SDK keeps params as doubles (measured with a2a-sdk 1.3.0).
            usable = isinstance(ttl, int | float) and not isinstance(ttl, bool) and math.isfinite(ttl) and ttl > 0
            return Declaration(extension.get("required") is True, float(cast("float", ttl)) if usable else TTL)
    return None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back; header names in any case. Of a stream, all of it: one that breaks off is a lost answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header's value."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), None)

    @property
    def replayed(self) -> bool:
        """The server had done the work before, and answered from its record."""
        return (self.header("Idempotent-Replayed") or "").strip() == "true"

    @property
    def governed(self) -> bool:
        """The server answered under the extension: this is the outcome of the message, be it an error (section 4.3)."""
        return EXTENSION in [uri.strip() for uri in (self.header("A2A-Extensions") or "").split(",")]

    @property
    def retry_after(self) -> float | None:
        """Seconds that the server wants to be left alone; ``None`` if it does not say so in seconds."""
        value = (self.header("Retry-After") or "").strip()
        return float(value) if value.isascii() and value.isdecimal() else None


Post: TypeAlias = Callable[[bytes, Mapping[str, str]], Awaitable[HttpAnswer]]
"""Posts a body to the agent, with these headers beside its own (``Authorization``, ``A2A-Version``)."""


class BodyChanged(ClientError):
    """The server knows the ``messageId`` with another body (422): a mistake of the sender's, or of what stands between.

    The hashes are the server's, of what it had and of what it got. What it had stays valid.
    """

    def __init__(self, message_id: str, original_hash: str | None, submitted_hash: str | None) -> None:
        super().__init__(message_id)
        self.message_id = message_id
        self.original_hash = original_hash
        self.submitted_hash = submitted_hash

    def __str__(self) -> str:
        return f"message {self.message_id} was sent before with another body"


class MessageTooOld(ClientError):
    """The server may have forgotten the message, and would do its work again: ask the user, then freeze a new one."""

    def __init__(self, message_id: str, ttl: float) -> None:
        super().__init__(message_id, ttl)
        self.message_id = message_id
        self.ttl = ttl

    def __str__(self) -> str:
        return f"message {self.message_id} is older than {self.ttl:g} s, for which the agent remembers it"


@dataclass(frozen=True, slots=True)
class FrozenMessage:
    """A request that is sent as these bytes, however often. Store it (:meth:`dump`) before it is sent first."""

    message_id: str
    method: str
    body: bytes
    frozen: float
    """When, in Unix seconds: no attempt can be older."""
    extensions: tuple[str, ...] = (EXTENSION,)

    @property
    def headers(self) -> Mapping[str, str]:
        """What has to go with each attempt (section 4.2)."""
        return {"Content-Type": "application/json", "A2A-Extensions": ", ".join(self.extensions)}

    def dump(self) -> str:
        """As text, to survive the client."""
        body = base64.b64encode(self.body).decode()
        stored = {"messageId": self.message_id, "method": self.method, "body": body}
        return json.dumps(stored | {"frozen": self.frozen, "extensions": self.extensions})

    @classmethod
    def load(cls, text: str) -> Self:
        """What :meth:`dump` gave."""
        stored = json.loads(text)
        body, extensions = base64.b64decode(stored["body"]), tuple(stored["extensions"])
        return cls(stored["messageId"], stored["method"], body, stored["frozen"], extensions)


def freeze(
    params: Mapping[str, Any], *, method: str = "message/send", extensions: tuple[str, ...] = ()
) -> FrozenMessage:
    """A request for ``method`` with ``params`` (``message`` and what goes with it), frozen.

    ``method`` is one that the extension covers: ``message/send`` and ``message/stream``, or their names in A2A 1.0,
    ``SendMessage`` and ``SendStreamingMessage``. ``extensions`` are further URIs to activate.

    ``message.messageId`` is made here unless it is there: then it has to be a UUID in its canonical form with 128 bits
    that nobody guesses (section 4.2). Raises :class:`ValueError` for another, and for what is no JSON (``NaN``, half a
    surrogate pair): no server could hash it.
    """
    message: Mapping[str, Any] = params["message"]
    if "message_id" in message:
        raise ValueError("the field is messageId: under another name it would be part of the body")
    message_id = message.get("messageId")
    if message_id is None:
        message_id = new_key()
    elif not isinstance(message_id, str) or str(uuid.UUID(message_id)) != message_id:
        raise ValueError("messageId must be a UUID in its canonical form")
    elif uuid.UUID(message_id).int in (0, (1 << 128) - 1):
        raise ValueError("messageId must be a UUID that is unique")
    whole = {**params, "message": {**message, "messageId": message_id}}
    request = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": whole}
    body = json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    return FrozenMessage(message_id, method, body, time.time(), (EXTENSION, *extensions))


async def send_frozen(
    message: FrozenMessage,
    post: Post,
    declaration: Declaration | None,
    *,
    retries: Retries | None = None,
    lost: type[Exception] | tuple[type[Exception], ...] = OSError,
) -> HttpAnswer:
    """Post until there is an outcome; the answer, which may be an error of the server's.

    ``lost`` are the exceptions of ``post`` that leave the outcome open. Without a ``declaration`` of the agent's the
    message is posted once, and :class:`~sayagain.client.errors.OutcomeUnknown` raised when its answer is lost.

    Raises :class:`BodyChanged`, :class:`MessageTooOld`, and :class:`~sayagain.client.errors.GaveUp`: then the message
    can be sent again later. A failure that the server has recorded is its answer for as long as it remembers it; to
    have the work tried again, freeze a new message (section 7.5).
    """
    retries = retries or Retries()
    failures = 0
    while True:
        if declaration is not None and time.time() - message.frozen > declaration.ttl_seconds:
            raise MessageTooOld(message.message_id, declaration.ttl_seconds)
        asked = 0.0
        try:
            answer = await post(message.body, message.headers)
        except lost as error:
            if declaration is None:
                raise OutcomeUnknown(message.method, None) from error
            failure: Exception = error
        else:
            if answer.status >= 400:
                _check_reuse(message, answer)
            if declaration is None or not _may_pass(answer):
                return answer
            failure = ClientError(f"HTTP status {answer.status}")
            asked = min(answer.retry_after or 0.0, _LONGEST_ASKED)
        failures += 1
        if failures >= retries.attempts:
            raise GaveUp(failures, failure) from failure
        await anyio.sleep(max(retries.pause(failures), asked))


def _may_pass(answer: HttpAnswer) -> bool:
    """Whether another attempt may end otherwise: never if this is what the server has recorded."""
    if answer.replayed:
        return False
    if answer.governed:
        # Recorded, unless the server says that it wants the request again: it is full, or at this very work.
        return answer.retry_after is not None and (answer.status in _PASSING or answer.status == 409)
    return answer.status in _PASSING


def _check_reuse(message: FrozenMessage, answer: HttpAnswer) -> None:
    """Told by the stable code in the error's data, not by numbers (section 4.5)."""
    try:
        found: object = json.loads(answer.body)
    except (ValueError, RecursionError):
        return
    error: object = cast("dict[str, Any]", found).get("error") if _is_object(found) else None
    data: object = cast("dict[str, Any]", error).get("data") if _is_object(error) else None
    facts = cast("dict[str, Any]", data) if _is_object(data) else {}
    if facts.get("code") == _REUSED:
        raise BodyChanged(message.message_id, facts.get("original_request_hash"), facts.get("submitted_request_hash"))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
