"""A client that looks at the clock: one agent process over pipes, every line stamped when its bytes arrived.

It runs in one thread and does next to nothing per line while it measures (no JSON of updates is parsed), so that it
takes little from the two processes under measurement and reads faster than either writes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench.processes import descendants, end_leftovers

__all__ = ["AgentFailed", "Answer", "Client", "Seen"]

PATIENCE = 180.0
"""Seconds for anything at all: the CLI takes ten to resume a session of 100,000 rows on a busy machine."""

END_PATIENCE = 10.0
READ_SIZE = 1 << 20
_KIND = b'"sessionUpdate":"'
_INFO = {"name": "bench", "version": "1"}


class AgentFailed(Exception):
    """The agent answered with an error, closed its output, or said nothing for too long."""


class Seen(NamedTuple):
    """One ``session/update`` as it arrived."""

    time: float
    kind: str
    size: int
    stop: str
    """Of an idle ``state_update``: its stop reason, or ``"idle"`` without one; else empty."""


class Answer(NamedTuple):
    """A successful answer, when its request was written and when it arrived."""

    sent: float
    time: float
    result: Any

    @property
    def seconds(self) -> float:
        return self.time - self.sent


class Client:
    """Use as a context manager: leaving it ends the agent and everything that it started."""

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        self.seen: list[Seen] = []
        self._answers: dict[int, tuple[float, Mapping[str, Any]]] = {}
        self._sent: dict[int, float] = {}
        self._last_id = 0
        self._rest = b""
        with log.open("ab") as errors:
            self.started = perf_counter()
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        started = descendants(self.pid)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        # What it still says must not keep it from ending.
        with suppress(AgentFailed):
            self.until(lambda: False, patience=END_PATIENCE)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        end_leftovers(started)

    # Requests.

    def begin(self, method: str, params: Mapping[str, Any]) -> int:
        """Write a request; its id."""
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        line = json.dumps(request).encode() + b"\n"
        self._sent[self._last_id] = perf_counter()
        self._write(line)
        return self._last_id

    def answer(self, request_id: int) -> Answer:
        """Read until the request is answered."""
        self.until(lambda: request_id in self._answers)
        arrived, message = self._answers.pop(request_id)
        if "error" in message:
            raise AgentFailed(f"an error answer: {message['error']}")
        return Answer(self._sent.pop(request_id), arrived, message["result"])

    def request(self, method: str, params: Mapping[str, Any]) -> Answer:
        return self.answer(self.begin(method, params))

    def initialize(self) -> Answer:
        return self.request("initialize", {"protocolVersion": 2, "info": _INFO, "capabilities": {}})

    def new(self, cwd: Path) -> Answer:
        return self.request("session/new", {"cwd": str(cwd), "mcpServers": []})

    def prompt(self, session_id: str, text: str, key: str) -> Answer:
        """A keyed prompt; an agent that knows no keys ignores it."""
        prompt = [{"type": "text", "text": text}]
        return self.request("session/prompt", {"sessionId": session_id, "prompt": prompt, "idempotencyKey": key})

    # Reading.

    def until(self, condition: Callable[[], bool], *, patience: float = PATIENCE) -> None:
        """Read until something that arrived makes the condition true."""
        deadline = perf_counter() + patience
        while not condition():
            left = deadline - perf_counter()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise AgentFailed(f"nothing for {patience:.0f} s")
            data = os.read(self._out, READ_SIZE)
            if not data:
                raise AgentFailed("the agent closed its output")
            self._take(data, perf_counter())

    def idle(self, since: int) -> Seen:
        """Read until the session is idle; ``since`` is how many updates had been seen before. Only good ends count."""
        position = since

        def found() -> bool:
            nonlocal position
            while position < len(self.seen):
                if self.seen[position].stop:
                    return True
                position += 1
            return False

        self.until(found)
        end = self.seen[position]
        if end.stop != "end_turn":
            raise AgentFailed(f"a turn ended with {end.stop}")
        return end

    def _take(self, data: bytes, now: float) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n") if b"\n" in data else (self._rest + data,)
        for line in lines:
            at = line.find(_KIND)
            if at >= 0 and b'"session/update"' in line[:120]:
                start = at + len(_KIND)
                kind = line[start : line.index(b'"', start)].decode()
                stop = _stop(line) if kind == "state_update" else ""
                self.seen.append(Seen(now, kind, len(line) + 1, stop))
            elif line:
                self._message(json.loads(line), now)

    def _message(self, message: Mapping[str, Any], now: float) -> None:
        if "method" not in message:
            self._answers[message["id"]] = (now, message)
        elif "id" in message:
            error = {"code": -32601, "message": "not supported"}
            self._write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._in, rest) :]


def _stop(line: bytes) -> str:
    update = json.loads(line)["params"]["update"]
    return update.get("stopReason") or "idle" if update["state"] == "idle" else ""
