"""``python -m bench``: run the measures, print the table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import measure_codex, measure_history, measure_turns
from bench.client import AgentFailed
from bench.contestants import (
    PEER_VARIABLE,
    RUNTIMES,
    Contestant,
    Runtime,
    StandIn,
    find_executable,
    ours,
    peer,
    stand_in,
)
from bench.metrics import Measure
from bench.processes import load_average
from bench.table import Result, as_json, header, line
from bench.transcripts import Stored

MEASURES = (
    *measure_turns.MEASURES,
    *measure_history.MEASURES,
    *measure_turns.CODEX_MEASURES,
    *measure_codex.MEASURES,
)

BUSY = 0.5
"""Load average over one minute above which the numbers carry a warning."""


def main() -> int:
    options = _parser().parse_args()
    measures = _chosen(options.only, quick=options.quick)
    if not measures:
        print(f"bench: nothing to do; measures: {', '.join(measure.name for measure in MEASURES)}", file=sys.stderr)
        return 2
    documents = []
    with _work_folder(options.work) as work:
        for name, runtime in RUNTIMES.items():
            if mine := [measure for measure in measures if measure.runtime == name]:
                documents.append(_measure_all(runtime, mine, work, options))
    if options.json is not None:
        options.json.write_text(json.dumps(documents, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure_all(runtime: Runtime, measures: Sequence[Measure], work: Path, options: argparse.Namespace) -> Any:
    """Everything of one runtime, printed, and as a document."""
    executable, version = find_executable(runtime, getattr(options, runtime.name))
    with stand_in(runtime, work) as model:
        contestants = [ours(runtime, work, executable, model.url)]
        if (other := peer(runtime, work, executable, model.url)) is not None:
            contestants.append(other)
        load = load_average()
        about = {
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            runtime.name: version,
            "contestants": {contestant.name: contestant.version for contestant in contestants},
            "load": load,
        }
        _print_about(runtime, about, measured_alone=other is None)
        for contestant in contestants:
            _warm_up(contestant)
        stored = Stored(work)
        results: list[Result] = []
        print(header())
        for measure in measures:
            runs = options.runs or (measure.quick_runs if options.quick else measure.runs)
            results += _measure(measure, contestants, stored, model, runs)
        print(f"\nLoad average at the end: {load_average()[0]:.2f}\n")
    return as_json(results, {**about, "load_at_end": load_average()})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs; nothing of 100,000 rows")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a measure, or how several begin")
    parser.add_argument("--runs", type=int, metavar="N", help="runs of every measure, instead of its own number")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to FILE, single values included")
    for name in RUNTIMES:
        parser.add_argument(f"--{name}", metavar="FILE", help=f"the {name} executable for both, instead of our choice")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep generated sessions here for the next time")
    return parser


def _chosen(names: Sequence[str], *, quick: bool) -> list[Measure]:
    wanted = [m for m in MEASURES if not names or any(m.name.startswith(name) for name in names)]
    return [m for m in wanted if m.quick_runs or not quick]


@contextmanager
def _work_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        (kept / "transcripts").mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="sayagain-bench-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "transcripts").mkdir()
        yield Path(folder)


def _print_about(runtime: Runtime, about: dict[str, Any], *, measured_alone: bool) -> None:
    for name, version in about["contestants"].items():
        print(f"{name}: {version}")
    print(f"{runtime.name}, for all: {about[runtime.name]}")
    if measured_alone:
        print(f"No peer: {PEER_VARIABLE} names no folder with its node_modules. Only ours is measured.")
    print("Load average at the start: {:.2f} {:.2f} {:.2f}".format(*about["load"]))
    if about["load"][0] > BUSY:
        print("The machine is busy: times are too long, and their spread says little. Ratios suffer less.")
    print()


def _warm_up(contestant: Contestant) -> None:
    """Fill the page cache; first starts are a matter of the disk."""
    with contestant.start() as client:
        client.initialize()
        session_id = client.new(contestant.project).result["sessionId"]
        client.prompt(session_id, "Say hello", "warm-up")
        client.idle(0)


def _measure(
    measure: Measure, contestants: Sequence[Contestant], stored: Stored, model: StandIn, runs: int
) -> list[Result]:
    """In turn, so that what changes on the machine meanwhile changes for both."""
    results = {metric.name: Result(measure, metric) for metric in measure.metrics}
    for _ in range(runs):
        for contestant in contestants:
            if measure.keyed and contestant.name != "ours":
                continue
            try:
                readings = measure.run(contestant, stored)
            except AgentFailed as error:
                model.check()
                print(f"{measure.name}: {contestant.name} failed: {error}", file=sys.stderr)
                continue
            for name, values in readings.items():
                results[name].add(contestant.name, values)
        model.check()
    for result in results.values():
        if result.values:
            print(line(result), flush=True)
    return list(results.values())


if __name__ == "__main__":
    raise SystemExit(main())
