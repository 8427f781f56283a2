"""Stored Codex sessions of 1,000 and 10,000 turns: replay, and keys that an earlier process took."""

from __future__ import annotations

from functools import partial

from bench.app_server import replay_alone
from bench.contestants import Contestant
from bench.measure_history import replay_of
from bench.metrics import MIB, MS, Measure, Metric, Readings
from bench.processes import peak_memory, reset_peak_memory, resident_memory
from bench.rollouts import place
from bench.transcripts import Stored, known_key

__all__ = ["MEASURES"]

_RETRIES = 50
_FLAT = 8
"""MiB that a replay of 10,000 turns may add: a page at a time is held, whatever the length."""


def _replay(turns: int, warm: bool, contestant: Contestant, _stored: Stored) -> Readings:
    alone, load = replay_alone(contestant, place(contestant, turns, warm=warm))
    readings = replay_of(contestant, place(contestant, turns, warm=warm))
    # From the start of each: who answers initialize before Codex is ready waits for it in the resume.
    own = readings["whole"][0] - alone * MS
    return {**readings, "alone": [alone * MS], "load": [load * MS], "own": [own]}


def _key(turns: int, contestant: Contestant, _stored: Stored) -> Readings:
    session_id = place(contestant, turns, warm=True)
    with contestant.start() as client:
        client.initialize()
        resumed = client.request("session/resume", {"sessionId": session_id, "cwd": str(contestant.project)})
        reset_peak_memory(client.pid)
        memory = resident_memory(client.pid)
        first = client.prompt(session_id, "Say it", known_key(1))
        added = peak_memory(client.pid) - memory
        retries = [client.prompt(session_id, "Say it", known_key(1)) for _ in range(_RETRIES)]
        return {
            "resume": [resumed.seconds * MS],
            "first": [first.seconds * MS],
            "memory": [added / MIB],
            "retry": [retry.seconds * MS for retry in retries],
        }


def _replay_measure(turns: int, *, warm: bool, runs: int, quick_runs: int) -> Measure:
    state, size = ("warm" if warm else "cold"), f"{turns // 1000}k"
    large = turns == 10_000
    return Measure(
        f"codex-replay-{state}-{size}",
        (
            Metric("first", f"replay of {size} turns, {state}: to the first history update", "ms"),
            Metric("last", "  to the last history update", "ms"),
            Metric("marker", "  to the marker", "ms"),
            Metric("gap", "  from the last history update to the marker", "ms", limit=50, worst=True),
            Metric("response", "  to the response", "ms"),
            Metric("whole", "  from the start of the agent to the response", "ms"),
            Metric("alone", "  Codex alone, from its start: loading the thread, listing its items", "ms"),
            Metric("load", "    of these, loading", "ms"),
            Metric("own", "  what the adapter adds to that", "ms", ratio=0.6 if large else None),
            Metric("cpu", "  CPU time of the agent", "ms"),
            Metric("memory", "  memory added to the agent", "MiB", limit=_FLAT if large else None),
            Metric("updates", "  history updates", ""),
            Metric("size", "  size of these", "MiB"),
        ),
        partial(_replay, turns, warm),
        runs=runs,
        quick_runs=quick_runs,
        runtime="codex",
    )


MEASURES = (
    _replay_measure(1_000, warm=True, runs=5, quick_runs=1),
    _replay_measure(10_000, warm=True, runs=5, quick_runs=1),
    _replay_measure(10_000, warm=False, runs=3, quick_runs=0),
    Measure(
        "codex-key-10k",
        (
            Metric("resume", "resume of 10k turns without replay: to the response", "ms"),
            Metric("first", "known key after that: to the answer, with the set of all ids", "ms", limit=1000),
            Metric("memory", "  memory added to the agent", "MiB"),
            Metric("retry", "  sent again: round trip", "ms", limit=2),
        ),
        partial(_key, 10_000),
        runs=5,
        quick_runs=1,
        keyed=True,
        runtime="codex",
    ),
)
