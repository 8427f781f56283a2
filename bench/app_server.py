"""Codex by itself: what any adapter waits for that replays a loaded thread."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.contestants import Contestant

__all__ = ["replay_alone"]


def replay_alone(contestant: Contestant, session_id: str) -> tuple[float, float]:
    """Seconds from the start of an app-server until it has loaded a thread and listed its items, one page after the
    other; and those of them that the loading took."""
    started = time.perf_counter()
    with _app_server(contestant) as server:
        server.request("initialize", {"clientInfo": {"name": "bench", "version": "1"}, "capabilities": None})
        began = time.perf_counter()
        server.request("thread/resume", {"threadId": session_id, "excludeTurns": True})
        loaded = time.perf_counter()
        page: dict[str, Any] = {"threadId": session_id, "limit": 100, "sortDirection": "asc"}
        while (cursor := server.request("thread/items/list", page)["nextCursor"]) is not None:
            page["cursor"] = cursor
        return time.perf_counter() - started, loaded - began


class _Server:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._asked = 0

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        self._asked += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message = {"id": self._asked, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            answer = json.loads(line)
            if "method" not in answer and answer.get("id") == self._asked:
                if "error" in answer:
                    raise SystemExit(f"bench: Codex answered {method} with {answer['error']}")
                return answer["result"]
        raise SystemExit(f"bench: Codex ended in {method}")


@contextmanager
def _app_server(contestant: Contestant) -> Iterator[_Server]:
    with subprocess.Popen(
        [contestant.executable, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=contestant.env,
        cwd=contestant.project,
    ) as process:
        try:
            yield _Server(process)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)
        finally:
            process.kill()
