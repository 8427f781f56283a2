"""The command line, as a user meets it."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid

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
