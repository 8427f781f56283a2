"""A2A: one body under one messageId, until there is an outcome."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from sayagain.client import GaveUp, OutcomeUnknown, Retries
from sayagain.client.a2a import (
    EXTENSION,
    BodyChanged,
    Declaration,
    FrozenMessage,
    HttpAnswer,
    MessageTooOld,
    declared,
    freeze,
    send_frozen,
)

PARAMS = {"message": {"role": "user", "parts": [{"kind": "text", "text": "hello"}]}}
QUICK = Retries(attempts=4, first=0.001, longest=0.001)
GOVERNED = {"a2a-extensions": EXTENSION}
DECLARED = Declaration(required=True, ttl_seconds=86400)


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
    assert freeze(PARAMS, extensions=("urn:x",)).headers["A2A-Extensions"] == f"{EXTENSION}, urn:x"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "1",
        "short",
        7,
        "{01a22ddf-10cc-7000-8000-000000000000}",
        "01A22DDF-10CC-7000-8000-000000000000",
        "01a22ddf10cc70008000000000000000",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
)
def test_an_id_that_is_no_uuid_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"UUID|hexadecimal"):
        freeze({"message": {**PARAMS["message"], "messageId": bad}})


def test_the_applications_own_id_is_kept() -> None:
    mine = str(uuid.uuid4())
    assert freeze({"message": {**PARAMS["message"], "messageId": mine}}).message_id == mine


@pytest.mark.parametrize("part", [{"data": float("nan")}, {"data": float("inf")}, {"text": "\ud800"}])
def test_what_no_server_could_hash_is_refused(part: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        freeze({"message": {"role": "user", "parts": [part]}})


def test_the_id_under_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="messageId"):
        freeze({"message": {**PARAMS["message"], "message_id": str(uuid.uuid4())}})


@pytest.mark.parametrize(
    ("extensions", "found"),
    [
        ([{"uri": EXTENSION, "required": True, "params": {"ttl_seconds": 86400}}], DECLARED),
        ([{"uri": "urn:x"}, {"uri": EXTENSION, "params": {"ttl_seconds": 60.0}}], Declaration(False, 60)),
        ([{"uri": EXTENSION}], Declaration(False, 86400)),
        ([{"uri": EXTENSION, "params": {"ttl_seconds": True}}], Declaration(False, 86400)),
        ([{"uri": EXTENSION + "0"}], None),
        ([7, None, {}], None),
        ({}, None),
        (None, None),
    ],
)
def test_the_card_says_whether_the_agent_has_it(extensions: Any, found: Declaration | None) -> None:
    assert declared({"capabilities": {"extensions": extensions}}) == found


def test_a_card_without_capabilities() -> None:
    assert declared({}) is None
    assert declared({"capabilities": []}) is None


async def test_without_the_extension_it_is_sent_once() -> None:
    """The answer is lost, the work may be done: nobody would notice that the second request is the first."""
    server = Server(ConnectionResetError())
    with anyio.fail_after(5), pytest.raises(OutcomeUnknown, match="message/send"):
        await send_frozen(freeze(PARAMS), server.post, None, retries=QUICK)
    busy = Server(HttpAnswer(504, {}, b""))
    with anyio.fail_after(5):
        answer = await send_frozen(freeze(PARAMS), busy.post, None, retries=QUICK)
    assert (answer.status, len(server.got), len(busy.got)) == (504, 1, 1)


async def test_what_the_server_may_have_forgotten_is_not_sent() -> None:
    server = Server(HttpAnswer(200, GOVERNED, b"{}"))
    old = replace(freeze(PARAMS), frozen=time.time() - 61)
    with anyio.fail_after(5), pytest.raises(MessageTooOld):
        await send_frozen(FrozenMessage.load(old.dump()), server.post, Declaration(required=True, ttl_seconds=60))
    assert server.got == []


async def test_each_attempt_has_the_same_bytes() -> None:
    server = Server(ConnectionResetError(), HttpAnswer(503, {}, b"busy"), HttpAnswer(200, GOVERNED, b"{}"))
    message = freeze(PARAMS)
    with anyio.fail_after(5):
        answer = await send_frozen(message, server.post, DECLARED, retries=QUICK)
    assert (answer.status, answer.replayed) == (200, False)
    assert {body for body, _ in server.got} == {message.body}
    assert len(server.got) == 3


async def test_an_error_under_the_extension_is_the_outcome() -> None:
    """It is recorded: another attempt would get the same (section 4.3)."""
    headers = {**GOVERNED, "Idempotent-Replayed": "true"}
    server = Server(HttpAnswer(503, headers, b"{}"))
    with anyio.fail_after(5):
        answer = await send_frozen(freeze(PARAMS), server.post, DECLARED, retries=QUICK)
    assert (answer.status, answer.replayed, len(server.got)) == (503, True, 1)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (409, GOVERNED | {"retry-after": "0"}),
        (503, GOVERNED | {"Retry-After": "0"}),
        (503, {"A2A-Extensions": "urn:x"}),
        (503, {"A2A-Extensions": EXTENSION + "0"}),
        (429, {}),
    ],
)
async def test_an_error_that_is_not_recorded_is_no_outcome(status: int, headers: dict[str, str]) -> None:
    server = Server(HttpAnswer(status, headers, b"{}"), HttpAnswer(200, {"A2A-Extensions": f"urn:x, {EXTENSION}"}, b""))
    with anyio.fail_after(5):
        answer = await send_frozen(freeze(PARAMS), server.post, DECLARED, retries=QUICK)
    assert (answer.status, answer.governed, len(server.got)) == (200, True, 2)


@pytest.mark.parametrize("extra", [{}, {"Idempotent-Replayed": "true", "Retry-After": "1"}])
async def test_a_recorded_error_is_the_outcome(extra: dict[str, str]) -> None:
    server = Server(HttpAnswer(503, GOVERNED | extra, b"{}"))
    with anyio.fail_after(5):
        assert (await send_frozen(freeze(PARAMS), server.post, DECLARED, retries=QUICK)).status == 503


async def test_the_server_says_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("sayagain.client.a2a.anyio.sleep", sleep)
    later = [HttpAnswer(503, {"Retry-After": value}, b"") for value in ("7", "999999", "Wed, 21 Oct 2026 07:28:00 GMT")]
    await send_frozen(freeze(PARAMS), Server(*later, HttpAnswer(200, {}, b"")).post, DECLARED, retries=QUICK)
    assert waited[:2] == [7, 60]
    assert waited[2] <= QUICK.longest


async def test_a_422_names_both_hashes() -> None:
    data = {
        "code": "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD",
        "original_request_hash": "aa",
        "submitted_request_hash": "bb",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32422, "data": data}}).encode()
    server = Server(HttpAnswer(422, GOVERNED, body))
    with anyio.fail_after(5), pytest.raises(BodyChanged) as caught:
        await send_frozen(freeze(PARAMS), server.post, DECLARED)
    assert (caught.value.original_hash, caught.value.submitted_hash) == ("aa", "bb")


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 99999, b'{"error": 7}', b'{"error": {"data": {"code": "OTHER"}}}'])
async def test_another_422_is_an_answer(body: bytes) -> None:
    with anyio.fail_after(5):
        answer = await send_frozen(freeze(PARAMS), Server(HttpAnswer(422, {}, body)).post, DECLARED)
    assert answer.status == 422


async def test_it_gives_up() -> None:
    server = Server(*[ConnectionResetError("reset")] * 9)
    with anyio.fail_after(5), pytest.raises(GaveUp):
        await send_frozen(freeze(PARAMS), server.post, DECLARED, retries=QUICK)
    assert len(server.got) == QUICK.attempts
