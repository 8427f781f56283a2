"""What becomes of the process's own descriptors; in processes of their own, since it is never undone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import atexit, os, subprocess, sys
import anyio
from sayagain.transports.stdio import take_stdio
"""


def run(program: str, stdin: bytes = b"", **options: object) -> subprocess.CompletedProcess[bytes]:
    # With PYTHONUNBUFFERED nothing would wait in the buffer of stdout.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(program)]
    done: subprocess.CompletedProcess[bytes] = subprocess.run(  # type: ignore[call-overload]
        command, input=stdin, capture_output=True, timeout=60, check=True, env=env, **options
    )
    return done


def test_stray_output_never_reaches_the_protocol() -> None:
    done = run(
        """
        print("printed at import, still buffered")
        old = sys.stdout
        atexit.register(print, "printed at exit")
        transport = take_stdio()
        print("printed")
        old.write("through the old object\\n")
        sys.__stdout__.write("through the original object\\n")
        os.write(1, b"through descriptor 1\\n")
        subprocess.run(["echo", "by a child"], check=True)

        async def main():
            await transport.send(b"protocol\\n")
            await transport.aclose()
            print("printed after closing")

        anyio.run(main)
        """
    )
    assert done.stdout == b"protocol\n"
    assert sorted(done.stderr.decode().splitlines()) == sorted(
        [
            "printed at import, still buffered",
            "printed",
            "through the old object",
            "through the original object",
            "through descriptor 1",
            "by a child",
            "printed after closing",
            "printed at exit",
        ]
    )


def test_stray_line_is_seen_even_when_the_process_is_killed() -> None:
    done = run(
        """
        take_stdio()
        print("the last words")
        os._exit(0)
        """
    )
    assert (done.stdout, done.stderr) == (b"", b"the last words\n")


def test_children_inherit_neither_the_input_nor_the_output() -> None:
    done = run(
        """
        transport = take_stdio()
        eaten = subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout
        kept = subprocess.run(["ls", "-l", "/proc/self/fd"], stdout=subprocess.PIPE, check=True, close_fds=False).stdout

        async def main():
            line = await transport.receive()
            await transport.send(repr((eaten, sys.stdin.read(), line)).encode() + b"\\n")
            targets = [os.readlink(f"/proc/self/fd/{fd}") for fd in (transport._read_fd, transport._write_fd)]
            await transport.send(repr([target.encode() in kept for target in targets]).encode())

        anyio.run(main)
        """,
        stdin=b"for us\n",
    )
    assert done.stdout.splitlines() == [rb"(b'', '', b'for us\n')", b"[False, False]"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_echo(backend: str) -> None:
    payload = b"line\n" * 100_000
    done = run(
        f"""
        transport = take_stdio()

        async def main():
            while data := await transport.receive():
                await transport.send(data)
            await transport.aclose()

        anyio.run(main, backend={backend!r})
        """,
        stdin=payload,
    )
    assert done.stdout == payload
    assert done.stderr == b""


def test_missing_stderr_is_replaced() -> None:
    done = run(
        """
        transport = take_stdio()
        os.write(2, b"noise")
        os.write(1, b"noise")

        async def main():
            await transport.send(await transport.receive())

        anyio.run(main)
        """,
        stdin=b"protocol\n",
        preexec_fn=lambda: os.close(2),
    )
    assert done.stdout == b"protocol\n"


@pytest.mark.parametrize("missing", [(0,), (1,), (0, 1), (1, 2)])
def test_missing_stdin_or_stdout_is_an_error(missing: tuple[int, ...], tmp_path: Path) -> None:
    """Whatever number a copy of the other one would get."""
    told = tmp_path / "told"
    run(
        f"""
        try:
            take_stdio()
        except OSError:
            open({str(told)!r}, "w").close()
        """,
        preexec_fn=lambda: [os.close(fd) for fd in missing],
    )
    assert told.exists()
