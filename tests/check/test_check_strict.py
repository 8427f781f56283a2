"""What a check takes for a message is as strict as what our own agent does; what is none is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sayagain.check.form import flaw
from sayagain.check.model import Result, Status
from sayagain.check.runner import run_checks
from sayagain.check.suite import CHECKS
from support_check import Fault, Message, PlayedLauncher, Stage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Listing(Fault):
    """Changes the answers to session/list."""

    def __init__(self, change: Callable[[Message], Iterable[Message | str]]) -> None:
        super().__init__()
        self._change = change

    def agent(self, m: Message) -> Iterable[Message | str]:
        return self._change(m) if self.asked(m).get("method") == "session/list" else [m]


async def failed_with(change: Callable[[Message], Iterable[Message | str]]) -> list[Result]:
    stage = Stage()
    checks = [check for check in CHECKS if check.id.startswith(("base-", "session-listed"))]
    report = await run_checks(PlayedLauncher(stage, Listing(change)), stage, checks)
    return [result for result in report.results if result.status is Status.FAIL]


def unasked(answer: str) -> Callable[[Message], Iterable[Message | str]]:
    return lambda m: [answer, m]


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "method": "_x", "params": {"n": NaN}}',
        '{"jsonrpc": "2.0", "method": "_x", "params": {"n": -Infinity}}',
        '{"jsonrpc": "2.0", "method": "_x", "params": {"n": 1e999}}',
        '{"jsonrpc": "2.0", "method": "_x", "params": {"n": ' + "9" * 5000 + "}}",
        '\ufeff{"jsonrpc": "2.0", "method": "_x"}',
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 300 + "1" + "}" * 300,
        "",
        "[]",
        "null",
        '[{"jsonrpc": "2.0", "method": "_x"}, 3]',
    ],
)
async def test_what_is_no_message(line: str) -> None:
    failed = await failed_with(unasked(line))
    assert [result.check.id for result in failed] == ["base-clean-output"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"id": {"a": [1]}, "result": {}}, "id"),
        ({"id": 1.5, "result": {}}, "id"),
        ({"id": True, "result": {}}, "id"),
        ({"id": None, "result": {}}, "id"),
        ({"result": {}}, "id"),
        ({"error": {"code": 1, "message": "m"}}, "id"),
        ({"id": None, "error": "boom"}, "error is no object"),
        ({"id": None, "error": {"code": "-32602", "message": "m"}}, "code"),
        ({"id": None, "error": {"code": -32602, "message": 7}}, "message"),
        ({"id": None, "error": {"code": 1, "message": "m"}, "result": {}}, "a result and an error"),
        ({}, "no method"),
        ({"method": 5}, "method is no string"),
        ({"method": "_x", "id": None}, "id"),
        ({"method": "_x", "params": [1]}, "params"),
        ({"method": "_x", "result": {}}, "in one"),
    ],
)
async def test_what_is_a_message_of_no_form(answer: dict[str, Any], said: str) -> None:
    [failed] = await failed_with(unasked(json.dumps({"jsonrpc": "2.0", **answer})))
    assert failed.check.id == "base-message-form"
    assert said in failed.reason


def test_messages_of_good_form() -> None:
    for fields in (
        {"id": 1, "result": None},
        {"id": "one", "error": {"code": -1, "message": "m", "data": [1]}},
        {"id": None, "error": {"code": -1, "message": "m"}},
        {"method": "_x"},
        {"method": "_x", "id": "q", "params": None},
    ):
        assert flaw({"jsonrpc": "2.0", **fields}) == ""


async def test_answers_in_a_batch_count() -> None:
    [failed] = await failed_with(lambda m: [json.dumps([m, m])])
    assert failed.check.id == "base-one-answer"
    assert "twice" in failed.reason


async def test_one_answer_in_a_batch_is_one() -> None:
    assert await failed_with(lambda m: [json.dumps([m])]) == []


async def test_updates_in_a_batch_are_judged() -> None:
    update = {"sessionId": "s", "update": {"sessionUpdate": "agent_message_chunk", "content": {}}}
    batch = json.dumps([{"jsonrpc": "2.0", "method": "session/update", "params": update}])
    [failed] = await failed_with(unasked(batch))
    assert failed.check.id == "base-message-ids"


async def test_a_mark_at_the_beginning_is_shown_and_the_rest_is_understood() -> None:
    stage = Stage()
    checks = [check for check in CHECKS if check.id.startswith("base-")]
    report = await run_checks(PlayedLauncher(stage, _Marked()), stage, checks)
    failed = [result for result in report.results if result.status is Status.FAIL]
    assert [result.check.id for result in failed] == ["base-clean-output"]
    assert report.trouble == ""


class _Marked(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [f"\ufeff{json.dumps(m)}"] if self.asked(m).get("method") == "initialize" else [m]
