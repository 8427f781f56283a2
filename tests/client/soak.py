"""Clients and agents that are killed at any moment, by seed: ``python -m tests.client.soak --runs N``, from the root.

In each run a few clients live one after the other with one outbox, each with agents of its own over one store. Clients
and agents die by SIGKILL: at a step of their own (in the middle of a write, before and after each change of the
outbox, the store and the wire, and at each point that the product names), or from outside at a random time. The last
client lives, takes no new prompts, and
sends again what is left. Then each prompt that was submitted has to be stored once, whatever happened.

Processes are forked: an interpreter's start would take longer than all else.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from client.soak_agent import serve_agents, stored_prompts
from client.soak_client import live

__all__ = ["Run", "main"]

LONGEST = 60.0
"""Seconds for one life, which takes a tenth of one."""

SABOTAGE = ("new keys", "no owner")
"""Mistakes that the soak has to notice, or it proves nothing. The second one shows once in some hundred runs."""


class Run:
    """``strikes`` are what befalls one client after the other, as ``faults/armed.py`` takes it, in place of deaths by
    seed."""

    def __init__(self, seed: int, sabotage: str | None = None, strikes: Sequence[str] | None = None) -> None:
        self.seed = seed
        self.sabotage = sabotage
        self.strikes = strikes
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.struck: list[str] = []

    def go(self) -> None:
        place = Path(tempfile.mkdtemp(prefix="sayagain-soak-"))
        store = place / "store"
        store.mkdir()
        chance = random.Random(f"run {self.seed}")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(place / "agent.sock"))
        listener.listen(64)
        mortals = chance.randrange(0, 9) if self.strikes is None else 0
        server = _fork(lambda: serve_agents(listener, store, self.seed, mortals, place / "deaths"))
        listener.close()
        try:
            lives = chance.randrange(1, 5) if self.strikes is None else len(self.strikes)
            for number in range(lives):
                killed = self.strikes is None and chance.random() < 0.4
                self.life(place, number, mortal=True, after=chance.random() * 0.4 if killed else None)
            # Twice, in case the last agent that is left of a killed client was still at work.
            for number in range(lives, lives + 2):
                self.life(place, number, mortal=False, after=None)
            self.check(place, store)
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            if not self.violations:
                shutil.rmtree(place)
            else:
                self.violations.append(f"see {place}")

    def life(self, place: Path, number: int, *, mortal: bool, after: float | None) -> None:
        strikes = None if self.strikes is None else self.strikes[number : number + 1]
        child = _fork(lambda: live(place, self.seed, number, mortal=mortal, sabotage=self.sabotage, strikes=strikes))
        status = _wait(child, LONGEST if after is None else after)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if after is None:
                self.violations.append(f"client {number} hangs")
            self.counts["clients killed from outside"] += 1
        elif os.WIFSIGNALED(status):
            self.counts["clients that died at a step"] += 1
        elif os.waitstatus_to_exitcode(status) != 0:
            self.violations.append(f"client {number} failed with status {os.waitstatus_to_exitcode(status)}")
        else:
            self.counts["clients that ended"] += 1

    def check(self, place: Path, store: Path) -> None:
        stored = stored_prompts(store)
        times = Counter(text for _, _, text in stored)
        submitted = _lines(place / "submitted")
        rows = []
        if (place / "outbox.db").exists():
            with sqlite3.connect(place / "outbox.db") as outbox:
                statement = (
                    "SELECT session_id, message_id, state, content, reason FROM prompts WHERE state != 'discarded'"
                )
                with suppress(sqlite3.OperationalError):
                    rows = outbox.execute(statement).fetchall()
            outbox.close()
        self.counts.update(f"deaths at: {where}" for where in _lines(place / "deaths"))
        self.struck = [line.split(" ")[1] for line in _lines(place / "record") if " " in line]
        self.counts["prompts"] += len(rows)
        self.counts["sessions that moved"] += len(_lines(place / "moved"))
        self.counts["sessions"] += len({session for session, _, _ in stored})
        self.violations += [f"{text} is stored {count} times" for text, count in times.items() if count > 1]
        self.violations += [f"{text} was submitted and is not stored" for text in submitted if not times[text]]
        for session_id, message_id, state, content, reason in rows:
            if state != "done":
                self.violations.append(f"{content} is {state} in the end: {reason}")
            elif not any((s, m) == (session_id, message_id) and t in content for s, m, t in stored):
                self.violations.append(f"{content} is done, and not stored under its id")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _fork(work: object) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()  # type: ignore[operator]
            status = 0
        except BaseException:  # noqa: BLE001 - nothing may come out of here: the parent's work is not the child's
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return child


def _wait(child: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; default: %(default)s")
    parser.add_argument("--sabotage", choices=SABOTAGE, help="make a mistake, to see that it is noticed")
    options = parser.parse_args()
    started, counts, broken = time.monotonic(), Counter[str](), 0
    for seed in range(options.seed, options.seed + options.runs):
        run = Run(seed, options.sabotage)
        run.go()
        counts += run.counts
        broken += bool(run.violations)
        for violation in run.violations:
            print(f"seed {seed}: {violation}", flush=True)
        done = seed - options.seed + 1
        if done % 50 == 0:
            print(f"{done} of {options.runs} runs, {time.monotonic() - started:.0f} s", flush=True)
    print(f"\n{options.runs} runs from seed {options.seed} in {time.monotonic() - started:.0f} s:")
    for name, count in sorted(counts.items()):
        print(f"  {count:6}  {name}")
    print(f"  {broken:6}  runs with violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
