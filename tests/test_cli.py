"""The command line, as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from sayagain import __version__
from sayagain.identity import derive_message_id

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"t","version":"1"}}}\n'
)
SESSION = "0d8f4a3e-7a3c-4f43-9a7d-4f8f7a3c9a7d"


def run(*arguments: str, stdin: bytes = b"", **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sayagain", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


def test_version() -> None:
    assert run("--version").stdout.decode() == f"sayagain {__version__}\n"


@pytest.mark.parametrize("key", ["k", "with spaces ", "ключ", "😀" * 255])
def test_key_prints_the_message_id_of_a_key_on_standard_input(key: str) -> None:
    done = run("key", SESSION, stdin=key.encode() + b"\n")
    assert (done.returncode, done.stdout.decode()) == (0, derive_message_id(SESSION, key) + "\n")


@pytest.mark.parametrize("line", [b"", b"\n", b"x" * 256 + b"\n", b"\xff\n"])
def test_key_refuses_what_is_no_key_without_repeating_it(line: bytes) -> None:
    done = run("key", SESSION, stdin=line)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"the key" in done.stderr
    assert b"xxx" not in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["claude", "--log-level", "loud"], ["key"]])
def test_wrong_arguments_are_told_on_standard_error(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage: sayagain" in done.stderr


def test_standard_output_is_protocol_only_and_the_end_of_input_ends_it(tmp_path: object) -> None:
    lines = INITIALIZE + b"nonsense\n"
    done = run("claude", "--log-level", "debug", stdin=lines)
    assert done.returncode == 0
    first, second = done.stdout.decode().splitlines()
    assert first.startswith('{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":2')
    assert second.startswith('{"jsonrpc":"2.0","id":null,"error":{"code":-32700')


def test_a_missing_executable_is_a_clear_error_at_session_new() -> None:
    lines = INITIALIZE + b'{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/"}}\n'
    done = run("claude", stdin=lines, env={"CLAUDE_CODE_EXECUTABLE": "/nowhere/claude", "PATH": "/usr/bin:/bin"})
    assert b"CLAUDE_CODE_EXECUTABLE names /nowhere/claude" in done.stdout
    assert b'"reason":"runtime_missing"' in done.stdout


def test_ids_of_sessions_that_are_no_uuid_have_keys_too() -> None:
    first, second = (run("key", name, stdin=b"k\n").stdout.decode().strip() for name in ("thread-1", "thread-2"))
    assert first != second
    assert uuid.UUID(first).version == 5


SWALLOWS = """
import os, signal, sys
from sayagain import cli
def imports(name):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.sigtimedwait([signal.SIGUSR1], 5)
    except KeyboardInterrupt:
        pass
    sys.exit(7)
cli._runtime = imports
cli.main(["codex"])
"""


def test_an_interrupt_that_comes_while_modules_are_loaded_is_not_lost() -> None:
    """The import system runs callbacks in which an exception is only printed."""
    done = subprocess.run([sys.executable, "-c", SWALLOWS], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGINT


UNCOLLECTED = """
import gc, sys
from sayagain import cli
from sayagain.transports import stdio
def fail():
    print("collects" if gc.isenabled() else "does not collect", file=sys.stderr)
    raise OSError("no standard input")
