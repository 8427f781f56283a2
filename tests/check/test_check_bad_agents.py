"""What is no agent ends the run with a clear word, within a limit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

import pytest

from sayagain.check import wire
from sayagain.check.launch import CommandLauncher
from sayagain.check.model import Status
from sayagain.check.runner import Report, run_checks
from support_check import Fault, Message, PlayedLauncher, Stage


async def report_on(program: str, *, patience: float = 30.0) -> Report:
    return await report_of([sys.executable, "-c", program], patience)


async def report_of(command: Sequence[str], patience: float) -> Report:
    stage = Stage(patience=patience)
    report = await run_checks(CommandLauncher(command, os.environ), stage)
    assert report.failed
    assert not any(result.status is Status.PASS and not result.check.over_all for result in report.results)
    return report


async def test_no_such_command() -> None:
    report = await report_of(["/no/such/agent"], 30.0)
    assert "cannot be started" in report.trouble


async def test_one_that_exits_at_once_is_quoted() -> None:
    report = await report_on("import sys; sys.exit('no licence')")
    assert "the agent has ended the connection" in report.trouble
    assert "no licence" in report.trouble


async def test_one_that_never_answers() -> None:
    report = await report_on("import time; time.sleep(1000)", patience=0.2)
    assert "no answer to initialize within 0.2 s" in report.trouble


async def test_one_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    report = await report_on("print('{}' * 3, flush=True); input(); print('[', flush=True); input()", patience=0.2)
    assert "initialize" in report.trouble


async def test_one_that_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_EVENTS", 1000)
    report = await report_on("while True: print('{}')")
    assert "more than 1000 lines" in report.trouble


async def test_one_whose_line_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LONGEST_LINE", 100_000)
    report = await report_on("while True: print('x' * 1000, end='')")
    assert "longer than 100000 bytes" in report.trouble


HOSTILE = """
import sys
for line in sys.stdin:
    print('not json', '[' * 100000, '{"id": [1], "result": 5}', 'null', '[1, null, {"id": {}}]', sep='\\n')
    print('{"id": 1, "result": "text"}', '{"id": 2, "error": 7}', '{"method": 5, "id": 3}', sep='\\n')
    print('{"method": "session/update", "params": [1]}', '{"method": "session/update", "params": {"update": 3}}')
    print('{"method": "session/request_permission", "id": 1, "params": {"options": [1]}}', flush=True)
"""


async def test_one_that_answers_nonsense() -> None:
    report = await report_on(HOSTILE, patience=0.3)
    assert "initialize" in report.trouble


async def test_one_that_wants_a_sign_in() -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage, _SignedOut()), stage)
    assert report.failed
    assert "sign in" in report.trouble


class _SignedOut(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m).get("method") == "session/new" and "result" in m:
            return [{"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32000, "message": "Authentication required"}}]
        return [m]


async def test_one_of_another_version() -> None:
    answer = '{"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}}'
    report = await report_on(f"import sys\nfor line in sys.stdin: print({answer!r}, flush=True)")
    assert "protocolVersion 1" in report.trouble
