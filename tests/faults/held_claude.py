"""Stands in front of the real ``claude`` and can stop at a frame: run by the path in ``CLAUDE_CODE_EXECUTABLE``.

It passes lines on, both ways. Before the frames that tests care about it says so on a socket and waits for a word, so
that a fault can strike at an exact point: an id given to the runtime and not read, stored and not told. ``python -I -S
held_claude.py SOCKET CLAUDE [ARGUMENT...]``. On the socket, one JSON object a line::

    -> {"wrapper": PID, "claude": PID}
    -> {"at": "in:user" | "in:initialize" | "out:mirror", "ids": [...]}
    <- go
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, BinaryIO


class Control:
    """The line to the tests; without them everything passes."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")

    def tell(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def pause(self, at: str, ids: list[str]) -> None:
        self.tell({"at": at, "ids": ids})
        self._file.readline()


def point(line: bytes, direction: str) -> tuple[str, list[str]] | None:
    """The name of a frame at which to stop, and the message ids in it."""
    if direction == "out" and not line.startswith(b'{"type":"transcript_mirror"'):
        return None
    try:
        frame = json.loads(line)
    except ValueError:
        return None
    if direction == "out":
        return "out:mirror", [row["uuid"] for row in frame["entries"] if row.get("type") == "user"]
    if frame.get("type") == "user":
        return "in:user", [frame["uuid"]]
    if frame.get("type") == "control_request" and frame["request"].get("subtype") == "initialize":
        return "in:initialize", []
    return None


def relay(source: BinaryIO, sink: BinaryIO, direction: str, control: Control) -> None:
    with suppress(BrokenPipeError):
        for line in source:
            if found := point(line, direction):
                control.pause(*found)
            sink.write(line)
            sink.flush()
    with suppress(BrokenPipeError):
        sink.close()


def main() -> None:
    path, *command = sys.argv[1:]
    claude = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert claude.stdin is not None
    assert claude.stdout is not None
    # A line of its own for each direction: one may wait while the other goes on.
    controls = [Control(path), Control(path)]
    controls[0].tell({"wrapper": os.getpid(), "claude": claude.pid})
    inward = threading.Thread(target=relay, args=(sys.stdin.buffer, claude.stdin, "in", controls[0]), daemon=True)
    inward.start()
    relay(claude.stdout, sys.stdout.buffer, "out", controls[1])
    status = claude.wait()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
