"""The chat as its user sees it: on a terminal of its own, and in a pipe."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.chat.rows import session_row
from sayagain.client import Outbox, new_key

AGENT = Path(__file__).parent / "programs" / "fake_agent.py"
LONGEST = 30.0


def command(outbox: Path, *arguments: str) -> list[str]:
    agent = [sys.executable, str(AGENT)]
    return [sys.executable, "-m", "sayagain", "chat", "--outbox", str(outbox), *arguments, "--", *agent]


class Terminal:
    def __init__(self, outbox: Path, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command(outbox, *arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "NO_COLOR": "1"},
            start_new_session=True,
        )
        os.close(slave)
        self._seen = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str) -> str:
        """What came up to ``text``."""
        deadline = time.monotonic() + LONGEST
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, self._seen.decode()
            if select.select([self._master], [], [], 0.5)[0]:
                try:
                    self._seen += os.read(self._master, 65536)
                except OSError:
                    raise AssertionError(f"ended with {self._seen.decode()!r}") from None
        before, _, self._seen = self._seen.partition(text.encode())
        return before.decode()

    def end(self) -> int:
        self.type("\x04")
        return self.process.wait(LONGEST)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(outbox: Path) -> Iterator[Terminal]:
    terminal = Terminal(outbox)
    try:
        terminal.expect("> ")
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def test_a_line_is_a_prompt_and_the_answer_streams(terminal: Terminal) -> None:
    terminal.type("hello\n")
    terminal.expect("You said hello, I believe.�[2J")
    terminal.expect("> ")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (
            {"sessionId": "0192f3c4-89ab", "title": "Fix\nit " + "x" * 99, "updatedAt": "2026-01-02T03:04:05.678Z"},
            f"Fix it {'x' * 52}…  2026-01-02 04:04  0192…89ab",
        ),
        ({"sessionId": "s-1", "updatedAt": "2026-01-02T03:04:05+09:00"}, "untitled  2026-01-01 19:04  s-1"),
        ({"sessionId": "s-1", "title": None, "updatedAt": "2026-01-02"}, "untitled  2026-01-02 00:00  s-1"),
        ({"sessionId": "s-1", "title": "T", "updatedAt": "yesterday"}, "T  yesterday  s-1"),
        ({"sessionId": "s-1", "title": 7, "updatedAt": 7}, "7  7  s-1"),
        ({"sessionId": "s-1", "updatedAt": "0001-01-01T00:00:00+14:00"}, "untitled  0001-01-01T00:0…  s-1"),
    ],
)
def test_a_session_in_the_list(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], line: str) -> None:
    """By its title, else by time and id."""
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()
    try:
        assert session_row(row) == line
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("answer", "outcome"), [("1", "allow"), ("2", "reject"), ("nonsense", "cancelled")])
def test_a_permission_is_asked_for(terminal: Terminal, answer: str, outcome: str) -> None:
    terminal.type("may you\n")
    assert "Allow ask?" in terminal.expect("Which one?")
    terminal.type(f"{answer}\n")
    terminal.expect(f"You chose {outcome}")
    assert terminal.end() == 0


def test_what_is_asked_for_is_shown_before(terminal: Terminal) -> None:
    terminal.type("may you edit\n")
    terminal.expect("· Edit\r\n  modify /notes\r\nAllow ask?")
    terminal.type("1\n")
    terminal.expect("You chose allow")
    assert terminal.end() == 0


def test_a_form_is_filled_in(terminal: Terminal) -> None:
    terminal.type("form\n")
    assert "Who are you?" in terminal.expect("Name *: as on the door")
    terminal.expect("(text; at least 2 characters; Enter to decline)")
    terminal.type("A\n")
    terminal.expect("That has 1 characters; at least 2 characters.")
    terminal.type("Ann\n")
    terminal.expect("(whole number; 1 to 9; Enter to skip)")
    # What is typed ahead is for the fields that follow.
    terminal.type("\n2\n\n")
    terminal.expect("  2. Blue")
    content = terminal.expect("You filled in")
    assert "Enter for yes" in content
    terminal.expect('{"action": "accept", "content": {"name": "Ann", "colour": "b", "sure": true}}.')
    terminal.expect("> ")
    terminal.type("hello\n")
    terminal.expect("You said hello")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("prompt", "answer", "result"),
    [
        ("form", "\n", '{"action": "decline"}'),
        ("sure", "what\ny\n", '{"action": "accept", "content": {}}'),
        ("sure", "n\n", '{"action": "decline"}'),
        ("page", "y\n", '{"action": "accept"}'),
        ("page", "\n", '{"action": "decline"}'),
    ],
)
def test_yes_and_no(terminal: Terminal, prompt: str, answer: str, result: str) -> None:
    terminal.type(f"{prompt}\n")
    asked = terminal.expect({"form": "decline)", "sure": "Yes or no?", "page": "open this page?"}[prompt])
    if prompt == "page":
        assert "  https://example.com/\N{REPLACEMENT CHARACTER}in" in asked
    terminal.type(answer)
    terminal.expect(f"You filled in {result}.")
    assert terminal.end() == 0


@pytest.mark.parametrize(("prompt", "shown"), [("form", "to decline)"), ("page", "open this page?")])
def test_ctrl_c_cancels_what_is_asked_and_not_the_work(terminal: Terminal, prompt: str, shown: str) -> None:
    terminal.type(f"{prompt}\n")
    terminal.expect(shown)
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.expect("Cancelled.")
    terminal.expect('You filled in {"action": "cancel"}.')
    terminal.expect("> ")
    assert terminal.end() == 0


def test_the_chat_ends_in_the_middle_of_a_form(terminal: Terminal) -> None:
    terminal.type("form\n")
    terminal.expect("to decline)")
    assert terminal.end() == 0


def test_a_question_that_is_taken_back(terminal: Terminal) -> None:
    terminal.type("withdraw\n")
    terminal.expect("Who are you?")
    terminal.expect("That is no longer asked.")
    terminal.expect("> ")
    terminal.type("hello\n")
    terminal.expect("You said hello")
    assert terminal.end() == 0


def test_a_mode_that_nobody_knows_is_an_error_to_the_agent(terminal: Terminal) -> None:
    terminal.type("odd\n")
    terminal.expect("You said odd")
    terminal.expect("> ")
    assert terminal.end() == 0


def test_what_holds_of_the_session(terminal: Terminal) -> None:
    terminal.type(":info\n")
    terminal.expect("Session ")
    terminal.expect("Pace: Slow")
    assert terminal.end() == 0


def test_left_prompts_that_ask_do_not_block_the_input(outbox: Path) -> None:
    """The second is held until the first is answered, by the user whom the chat must hear."""
    anyio.run(leave, outbox, "may you", "may you")
    terminal = Terminal(outbox)
    try:
        terminal.expect("The last chat left prompts")
        terminal.expect("Which one?")
        terminal.type("1\n")
        terminal.expect("You chose allow")
        terminal.expect("Which one?")
        terminal.type("2\n")
        terminal.expect("You chose reject")
        assert terminal.end() == 0
    finally:
        terminal.close()


async def leave(path: Path, *texts: str) -> None:
    """What a chat leaves that died before its first prompt was stored."""
    async with Outbox(path) as outbox:
        await outbox.opened("lost", "/")
        for text in texts:
            await outbox.add("lost", "/", new_key(), [{"type": "text", "text": text}])


def test_ctrl_c_stops_the_work_and_then_ends_the_chat(terminal: Terminal) -> None:
    terminal.type("wait\n")
    terminal.expect("You said wait")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.expect("(cancelled)")
    terminal.expect("> ")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.process.wait(LONGEST) == 0


def test_a_session_is_chosen_from_a_list(terminal: Terminal) -> None:
    terminal.type("hello\n")
    terminal.expect("I believe.")
    terminal.expect("> ")
    terminal.type(":new\n")
    terminal.expect("> ")
    terminal.type(":resume\n")
    terminal.expect("1. untitled  ")
    terminal.type("1\n")
    terminal.expect("> hello")
    assert terminal.end() == 0


def test_help_and_nothing_pending(terminal: Terminal) -> None:
    terminal.type(":help\n")
    terminal.expect("Ctrl-C stops")
    terminal.type(":pending\n")
    terminal.expect("All prompts are confirmed.")
    terminal.type(":quit\n")
    assert terminal.process.wait(LONGEST) == 0


def test_in_a_pipe_it_is_plain(outbox: Path) -> None:
    done = subprocess.run(
        command(outbox), input=b"one\n\nmay you\nform\ntwo", capture_output=True, timeout=LONGEST, check=False
    )
    out = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert out.splitlines() == [
        "Fake (sayagain) 0.1.0",
        "> one",
        "You said one, I believe.�[2J",
        "> may you",
        "You said may you",
        "Not approved, nobody can be asked: Allow ask?",
        "You chose cancelled",
        "> form",
        "You said form",
        "Declined, nobody can be asked: Who are you?",
        'You filled in {"action": "decline"}.',
        "> two",
        "You said two, I believe.�[2J",
    ]
    assert "\x1b" not in out


def test_an_agent_that_is_none(outbox: Path) -> None:
    chat = [sys.executable, "-m", "sayagain", "chat", "--outbox", str(outbox), "--", "/nowhere/agent"]
    done = subprocess.run(chat, input=b"", capture_output=True, timeout=LONGEST, check=False)
    assert done.returncode == 1
    assert done.stdout.decode() == "sayagain chat: /nowhere/agent cannot be started: No such file or directory\n"


def test_an_agent_that_speaks_something_else(outbox: Path) -> None:
    """One clear line, and no further attempt."""
    agent = [sys.executable, "-c", "while True: print('Usage:', flush=True)"]
    chat = [sys.executable, "-m", "sayagain", "chat", "--outbox", str(outbox), "--", *agent]
    done = subprocess.run(chat, input=b"", capture_output=True, timeout=LONGEST, check=False)
    assert done.returncode == 1
    (line,) = done.stdout.decode().splitlines()
    assert line.startswith("sayagain chat: the agent speaks no JSON-RPC; its output begins with 'Usage: Usage: ")
    assert done.stderr.count(b"\n") <= 1


PAGES = """
import json, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def update(**fields):
    send(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": "state_update", **fields}})
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "session/prompt":
        update(state="running")
        send(method="elicitation/complete", params={"elicitationId": "e"})
    result = {"protocolVersion": 2, "sessionId": "s", "messageId": "m", "info": {"name": "Pages"}}
    send(id=asked["id"], result=result)
    if asked["method"] == "session/prompt":
        update(state="idle", stopReason="end_turn")
"""


def test_a_page_is_done(outbox: Path) -> None:
    chat = [sys.executable, "-m", "sayagain", "chat", "--outbox", str(outbox), "--", sys.executable, "-c", PAGES]
    done = subprocess.run(chat, input=b"x", capture_output=True, timeout=LONGEST, check=False)
    assert done.stdout.decode().splitlines() == ["Pages", "> x", "What there was to do on the page is done."]
    assert (done.returncode, done.stderr) == (0, b"")


STORED = """
import json, sys
errors = json.loads(sys.argv[1])
rows = [{"sessionId": name, "title": name.upper(), "cwd": "/", "updatedAt": "?"} for name in ("a", "b")]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        method, params = asked["method"], asked["params"]
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        if method in errors:
            answer["error"] = {"code": errors[method], "message": "no " + method}
        else:
            answer["result"] = {"protocolVersion": 2, "sessionId": "n", "messageId": "m", "info": {"name": "Stored"}}
            answer["result"]["sessions"] = rows
        if method == "session/prompt":
            for update in ({"state": "running"}, {"state": "idle", "stopReason": "end_turn"}):
                update = {"sessionUpdate": "state_update", **update}
                params = {"sessionId": params["sessionId"], "update": update}
                print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}), flush=True)
            print("prompted", params["sessionId"], file=sys.stderr, flush=True)
        print(json.dumps(answer), flush=True)
