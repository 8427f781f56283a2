"""The client's half of A2A's ``idempotency/v1``: one body under one ``messageId``, the same bytes until it is answered.

The HTTP client is the application's: give :func:`send_frozen` a function that posts bytes.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, cast

import anyio

from sayagain.client.errors import ClientError, GaveUp
from sayagain.client.prompts import new_key
from sayagain.client.retries import Retries

__all__ = ["EXTENSION", "BodyChanged", "FrozenMessage", "HttpAnswer", "Post", "freeze", "send_frozen"]

EXTENSION: Final = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"

_CODE: Final = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD"

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a gateway, or of a server that did not come to the request: worth another attempt."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back; header names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header's value."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), None)

    @property
    def replayed(self) -> bool:
        """The server had done the work before, and answered from its record."""
        return self.header("Idempotent-Replayed") == "true"

    @property
    def governed(self) -> bool:
        """The server answered under the extension: this is the outcome of the message, be it an error (section 4.3)."""
        return EXTENSION in (self.header("A2A-Extensions") or "")


Post: TypeAlias = Callable[[bytes, Mapping[str, str]], Awaitable[HttpAnswer]]
"""Posts a body with headers to the agent."""


class BodyChanged(ClientError):
    """The server knows the ``messageId`` with another body (422): a mistake of the sender's, or of what stands between.

    The hashes are the server's, of what it had and of what it got.
    """

    def __init__(self, message_id: str, original_hash: str | None, submitted_hash: str | None) -> None:
        super().__init__(message_id)
        self.message_id = message_id
        self.original_hash = original_hash
        self.submitted_hash = submitted_hash

    def __str__(self) -> str:
        return f"message {self.message_id} was sent before with another body"


@dataclass(frozen=True, slots=True)
class FrozenMessage:
    """A request that is sent as these bytes, however often. Store it (:meth:`dump`) before it is sent first."""

    message_id: str
    body: bytes
    extensions: tuple[str, ...] = (EXTENSION,)

    @property
    def headers(self) -> Mapping[str, str]:
        """What has to go with each attempt."""
        return {"Content-Type": "application/json", "A2A-Extensions": ", ".join(self.extensions)}

    def dump(self) -> str:
        """As text, to survive the client."""
        body = base64.b64encode(self.body).decode()
        return json.dumps({"messageId": self.message_id, "body": body, "extensions": self.extensions})

    @classmethod
    def load(cls, text: str) -> Self:
        """What :meth:`dump` gave."""
        stored = json.loads(text)
        return cls(stored["messageId"], base64.b64decode(stored["body"]), tuple(stored["extensions"]))


def freeze(
    params: Mapping[str, Any], *, method: str = "message/send", extensions: tuple[str, ...] = ()
) -> FrozenMessage:
    """A request for ``method`` with ``params`` (``message`` and what goes with it), frozen.

    ``message.messageId`` is made here unless it is there. Raises :class:`ValueError` when it is no UUID (section 4.2).
    ``extensions`` are further URIs to activate.
    """
    message: Mapping[str, Any] = params["message"]
    message_id = message.get("messageId")
    if message_id is None:
        message_id = new_key()
    elif not isinstance(message_id, str) or str(uuid.UUID(message_id)) != message_id.lower():
        raise ValueError("messageId must be a UUID in its canonical form")
    whole = {**params, "message": {**message, "messageId": message_id}}
    request = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": whole}
    return FrozenMessage(message_id, json.dumps(request).encode(), (EXTENSION, *extensions))


async def send_frozen(
    message: FrozenMessage,
    post: Post,
    *,
    retries: Retries | None = None,
    lost: type[Exception] | tuple[type[Exception], ...] = OSError,
) -> HttpAnswer:
    """Post until there is an outcome; the answer, which may be an error of the server's.

    ``lost`` are the exceptions of ``post`` that leave the outcome open. Raises :class:`BodyChanged`, and
    :class:`~sayagain.client.errors.GaveUp`: then the message can be sent again later.
    """
    retries = retries or Retries()
    failures = 0
    while True:
        try:
            answer = await post(message.body, message.headers)
        except lost as error:
            failure: Exception = error
        else:
            if answer.status == 422:
                _check_reuse(message, answer)
            if answer.governed or answer.status not in _PASSING:
                return answer
            failure = ClientError(f"HTTP status {answer.status}")
        failures += 1
        if failures >= retries.attempts:
            raise GaveUp(failures, failure) from failure
        await anyio.sleep(retries.pause(failures))


def _check_reuse(message: FrozenMessage, answer: HttpAnswer) -> None:
    try:
        found: object = json.loads(answer.body)
    except ValueError:
        return
    error = cast("dict[str, Any]", found).get("error") if isinstance(found, dict) else None
    data = cast("dict[str, Any]", error).get("data") if isinstance(error, dict) else None
    if isinstance(data, dict):
        facts = cast("dict[str, Any]", data)
        if facts.get("code") == _CODE:
            raise BodyChanged(
                message.message_id, facts.get("original_request_hash"), facts.get("submitted_request_hash")
            )
