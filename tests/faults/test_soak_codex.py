"""The eyes of the soak in front of Codex can see: what is stored twice, what is lost, and what only the model reads."""

from __future__ import annotations

import json

import pytest

from faults.harness import Rig
from soak.codex import codex_rig
from soak.run import carry_out
from soak.schedule import RANDOM, schedule
from support_codex import rollout

pytestmark = pytest.mark.real

TEXT, KEY = "quick prompt 00", "key 00"
REVISIONS = "01a22df4-8ff0-7d50-ad26-6bc6b2f53902", "01a22df4-9ff0-7d50-ad26-6bc6b2f53902"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def broken(place: Rig) -> set[str]:
    return {violation.invariant for violation in place.violations()}


async def test_a_run_without_fault_has_none_and_each_fault_is_seen() -> None:
    async with codex_rig() as place:
        place.note(TEXT, KEY)
        async with place.agent() as agent:
            session_id = await agent.wire.new(place.cwd)
            await agent.outcome(await agent.begin_prompt(session_id, TEXT, KEY))
            await agent.wire.idle(session_id)
            await agent.closed_in_order()
        assert await place.nothing_left() == []
        assert broken(place) == set()
        path = rollout(place.env, session_id)
        whole = path.read_text(encoding="utf-8")
        (stored,) = [line for line in whole.splitlines(keepends=True) if '"UserMessage"' in line]
        path.write_text(whole + stored, encoding="utf-8")
        assert broken(place) == {"I1", "ghost"}
        path.write_text(whole.replace(stored, ""), encoding="utf-8")
        assert broken(place) == {"I3", "I14", "ghost"}


async def test_a_revert_keeps_what_came_before_it() -> None:
    """A revert writes another file, which goes on from a place in the one before it."""
    async with codex_rig() as place:
        place.note(TEXT, KEY)
        async with place.agent() as agent:
            session_id = await agent.wire.new(place.cwd)
            await agent.outcome(await agent.begin_prompt(session_id, TEXT, KEY))
            await agent.wire.idle(session_id)
            await agent.closed_in_order()
        path = rollout(place.env, session_id)
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        base = {"thread_id": session_id, "end_ordinal_exclusive": len(rows)}
        meta = {**rows[0], "ordinal": len(rows), "payload": {**rows[0]["payload"], "history_base": base}}
        later = path.with_name(f"{path.stem}_{REVISIONS[0]}.jsonl")
        later.write_text(json.dumps(meta) + "\n", encoding="utf-8")
        assert broken(place) == set()
        # The next one names the revision that it goes on from.
        again = {"thread_id": REVISIONS[0], "end_ordinal_exclusive": len(rows) + 1}
        last = path.with_name(f"{path.stem}_{REVISIONS[1]}.jsonl")
        last.write_text(json.dumps({**meta, "payload": {**meta["payload"], "history_base": again}}) + "\n")
        assert broken(place) == set()
        base["end_ordinal_exclusive"] = 1
        later.write_text(json.dumps(meta) + "\n", encoding="utf-8")
        assert "I3" in broken(place)


async def test_a_schedule_is_carried_out() -> None:
    result = await carry_out(schedule(2100, RANDOM), "codex")
    assert (result.violations, result.runtime) == ([], "codex")
