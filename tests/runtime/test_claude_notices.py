"""News beside the conversation, each once: retries, limits, usage and cost, in front of the real Claude Code."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sayagain.testing.messages_request import Asked
from sayagain.testing.messages_script import ApiError, Reply, Script, Text, Usage
from support_claude import AgentProcess, agent_process

pytestmark = pytest.mark.real


def notices(agent: AgentProcess, session_id: str) -> list[dict[str, Any]]:
    return agent.wire.updates(session_id, "notice")


class Overloaded(Script):
    """Refuses the first request, which is then made again."""

    refused = False

    def __call__(self, asked: Asked) -> Reply | None:
        if asked.kind == "turn" and not self.refused:
            self.refused = True
            return [ApiError(529, "overloaded_error")]
        return super().__call__(asked)


class TestRetries:
    @pytest.fixture
    def script(self) -> Script:
        return Overloaded()

    async def test_a_retry_is_told_once_and_the_turn_goes_on(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        (notice,) = notices(agent, session_id)
        assert (notice["severity"], notice["title"]) == ("warning", "The model service did not answer; trying again")
        assert "529" in notice["description"]
        assert agent.wire.states(session_id) == ["running", "idle:end_turn"]


class TestLimits:
    @pytest.fixture
    def script(self) -> Script:
        headers = {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
            "anthropic-ratelimit-unified-reset": "4102444800",
        }
        return Script(default=[ApiError(429, "rate_limit_error", "limit", headers)])

    async def test_a_limit_is_told_once_with_its_end(self, env: dict[str, str], cwd: str) -> None:
        del env["ANTHROPIC_API_KEY"]
        async with agent_process(env | {"CLAUDE_CODE_OAUTH_TOKEN": "dummy"}) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            for number in range(2):
                await agent.wire.prompt(session_id, f"Go {number}")
                await agent.wire.idle(session_id, number + 1)
            told = [(notice["title"], notice.get("description")) for notice in notices(agent, session_id)]
            assert told == [("The five hour limit is reached", "It resets at 2100-01-01 00:00 UTC.")]
            assert agent.wire.states(session_id)[-1] == "idle:error"


class TestUsage:
    @pytest.fixture
    def script(self) -> Script:
        return Script(default=[Text("Fine."), Usage(1000, 50, cache_read_input_tokens=400)])

    async def test_each_turn_reports_its_tokens_and_the_cost_so_far(self, agent: AgentProcess, cwd: str) -> None:
        session_id = await agent.wire.new(cwd)
        for number in range(2):
            await agent.wire.prompt(session_id, f"Go {number}")
            await agent.wire.idle(session_id, number + 1)
        updates = agent.wire.updates(session_id, "usage_update")
        assert all(before != after for before, after in itertools.pairwise(updates))
        assert updates[-1]["used"] == 1450
        assert updates[-1]["size"] >= 200_000
        costs = [update["cost"]["amount"] for update in updates]
        assert costs == sorted(costs)
        assert updates[-1]["cost"]["currency"] == "USD"
        ends = [u["usage"] for u in agent.wire.updates(session_id, "state_update") if u.get("usage")]
        assert [(end["inputTokens"], end["outputTokens"], end["cachedReadTokens"]) for end in ends] == [
            (1000, 50, 400)
        ] * 2
