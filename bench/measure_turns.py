"""Start-up, prompts, and a turn of many deltas."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from bench.client import Client
from bench.contestants import Contestant
from bench.metrics import MIB, MS, Measure, Metric, Readings
from bench.processes import cpu_seconds, helpers_memory, peak_memory, reset_peak_memory, resident_memory
from bench.transcripts import Stored

__all__ = ["CODEX_MEASURES", "MEASURES"]

_LATER_PROMPTS = 8
_keys = count()


class _Turn(NamedTuple):
    """When each of these was seen, on the client's clock."""

    sent: float
    answer: float
    update: float
    chunk: float
    idle: float
    updates: int

    def readings(self) -> dict[str, float]:
        """Milliseconds from the request."""
        moments = {"answer": self.answer, "update": self.update, "chunk": self.chunk, "idle": self.idle}
        return {name: (moment - self.sent) * MS for name, moment in moments.items()}


def _turn(client: Client, session_id: str, text: str) -> _Turn:
    before = len(client.seen)
    answer = client.prompt(session_id, text, f"bench {next(_keys)}")
    idle = client.idle(before)
    seen = client.seen[before:]
    chunk = next(update for update in seen if update.kind == "agent_message_chunk")
    return _Turn(answer.sent, answer.time, seen[0].time, chunk.time, idle.time, len(seen))


def _startup(contestant: Contestant, _stored: Stored) -> Readings:
    with contestant.start() as client:
        initialized = client.initialize()
        cpu, memory = cpu_seconds(client.pid), peak_memory(client.pid)
        new = client.new(contestant.project)
        turn = _turn(client, new.result["sessionId"], "Say hello")
        helpers = helpers_memory(client.pid, besides=contestant.executable)
        values = {
            **turn.readings(),
            "initialize": (initialized.time - client.started) * MS,
            "cpu": cpu * MS,
            "memory": memory / MIB,
            "new": new.seconds * MS,
            "whole": (turn.chunk - client.started) * MS,
            "cpu_turn": cpu_seconds(client.pid) * MS,
            "memory_turn": peak_memory(client.pid) / MIB,
            "helpers": helpers / MIB,
        }
        return {name: [value] for name, value in values.items()}


def _prompts(contestant: Contestant, _stored: Stored) -> Readings:
    with contestant.start() as client:
        client.initialize()
        session_id = client.new(contestant.project).result["sessionId"]
        _turn(client, session_id, "Say hello")
        cpu = cpu_seconds(client.pid)
        turns = [_turn(client, session_id, f"Say hello again, {number}") for number in range(_LATER_PROMPTS)]
        cpu = cpu_seconds(client.pid) - cpu
        each = [turn.readings() for turn in turns]
        return {**{name: [one[name] for one in each] for name in each[0]}, "cpu": [cpu / _LATER_PROMPTS * MS]}


def _deltas(contestant: Contestant, _stored: Stored) -> Readings:
    with contestant.start() as client:
        client.initialize()
        session_id = client.new(contestant.project).result["sessionId"]
        _turn(client, session_id, "Say hello")
        reset_peak_memory(client.pid)
        cpu, memory = cpu_seconds(client.pid), resident_memory(client.pid)
        turn = _turn(client, session_id, "Say it in 2000 deltas")
        return {
            "cpu": [(cpu_seconds(client.pid) - cpu) * MS],
            "memory": [(peak_memory(client.pid) - memory) / MIB],
            "idle": [turn.readings()["idle"]],
            "updates": [turn.updates],
        }


def _measures(runtime: str, prefix: str, initialize: float, new: float | None) -> tuple[Measure, ...]:
    """The same for every runtime, but for what is promised of starts, of which its own is a part."""
    return (
        Measure(
            f"{prefix}startup",
            (
                Metric("initialize", "spawn to the answer of initialize", "ms", ratio=initialize),
                Metric("cpu", "  CPU time until then", "ms"),
                Metric("memory", "  peak memory until then", "MiB"),
                Metric("new", "session/new", "ms", ratio=new),
                Metric("answer", "first prompt, at once: to its answer", "ms"),
                Metric("update", "  to the first update", "ms"),
                Metric("chunk", "  to the first chunk of the model", "ms"),
                Metric("idle", "  to idle", "ms"),
                Metric("whole", "spawn to the first chunk of the model, all in all", "ms"),
                Metric("cpu_turn", "  CPU time of the agent from spawn to the first idle", "ms"),
                Metric("memory_turn", "  peak memory of the agent until then", "MiB"),
                Metric("helpers", "  memory of its helper processes", "MiB"),
            ),
            _startup,
            runs=12,
            quick_runs=3,
            runtime=runtime,
        ),
        Measure(
            f"{prefix}prompts",
            (
                Metric("answer", "later prompt: to its answer", "ms"),
                Metric("update", "  to the first update", "ms"),
                Metric("chunk", "  to the first chunk of the model", "ms"),
                Metric("idle", "  to idle", "ms"),
                Metric("cpu", "  CPU time of the agent for one", "ms"),
            ),
            _prompts,
            runs=5,
            quick_runs=1,
            runtime=runtime,
        ),
        Measure(
            f"{prefix}deltas",
            (
                Metric("cpu", "a turn of 2,000 deltas: CPU time of the agent", "ms", ratio=0.5),
                Metric("memory", "  memory added to the agent", "MiB"),
                Metric("idle", "  prompt to idle", "ms"),
                Metric("updates", "  updates sent", ""),
            ),
            _deltas,
            runs=7,
            quick_runs=2,
            runtime=runtime,
        ),
    )


MEASURES = _measures("claude", "", 0.5, 0.6)
CODEX_MEASURES = _measures("codex", "codex-", 0.6, None)
