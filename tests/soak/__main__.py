"""Random faults, hundreds of runs, one verdict: ``python -m tests.soak`` from the repository's root."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.run import RIGS, Result, carry_out
from soak.schedule import RANDOM, points, schedule

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--runtime", choices=RIGS, action="append", help="repeatable; default: all of them")
    parser.add_argument("--runs", type=int, default=1000, help="of each runtime; default: %(default)s")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run; the next ones count on")
    every = dict.fromkeys(point for runtime in RIGS for point in points(runtime))
    parser.add_argument("--only", choices=[*every, "random"], metavar="POINT", help="or random: random instants alone")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side; default: %(default)s")
    options = parser.parse_args()
    only = RANDOM if options.only == "random" else options.only
    runtimes = options.runtime or list(RIGS)
    if only not in (None, RANDOM):
        runtimes = [runtime for runtime in runtimes if only in points(runtime)]
    started = time.monotonic()
    results: list[Result] = []

    async def run_all() -> None:
        limit = anyio.CapacityLimiter(options.jobs)

        async def one(runtime: str, seed: int) -> None:
            async with limit:
                result = await carry_out(schedule(seed, only, runtime), runtime)
            results.append(result)
            for violation in result.violations:
                print(f"{runtime}, seed {seed}: {violation}", flush=True)
            if len(results) % 20 == 0:
                all_ = options.runs * len(runtimes)
                print(f"{len(results)} of {all_} runs, {time.monotonic() - started:.0f} s", flush=True)

        async with anyio.create_task_group() as tasks:
            for seed in range(options.seed, options.seed + options.runs):
                for runtime in runtimes:
                    tasks.start_soon(one, runtime, seed)

    try:
        anyio.run(run_all)
    except KeyboardInterrupt:
        print("interrupted")
    return report(results, options.seed, options.only, time.monotonic() - started)


def report(results: list[Result], seed: int, only: str | None, seconds: float) -> int:
    strikes: Counter[str] = sum((result.strikes for result in results), Counter())
    print(f"\n{len(results)} runs from seed {seed} in {seconds:.0f} s, {sum(strikes.values())} faults:")
    for name, count in sorted(strikes.items()):
        print(f"  {count:5}  {name}")
    print(f"{sum(result.retries for result in results)} retries answered")
    broken = sorted((result for result in results if result.violations), key=lambda result: result.schedule.seed)
    print(f"{sum(len(result.violations) for result in broken)} violations")
    for result in broken:
        for violation in result.violations:
            print(f"  {result.runtime}, seed {result.schedule.seed}: {violation}")
        extra = f" --only {'random' if only == RANDOM else only}" if only else ""
        print(
            f"    again: python -m tests.soak --runtime {result.runtime} --runs 1 --seed {result.schedule.seed}{extra}"
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
