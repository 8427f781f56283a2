"""A2A: one body under one messageId, until there is an outcome."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from sayagain.client import GaveUp, Retries
from sayagain.client.a2a import EXTENSION, BodyChanged, FrozenMessage, HttpAnswer, freeze, send_frozen

PARAMS = {"message": {"role": "user", "parts": [{"kind": "text", "text": "hello"}]}}
QUICK = Retries(attempts=4, first=0.001, longest=0.001)
GOVERNED = {"a2a-extensions": EXTENSION}


class Server:
    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self._answers = list(answers)
        self.got: list[tuple[bytes, Mapping[str, str]]] = []

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        self.got.append((body, headers))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_the_body_is_frozen_with_its_id() -> None:
    params: dict[str, Any] = json.loads(json.dumps(PARAMS))
    message = freeze(params)
    params["message"]["parts"].clear()
    sent = json.loads(message.body)
    assert sent["params"]["message"] == {**PARAMS["message"], "messageId": message.message_id}
    assert uuid.UUID(message.message_id).version == 7
    assert message.headers["A2A-Extensions"] == EXTENSION
    assert FrozenMessage.load(message.dump()) == message


@pytest.mark.parametrize("bad", ["", "1", "short", 7, "{01a22ddf-10cc-7000-8000-000000000000}"])
def test_an_id_that_is_no_uuid_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"UUID|hexadecimal"):
        freeze({"message": {**PARAMS["message"], "messageId": bad}})


async def test_each_attempt_has_the_same_bytes() -> None:
    server = Server(ConnectionResetError(), HttpAnswer(503, {}, b"busy"), HttpAnswer(200, GOVERNED, b"{}"))
    message = freeze(PARAMS)
    with anyio.fail_after(5):
        answer = await send_frozen(message, server.post, retries=QUICK)
    assert (answer.status, answer.replayed) == (200, False)
    assert {body for body, _ in server.got} == {message.body}
    assert len(server.got) == 3


async def test_an_error_under_the_extension_is_the_outcome() -> None:
    """It is recorded: another attempt would get the same (section 4.3)."""
    headers = {**GOVERNED, "Idempotent-Replayed": "true"}
    server = Server(HttpAnswer(503, headers, b"{}"))
    with anyio.fail_after(5):
        answer = await send_frozen(freeze(PARAMS), server.post, retries=QUICK)
    assert (answer.status, answer.replayed, len(server.got)) == (503, True, 1)


async def test_a_422_names_both_hashes() -> None:
    data = {
        "code": "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD",
        "original_request_hash": "aa",
        "submitted_request_hash": "bb",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32422, "data": data}}).encode()
    server = Server(HttpAnswer(422, GOVERNED, body))
    with anyio.fail_after(5), pytest.raises(BodyChanged) as caught:
        await send_frozen(freeze(PARAMS), server.post)
    assert (caught.value.original_hash, caught.value.submitted_hash) == ("aa", "bb")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": 7}', b'{"error": {"data": {"code": "OTHER"}}}'])
async def test_another_422_is_an_answer(body: bytes) -> None:
    with anyio.fail_after(5):
        answer = await send_frozen(freeze(PARAMS), Server(HttpAnswer(422, {}, body)).post)
    assert answer.status == 422


async def test_it_gives_up() -> None:
    server = Server(*[ConnectionResetError("reset")] * 9)
    with anyio.fail_after(5), pytest.raises(GaveUp):
        await send_frozen(freeze(PARAMS), server.post, retries=QUICK)
    assert len(server.got) == QUICK.attempts