stdio.take_stdio = fail
cli.main(["codex"])
print("collects" if gc.isenabled() else "does not collect", file=sys.stderr)
"""


def test_what_fails_while_modules_are_loaded_leaves_collections_on() -> None:
    done = subprocess.run([sys.executable, "-c", UNCOLLECTED], capture_output=True, timeout=60, check=True)
    assert done.stderr.splitlines() == [b"does not collect", b"sayagain: no standard input", b"collects"]


@pytest.mark.parametrize("runtime", ["claude", "codex"])
def test_a_patience_that_is_no_number_is_told_at_session_new(runtime: str, tmp_path: Path) -> None:
    lines = INITIALIZE + b'{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/"}}\n'
    environment = {"SAYAGAIN_PATIENCE": "soon", "CLAUDE_CODE_EXECUTABLE": sys.executable, "CODEX_PATH": "/nowhere"}
    done = run(runtime, stdin=lines, env=os.environ | environment | {"HOME": str(tmp_path)})
    told = {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}
    assert told[1]["result"]["protocolVersion"] == 2
    assert "SAYAGAIN_PATIENCE must be a number of seconds above 0" in told[2]["error"]["message"]
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["claude", "--log-file", "/nonexistent/log"], {}, b"/nonexistent/log"),
        (["claude", "login"], {"CLAUDE_CODE_EXECUTABLE": "/nonexistent/claude"}, b"/nonexistent/claude"),
    ],
)
def test_what_the_user_can_mend_is_told_in_one_line(
    arguments: list[str], environment: dict[str, str], words: bytes
) -> None:
    done = run(*arguments, env=os.environ | environment)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"sayagain: ")
    assert done.stderr.count(b"\n") == 1
    assert words in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "sayagain", "key", SESSION]
        done = subprocess.run(command, input=b"key\n", stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"sayagain: ")
    assert done.stderr.count(b"\n") == 1


def test_output_that_nobody_reads_ends_a_command_silently() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "sayagain", "key", SESSION]
    done = subprocess.run(command, input=b"key\n", stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_action_is_shown_as_one_that_can_be_left_out() -> None:
    assert b"[ACTION] ..." in run("claude", "--help").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_it_says_what_it_waits_for() -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sayagain", "claude"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        process.wait(30)
    os.close(ours)
    os.close(theirs)
    assert b"sayagain chat claude" in line


EXECUTABLES = {"claude": "CLAUDE_CODE_EXECUTABLE", "codex": "CODEX_PATH"}
LOGINS = {"claude": ["auth", "login"], "codex": ["login"]}
"""How a runtime itself is asked to sign somebody in."""


def terminal_logins(runtime: str) -> list[list[str]]:
    """The ``args`` of each method that a client is to run on a terminal."""
    initialize = json.loads(INITIALIZE)
    initialize["params"]["capabilities"] = {"auth": {"terminal": {}}}
    (answer,) = run(runtime, stdin=json.dumps(initialize).encode() + b"\n").stdout.splitlines()
    methods = json.loads(answer)["result"]["authMethods"]
    return [method["args"] for method in methods if method["type"] == "terminal"]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """An executable that tells its arguments and ends with 3."""
    path = tmp_path / "stand-in"
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(3)\n", encoding="utf-8"
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("before", [[], ["--log-level", "debug"], ["--log-file", "login"]])
@pytest.mark.parametrize("runtime", EXECUTABLES)
def test_each_login_on_a_terminal_is_started_as_it_is_advertised(
    runtime: str, before: list[str], stand_in: Path
) -> None:
    """A client runs the agent's own command line, and the method's ``args`` behind it."""
    env = os.environ | {EXECUTABLES[runtime]: str(stand_in)}
    methods = terminal_logins(runtime)
    assert methods
    for action, *passed_on in methods:
        done = run(runtime, *before, action, *passed_on, env=env)
        assert (done.returncode, json.loads(done.stdout)) == (3, [*LOGINS[runtime], *passed_on]), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["status"],
        ["-h"],
        ["--help"],
        ["--version"],
        ["--log", "--log-level"],
        ["--", "--device-auth", "--"],
        ["-c", "a=b c", "login", ""],
    ],
)
@pytest.mark.parametrize("runtime", EXECUTABLES)
def test_what_follows_a_login_is_passed_on_as_it_is(runtime: str, arguments: list[str], stand_in: Path) -> None:
    done = run(runtime, "login", *arguments, env=os.environ | {EXECUTABLES[runtime]: str(stand_in)})
    assert (done.returncode, json.loads(done.stdout)) == (3, [*LOGINS[runtime], *arguments]), done.stderr


@pytest.mark.real
@pytest.mark.parametrize("runtime", EXECUTABLES)
def test_the_advertised_logins_are_those_of_the_runtime(runtime: str, tmp_path: Path) -> None:
    env = os.environ | {
        "CODEX_HOME": str(tmp_path),
        "CLAUDE_CONFIG_DIR": str(tmp_path),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    for _, *options in terminal_logins(runtime):
        done = run(runtime, "login", *options, "--help", env=env)
        assert done.returncode == 0
        assert all(option.encode() in done.stdout for option in options)


@pytest.mark.real
def test_a_login_has_the_terminal_and_the_exit_status_of_the_runtime(tmp_path: Path) -> None:
    done = run("codex", "login", "status", env=os.environ | {"CODEX_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert b"Not logged in" in done.stdout + done.stderr


def test_a_script_that_is_not_there_is_told_in_one_line() -> None:
    command = [sys.executable, "-m", "sayagain.testing.messages_api", "--script", "nope"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"nope" in done.stderr
    assert b"Traceback" not in done.stderr


def test_the_log_tells_requests_and_outcomes_but_no_key_and_no_prompt() -> None:
    prompt = (
        b'{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"%b","idempotencyKey":"secret key",'
        b'"prompt":[{"type":"text","text":"secret prompt"}]}}\n' % SESSION.encode()
    )
    log = run("claude", "--log-level", "debug", stdin=INITIALIZE + prompt).stderr.decode()
    assert "'initialize', session None: answered" in log
    assert f"'session/prompt', session '{SESSION}': failed (SessionNotFound)" in log
    assert "secret" not in log
