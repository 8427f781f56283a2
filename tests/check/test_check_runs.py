"""A run that does not come to its end tells why, and what was seen until then."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.check import bench
from sayagain.check.document import document
from sayagain.check.launch import CommandLauncher
from sayagain.check.lines import label
from sayagain.check.model import Result, Status
from sayagain.check.page import page
from sayagain.check.runner import Report, run_checks
from sayagain.check.suite import CHECKS
from sayagain.check.terminal import Terminal
from sayagain.cli import main
from support_check import Fault, Message, PlayedLauncher, Stage

AGENT = Path(__file__).parent / "programs" / "fake_agent.py"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def by_id(report: Report) -> dict[str, Result]:
    return {result.check.id: result for result in report.results}


def failed(report: Report) -> set[str]:
    return {result.check.id for result in report.results if result.status is Status.FAIL}


def told(report: Report) -> str:
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.begin("agent", "played", len(CHECKS))
    for result in report.results:
        terminal.tell(result)
    terminal.end(report)
    return stream.getvalue()


class _OtherIds(Fault):
    """Answers under ids that nobody asked with."""

    def agent(self, m: Message) -> Iterable[Message | str]:
        return ["Loading.", {**m, "id": str(m["id"])}] if "id" in m else [m]


LOADED = ["no JSON-RPC message: Loading.", 'result of id "1": protocolVersion 2']


async def test_what_was_seen_before_the_end_is_judged() -> None:
    stage = Stage(patience=0.5)
    report = await run_checks(PlayedLauncher(stage, _OtherIds()), stage)
    assert report.trouble == "no answer to initialize within 0.5 s"
    assert failed(report) == {"base-version", "base-clean-output", "base-one-answer"}
    # What came instead of the answer is shown, in the check and beside the reason for the end.
    for lines in (by_id(report)["base-version"].lines, report.lines):
        assert "Loading." in [event.text for event in lines if event.side == "agent"]
        assert [event.message["id"] for event in lines if event.is_object] == [1, "1"]
        assert [label(event).partition(" version")[0] for event in lines] == ["initialize (id 1)", *LOADED]
    assert report.not_run == len(CHECKS) - 3
    said = told(report)
    assert f"{len(CHECKS) - 3} not run" in said
    assert len(said.splitlines()) < 40
    value = json.loads(json.dumps(document(report, "agent", "1.0")))
    assert value["summary"]["notRun"] == len(CHECKS) - 3
    assert [line["text"] for line in value["troubleLines"]][1] == "Loading."
    html = page(report, "agent", "1.0")
    assert "Loading." in html
    assert html.count(report.trouble) < 5


class _Dies(Fault):
    """Ends when it should answer the wanted requests."""

    wanted: Callable[[Message], bool]
    once = False

    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m) and self.wanted(self.asked(m)):
            self.dead = True
        return [m]


class _DiesInResumes(_Dies):
    def wanted(self, asked: Message) -> bool:
        return bool(asked["method"] == "session/resume")


async def test_a_death_costs_only_the_check_that_it_comes_in() -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage, _DiesInResumes()), stage)
    assert report.trouble == ""
    assert "session-resume" in failed(report)
    results = by_id(report)
    for check_id in ("session-listed", "prompt-ids-differ", "key-null", "close-silent", "marker-not-for-fork"):
        assert results[check_id].status is Status.PASS
    assert "the agent has ended the connection" in results["key-restarted"].reason


class _FailsToStart(_Dies):
    def wanted(self, asked: Message) -> bool:
        return asked["method"] == "initialize" and self.process in self.processes

    def __init__(self, *processes: int) -> None:
        super().__init__()
        self.processes = processes


async def test_a_process_that_fails_to_start_is_followed_by_another() -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage, _FailsToStart(6, 7)), stage)
    assert report.trouble == ""
    bad = [result for result in report.results if result.status is not Status.PASS]
    assert len(bad) == 2
    assert all("no answer to initialize" in result.reason for result in bad)


async def test_three_that_do_not_start_are_enough() -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage, _FailsToStart(*range(6, 100))), stage)
    assert "no answer to initialize" in report.trouble
    assert sum("no answer to initialize" in result.reason for result in report.results if not result.not_run) == 3


class _Silent(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [] if self.asked(m).get("method") == "session/resume" else [m]


async def test_silences_count_over_the_whole_run() -> None:
    stage = Stage(patience=0.5)
    report = await run_checks(PlayedLauncher(stage, _Silent()), stage)
    assert report.trouble.startswith("5 checks waited in vain")
    assert "no answer to session/resume within 0.5 s" in report.trouble
    ran = [result for result in report.results if not result.not_run and not result.check.over_all]
    waited = [result for result in ran if "within 0.5 s" in result.reason]
    assert len(waited) == 5
    first, last = ran.index(waited[0]), ran.index(waited[-1])
    assert any(result.status is Status.PASS for result in ran[first:last])


class _NeverCloses(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [] if self.asked(m).get("method") == "session/close" else [m]


async def test_a_silence_between_the_checks_counts_too() -> None:
    stage = Stage(patience=0.3)
    report = await run_checks(PlayedLauncher(stage, _NeverCloses()), stage)
    assert report.trouble.startswith("5 checks waited in vain")
    assert "no answer to session/close within 0.3 s" in report.trouble


async def test_the_run_has_a_limit() -> None:
    stage = Stage()
    report = await run_checks(PlayedLauncher(stage), stage, limit=0)
    assert report.trouble == "the run did not end within its limit of 0 s"
    assert report.not_run == len(CHECKS)
    assert all("its limit of 0 s" in result.reason for result in report.results)
    assert report.failed


async def test_a_run_can_be_stopped() -> None:
    stage = Stage()
    third = anyio.Event()
    seen: list[Result] = []

    def tell(result: Result) -> None:
        seen.append(result)
        if len(seen) == 3:
            third.set()

    async def watch(stop: Callable[[str], None]) -> None:
        await third.wait()
        stop("somebody said so")

    report = await run_checks(PlayedLauncher(stage), stage, tell=tell, watch=watch)
    assert report.trouble == "somebody said so"
    assert seen == report.results
    assert len(report.results) == len(CHECKS)
    assert not any(result.not_run for result in report.results[:3])
    assert all(result.not_run for result in report.results[10:])


async def test_one_that_goes_on_without_its_input_costs_one_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "GRACE", 0.2)
    monkeypatch.setattr(bench, "SHORT_GRACE", 0.1)
    stage = Stage()
    checks = [check for check in CHECKS if check.id in ("base-newer-version", "base-info", "base-version", "base-ends")]
    launcher = CommandLauncher([sys.executable, str(AGENT), "--stay"], os.environ)
    report = await run_checks(launcher, stage, checks)
    assert failed(report) == {"base-ends"}
    notes = [event.text for event in report.trace.events if "is killed" in event.text]
    assert notes == [
        "the agent does not end within 0.2 s, and is killed",
        "the agent does not end within 0.1 s, and is killed",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_a_report(number: signal.Signals, tmp_path: Path) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "html")}
    pids = tmp_path / "pids"
    options = [item for name, path in files.items() for item in (f"--{name}", str(path))]
    with subprocess.Popen(
        [*(sys.executable, "-m", "sayagain", "check"), *options, "--", sys.executable, str(AGENT), "--pids", str(pids)],
        stdout=subprocess.PIPE,
        text=True,
        # A test runner in the background may have it ignored.
        preexec_fn=lambda: signal.signal(number, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "base-unknown-method" in line:
                process.send_signal(number)
                break
        said = process.stdout.read()
    assert process.returncode == 128 + number
    assert f"The run was given up: ended by {number.name}" in said
    value = json.loads(files["json"].read_text(encoding="utf-8"))
    assert value["trouble"] == f"ended by {number.name}"
    assert value["summary"]["passed"] >= 3
    assert number.name in files["html"].read_text(encoding="utf-8")
    for pid in map(int, pids.read_text(encoding="ascii").split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--html", "no/such/folder/report.html", "--", sys.executable], "cannot be written: No such file"),
        (["--json", ".", "--", sys.executable], "cannot be written: Is a directory"),
        (["--cwd", "no/such/folder", "--", sys.executable], "no/such/folder is no directory"),
        (["--", "no-such-agent\x1b[31m"], "there is no command no-such-agent\N{REPLACEMENT CHARACTER}[31m"),
    ],
)
def test_what_cannot_work_is_said_before_the_run(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--patience", "--limit"])
@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf"])
def test_seconds(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", option, value, "--", "agent"])
    assert "not a number of seconds" in capsys.readouterr().err


def test_patience_and_limit_are_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    silent = [sys.executable, "-c", "import time; time.sleep(1000)"]
    assert main(["check", "--patience", "0.2", "--json", str(tmp_path / "report.json"), "--", *silent]) == 1
    assert "no answer to initialize within 0.2 s" in capsys.readouterr().out
    assert main(["check", "--limit", "0.2", "--", *silent]) == 1
    assert "did not end within its limit of 0.2 s" in capsys.readouterr().out


# What an agent says of itself and of its errors.

EVIL = "evil\x1b[2J\x1b]0;title\x07\u202e\ud800<script>alert(1)</script>" + "long " * 500


class _Evil(Fault):
    """Writes text that is not fit for a terminal, and too long for one."""

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "initialize":
            return [{**m, "result": {**m["result"], "info": {"name": EVIL, "version": "1"}}}]
        if asked.get("method") in ("session/list", "session/prompt"):
            error = {"code": EVIL if asked["method"] == "session/list" else -32603, "message": EVIL}
            return [{"jsonrpc": "2.0", "id": m["id"], "error": error}]
        return [m]


async def test_what_an_agent_says_is_made_fit_to_be_shown() -> None:
    stage = Stage(patience=2.0)
    report = await run_checks(PlayedLauncher(stage, _Evil()), stage)
    assert "prompt-inserted" in failed(report)
    said = told(report)
    html = page(report, f"agent {EVIL}", "1.0")
    for text in (said, html):
        text.encode("utf-8")
        assert not set(text) & set("\x1b\x07\u202e\ud800")
        assert "\N{REPLACEMENT CHARACTER}" in text
    assert "<script" not in html
    assert all(len(line) <= 120 for line in said.splitlines()[2:])
    assert all(part.count("long ") < 100 for part in said.split("  must    "))
    # Programs get it as it was.
    value = json.loads(json.dumps(document(report, "agent", "1.0")))
    assert value["agent"]["name"] == EVIL


ODD: list[Any] = [None, 7, -1, True, [], {}, [[]], {"a": 1}, "", EVIL, "\ud800", [None], 1.5, [{"type": "text"}]]


class _Scrambles(Fault):
    """Something in some of its messages is something else."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        # The fewer, the further the run comes.
        self._share = self._random.choice((0.004, 0.02, 0.1))

    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m).get("method") == "initialize" or self._random.random() > self._share:
            return [m]
        return [json.dumps(self._scrambled(m))]

    def _scrambled(self, value: Any) -> Any:
        if self._random.random() < 0.2 or not isinstance(value, dict | list) or not value:
            return self._random.choice(ODD)
        name: Any = self._random.choice(list(value if isinstance(value, dict) else range(len(value))))
        changed: Any = value.copy()
        changed[name] = self._scrambled(value[name])
        return changed


@pytest.mark.parametrize("seed", range(8))
async def test_no_text_of_an_agent_breaks_a_run(seed: int) -> None:
    stage = Stage(patience=0.3)
    report = await run_checks(PlayedLauncher(stage, _Scrambles(seed)), stage)
    assert len(report.results) == len(CHECKS)
    told(report).encode("utf-8")
    page(report, "agent", "1.0").encode("utf-8")
    json.dumps(document(report, "agent", "1.0")).encode("utf-8")
