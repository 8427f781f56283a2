"""The same on the real Claude Code: ``python -m tests.client.soak_real --runs N``. Some seconds a run.

Clients take a prompt in a new session each, and are killed at a random time, with their agent, without it, or the
agent alone. A last client sends again what is left. Then each prompt is in the transcripts once.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from sayagain.client import Outbox, with_retries
from sayagain.testing.messages_api import serve_messages
from support_claude import claude_environment

__all__ = ["main"]

COMMAND = [sys.executable, "-m", "sayagain", "claude"]
SUBMIT = Path(__file__).parent / "programs" / "submit.py"


async def run(seed: int, counts: Counter[str]) -> list[str]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="sayagain-soak-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        outbox, cwd, texts = place / "outbox.db", str(place / "project"), list[str]()
        async with serve_messages() as service:
            env = claude_environment(place, service)
            for life in range(chance.randrange(1, 4)):
                text = f"prompt {seed} {life}"
                command = [sys.executable, str(SUBMIT), str(outbox), cwd, text, "--", *COMMAND]
                if await _life(command, env, chance, counts):
                    texts.append(text)
            async with Outbox(outbox) as kept:
                pending = len(await kept.prompts())
                counts["prompts sent again"] += pending
                async with with_retries(COMMAND, outbox=kept, env=env) as client:
                    for session_id, where in (await kept.sessions()).items():
                        session, _ = await client.resume(session_id, where)
                        counts["sessions that moved"] += session.session_id != session_id
                        await session.resend()
                rows = await kept.prompts(states=("pending", "done", "failed", "withdrawn"))
        counts["prompts"] += len(rows)
        stored = _stored(env)
        broken = [f"{row.content} is {row.state}: {row.reason}" for row in rows if row.state != "done"]
        every = {*texts, *(str(row.content[0]["text"]) for row in rows)}
        broken += [f"{text} is stored {stored[text]} times" for text in every if stored[text] != 1]
        return broken


async def _life(command: list[str], env: dict[str, str], chance: random.Random, counts: Counter[str]) -> bool:
    """Whether the prompt was taken."""
    said = b""
    async with await anyio.open_process(command, env=env, stderr=None) as process:
        assert process.stdout is not None
        with anyio.move_on_after(chance.random() * 4):
            while b"inserted" not in said:
                said += await process.stdout.receive()
        who = chance.choice(["client", "agent", "both"])
        agents = []
        with suppress(psutil.NoSuchProcess):
            agents = psutil.Process(process.pid).children()
        if who in ("agent", "both"):
            for agent in agents:
                agent.kill()
        if who == "agent":
            with anyio.move_on_after(chance.random() * 3):
                while b"inserted" not in said:
                    said += await process.stdout.receive()
        counts[f"killed: {who}"] += 1
        process.send_signal(signal.SIGKILL)
        with suppress(anyio.EndOfStream):
            while True:
                said += await process.stdout.receive()
    return b"submitted" in said


def _stored(env: dict[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in Path(env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["type"] == "user":
                content = row["message"]["content"]
                blocks = [{"text": content}] if isinstance(content, str) else content
                found.update(block.get("text") for block in blocks)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client.soak_real", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; default: %(default)s")
    options = parser.parse_args()
    started, counts, broken = time.monotonic(), Counter[str](), 0
    for seed in range(options.seed, options.seed + options.runs):
        found = anyio.run(run, seed, counts)
        broken += bool(found)
        for violation in found:
            print(f"seed {seed}: {violation}", flush=True)
    print(f"{options.runs} runs in {time.monotonic() - started:.0f} s:")
    for name, count in sorted(counts.items()):
        print(f"  {count:6}  {name}")
    print(f"  {broken:6}  runs with violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
