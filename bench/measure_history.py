"""Stored sessions of 1,000 to 100,000 rows: replay, and keys that an earlier process took."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

from bench.contestants import Contestant
from bench.metrics import KIB, MIB, MS, Measure, Metric, Readings
from bench.processes import bytes_read, cpu_seconds, peak_memory, reset_peak_memory, resident_memory
from bench.transcripts import Stored, known_key

__all__ = ["MEASURES", "replay_of"]

_RETRIES = 50

_HISTORY = frozenset(
    {
        "user_message",
        "user_message_chunk",
        "agent_message",
        "agent_message_chunk",
        "agent_thought",
        "agent_thought_chunk",
        "tool_call_update",
        "tool_call_content_chunk",
        "terminal_update",
        "terminal_output_chunk",
        "plan_update",
    }
)
"""The kinds of updates that a replay of the generated sessions consists of. The last of these before the response ends
the history of an agent that sends no marker: nothing works in these sessions, so none of them can be live."""


def replay_of(contestant: Contestant, session_id: str) -> Readings:
    """What a new process takes to replay a stored session."""
    with contestant.start() as client:
        client.initialize()
        reset_peak_memory(client.pid)
        memory, cpu = resident_memory(client.pid), cpu_seconds(client.pid)
        params = {"sessionId": session_id, "cwd": str(contestant.project), "replayFrom": {"type": "start"}}
        response = client.request("session/resume", params)
        cpu, peak = cpu_seconds(client.pid) - cpu, peak_memory(client.pid)
        history = [update for update in client.seen if update.kind in _HISTORY and update.time <= response.time]
        marker = next((update for update in client.seen if update.kind == "replay_complete"), None)
        first, last = history[0].time, history[-1].time
        readings: dict[str, list[float]] = {
            "first": [(first - response.sent) * MS],
            "last": [(last - response.sent) * MS],
            "response": [response.seconds * MS],
            "whole": [(response.time - client.started) * MS],
            "cpu": [cpu * MS],
            "memory": [(peak - memory) / MIB],
            "updates": [len(history)],
            "size": [sum(update.size for update in history) / MIB],
        }
        if marker is not None:
            readings["marker"] = [(marker.time - response.sent) * MS]
            readings["gap"] = [(marker.time - last) * MS]
        return readings


def _replay(rows: int, contestant: Contestant, stored: Stored) -> Readings:
    return replay_of(contestant, stored.place(contestant, rows))


def _key(rows: int, contestant: Contestant, stored: Stored) -> Readings:
    session_id = stored.place(contestant, rows)
    with contestant.start() as client:
        client.initialize()
        client.request("session/resume", {"sessionId": session_id, "cwd": str(contestant.project)})
        reset_peak_memory(client.pid)
        memory = resident_memory(client.pid)
        first = client.prompt(session_id, "Prompt 1", known_key(1))
        added = peak_memory(client.pid) - memory
        # The CLI is started beside all this; a retry is measured when that is over.
        client.until(lambda: any(update.kind == "available_commands_update" for update in client.seen))
        read = bytes_read(client.pid)
        retries = [client.prompt(session_id, "Prompt 1", known_key(1)) for _ in range(_RETRIES)]
        read = bytes_read(client.pid) - read
        return {
            "first": [first.seconds * MS],
            "memory": [added / MIB],
            "retry": [retry.seconds * MS for retry in retries],
            "read": [read / _RETRIES / KIB],
        }


def _resume(rows: int, contestant: Contestant, stored: Stored) -> Readings:
    session_id = stored.place(contestant, rows)
    with contestant.start() as client:
        client.initialize()
        resumed = client.request("session/resume", {"sessionId": session_id, "cwd": str(contestant.project)})
        return {"response": [resumed.seconds * MS]}


def _id_set(rows: int, contestant: Contestant, stored: Stored) -> Readings:
    original = stored.original(rows, contestant.project)
    command = [sys.executable, "-m", "bench.id_set", str(original)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {"time": [found["seconds"] * MS], "memory": [found["bytes"] / MIB], "ids": [found["ids"]]}


def _name(rows: int) -> str:
    return f"{rows // 1000}k"


def _replay_measure(rows: int, runs: int, quick_runs: int) -> Measure:
    name = _name(rows)
    return Measure(
        f"replay-{name}",
        (
            Metric("first", f"replay of {name} rows: to the first history update", "ms"),
            Metric("last", "  to the last history update", "ms", ratio=1 / 3 if rows == 10_000 else None),
            Metric("marker", "  to the marker", "ms"),
            Metric("gap", "  from the last history update to the marker", "ms", limit=50, worst=True),
            Metric("response", "  to the response", "ms"),
            Metric("whole", "  from the start of the agent to the response", "ms"),
            Metric("cpu", "  CPU time of the agent", "ms"),
            Metric("memory", "  memory added to the agent", "MiB", limit=60 if rows == 100_000 else None),
            Metric("updates", "  history updates", ""),
            Metric("size", "  size of these", "MiB"),
        ),
        partial(_replay, rows),
        runs=runs,
        quick_runs=quick_runs,
    )


def _resume_measure(rows: int, runs: int, quick_runs: int) -> Measure:
    metrics = (Metric("response", f"resume of {_name(rows)} rows without replay: to the response", "ms"),)
    return Measure(f"resume-{_name(rows)}", metrics, partial(_resume, rows), runs=runs, quick_runs=quick_runs)


def _key_measure(rows: int, runs: int, quick_runs: int) -> Measure:
    name = _name(rows)
    return Measure(
        f"key-{name}",
        (
            Metric("first", f"known key after a restart, {name} rows: to the answer", "ms"),
            Metric("memory", "  memory added to the agent", "MiB"),
            Metric("retry", "  sent again: round trip", "ms", limit=2),
            Metric("read", "  bytes read for that, the request itself included", "KiB"),
        ),
        partial(_key, rows),
        runs=runs,
        quick_runs=quick_runs,
        keyed=True,
    )


def _id_set_measure(rows: int, runs: int, quick_runs: int) -> Measure:
    large = rows == 100_000
    return Measure(
        f"ids-{_name(rows)}",
        (
            Metric("time", f"set of all ids of {_name(rows)} rows, in process", "ms", limit=400 if large else None),
            Metric("memory", "  memory added", "MiB", limit=30 if large else None),
            Metric("ids", "  ids", ""),
        ),
        partial(_id_set, rows),
        runs=runs,
        quick_runs=quick_runs,
        keyed=True,
    )


_SIZES = ((1_000, 7, 2), (10_000, 7, 2), (100_000, 3, 0))

MEASURES = tuple(
    make(*size) for make in (_replay_measure, _resume_measure, _key_measure, _id_set_measure) for size in _SIZES
)