"""
"""An agent with two sessions, that answers the methods of its argument with the errors there."""


def stored(outbox: Path, *arguments: str, given: bytes, **errors: int) -> tuple[int, list[str]]:
    """The exit status and the output of a chat in a pipe, without the two lines of the list."""
    codes = json.dumps({f"session/{name}": code for name, code in errors.items()})
    agent = [sys.executable, "-c", STORED, codes]
    chat = [sys.executable, "-m", "sayagain", "chat", "--outbox", str(outbox), *arguments, "--", *agent]
    done = subprocess.run(chat, input=given, capture_output=True, timeout=LONGEST, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode, [line for line in done.stdout.decode().splitlines() if not line.startswith("  ")]


@pytest.mark.parametrize("given", [b"", b"\n", b"Explain\n2\n", b"3"])
def test_in_a_pipe_nothing_is_chosen(outbox: Path, given: bytes) -> None:
    """It ends with a word about it, and what was meant for one session goes into no other."""
    status, lines = stored(outbox, "--resume", given=given)
    assert status == 1
    assert lines[:2] == ["Stored", "Which one? (number, or Enter for none)"]
    (said,) = lines[2:]
    assert said.startswith("No session is chosen. ")
    assert "--session ID" in said


def test_in_a_pipe_a_session_is_chosen(outbox: Path) -> None:
    status, lines = stored(outbox, "--resume", given=b"2\nhello\n")
    assert (status, lines[2], lines[-1]) == (0, "Session b", "> hello")


@pytest.mark.parametrize("arguments", [["--session", "a"], ["--resume"]])
def test_in_a_pipe_a_session_that_cannot_be_resumed_ends_the_chat(outbox: Path, arguments: list[str]) -> None:
    status, lines = stored(outbox, *arguments, given=b"1\nhello\n", resume=-32602)
    assert status == 1
    assert lines[-2:] == ["Session a", "the session could not be resumed: no session/resume (-32602)"]


@pytest.mark.parametrize(("new", "status"), [({}, 0), ({"new": -32000}, 1)])
def test_prompts_are_left_in_a_session_that_cannot_be_resumed(outbox: Path, new: dict[str, int], status: int) -> None:
    """The chat goes on in a new one; or, if there is none either, ends with a word."""
    anyio.run(leave, outbox, "one")
    ended, lines = stored(outbox, given=b"hello\n", resume=-32602, **new)
    assert ended == status
    assert lines[:4] == [
        "Stored",
        "The last chat left prompts that were not confirmed.",
        "Session lost",
        "the session could not be resumed: no session/resume (-32602)",
    ]
    assert lines[4] == ("no session/new (-32000)" if new else "> hello")


def test_there_is_no_session(outbox: Path) -> None:
    assert stored(outbox, given=b"hello\n", new=-32000) == (1, ["Stored", "no session/new (-32000)"])


def test_trouble_that_no_task_expects_is_a_line(outbox: Path) -> None:
    code = "import sayagain.chat.app as app, sayagain.cli as cli, sayagain.client as client, sys\n"
    code += "async def begin(chat): raise client.OutboxError(None, 'is odd')\n"
    code += "app.Chat._begin = begin\nsys.exit(cli.main(sys.argv[1:]))"
    agent = [sys.executable, str(AGENT)]
    chat = [sys.executable, "-c", code, "chat", "--outbox", str(outbox), "--", *agent]
    done = subprocess.run(chat, input=b"", capture_output=True, timeout=LONGEST, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.decode().splitlines()[1:] == ["sayagain chat: the outbox in memory is odd"]
