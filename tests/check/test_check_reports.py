"""The table, the page and the document."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sayagain.check.diagram import diagram, rows_of
from sayagain.check.document import document
from sayagain.check.lines import label
from sayagain.check.model import Status
from sayagain.check.page import page
from sayagain.check.runner import Report, run_checks
from sayagain.check.suite import CHECKS
from sayagain.check.terminal import Terminal
from sayagain.check.trace import Trace
from sayagain.cli import main
from support_broken import BROKEN
from support_check import PlayedLauncher, Stage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def broken(check_id: str, stage: Stage | None = None) -> Report:
    stage = stage or Stage()
    return await run_checks(PlayedLauncher(stage, BROKEN[check_id]()), stage)


async def test_the_table_tells_what_failed_and_where() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    stage = Stage()
    terminal.begin("agent --acp", "played", len(CHECKS))
    report = await run_checks(PlayedLauncher(stage, BROKEN["marker-before-answer"]()), stage, tell=terminal.tell)
    terminal.end(report)
    said = stream.getvalue()
    assert "FAIL  must    marker-before-answer" in said
    assert re.search(r"the marker comes after the answer\n +#\d+ client -> session/resume .*replayFrom", said)
    assert re.search(r"#\d+ <- agent  replay_complete", said)
    assert "1 failed, 0 warnings" in said
    assert "\x1b" not in said
    assert all(len(line) <= 120 for line in said.splitlines())


async def test_a_broken_should_is_a_warning() -> None:
    stream = io.StringIO()
    report = await broken("marker-before-asks")
    for result in report.results:
        Terminal(stream).tell(result)
    assert "warn  should  marker-before-asks" in stream.getvalue()
    assert not report.failed


async def test_the_document_has_every_check_and_the_lines_of_those_that_failed() -> None:
    report = await broken("key-retry")
    value = json.loads(json.dumps(document(report, "agent --acp", "1.0")))
    assert [check["id"] for check in value["checks"] if check["status"] == "fail"] == ["key-retry"]
    assert len(value["checks"]) == len(CHECKS)
    (failed,) = [check for check in value["checks"] if check["status"] == "fail"]
    assert failed["source"]["document"] == "RFD: idempotency keys"
    assert [line["from"] for line in failed["lines"]] == ["client", "agent", "client", "agent"]
    assert json.loads(failed["lines"][0]["text"])["params"]["idempotencyKey"]
    assert value["summary"]["failed"] == 1


async def test_the_page_stands_alone() -> None:
    text = page(await broken("marker-after-history"), "agent --acp", "1.0")
    assert "<script" not in text
    assert not re.search(r"(?:src|href)=['\"](?!#)", text)
    assert "@import" not in text
    assert "url(" not in text
    assert "id='marker-after-history'" in text
    assert text.count("<svg") == 1
    parse(text)


async def test_what_the_agent_writes_is_escaped() -> None:
    report = await broken("marker-only-history")
    evil = "<script>alert(1)</script>"
    report.agent = {"name": evil, "version": "1"}
    report.trouble = evil
    for result in report.results:
        result.reason = result.reason and evil
    text = page(report, evil, "1.0")
    assert "<script" not in text
    parse(text)


class _Parser(HTMLParser):
    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parse(text: str) -> None:
    parser = _Parser()
    parser.feed(text)
    assert parser.open == []


async def test_diagrams_are_xml_and_show_the_lines() -> None:
    for check_id in ("key-restarted", "base-clean-output", "key-private", "replay-of-streaming"):
        report = await broken(check_id)
        (failed,) = [result for result in report.results if result.status is Status.FAIL]
        rows = rows_of(failed.trace, failed.lines)
        assert [row.event for row in rows if row.shown] == sorted(failed.lines, key=lambda event: event.index)
        svg = ElementTree.fromstring(diagram(failed.trace, failed.lines, check_id))
        shown = [group for group in svg if "shown" in group.get("class", "")]
        assert len(shown) == len(failed.lines)
        assert not any("_sayagain/barrier" in label(row.event) for row in rows if row.event)


def test_long_traces_are_folded() -> None:
    trace = Trace()
    update = {"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "usage_update"}}}
    for _ in range(500):
        trace.add(1, "agent", json.dumps(update), update)
    rows = rows_of(trace.events, [trace.events[10], trace.events[490]])
    assert len(rows) < 15
    assert sum(row.folded for row in rows) + sum(row.event is not None for row in rows) == 500


AGENT = """
import anyio
from sayagain.agent import Agent
from sayagain.testing.fake_runtime import FakeRuntime
from sayagain.transports.stdio import take_stdio

async def main(transport):
    async with FakeRuntime() as runtime, Agent(runtime) as agent:
        await agent.serve(transport)

anyio.run(main, take_stdio())
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    import sys

    program = tmp_path / "agent.py"
    program.write_text(AGENT, encoding="utf-8")
    return ["--", sys.executable, str(program)]


def test_the_command(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "report.json"), "--html", str(tmp_path / "report.html")]
    assert main(["check", "--only", "base-", "--only", "key-retry", *files, *command]) == 0
    said = capsys.readouterr().out
    assert "sayagain-fake" in said
    assert "0 failed" in said
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["profile"] == "plain"
    assert "sayagain-fake" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_agent_that_stores_nothing_does_not_pass(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--only", "replay-whole", *command]) == 1
    assert "skip  must    replay-whole" in capsys.readouterr().out


def test_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert main(["check", "--only", "no-such-check", "--", "agent"]) == 2
    assert "no check has such a name" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(check.id in said and check.rule in said for check in CHECKS)
