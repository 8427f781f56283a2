"""Answers of the model: texts, reasoning, errors."""

from __future__ import annotations

from typing import Final

from sayagain.testing.codex_scenarios.base import CodexScenario, always, asking
from sayagain.testing.responses_script import CONTEXT_OVERFLOW, ApiError, Cut, Reasoning, Step, Text, Usage

__all__ = ["SCENARIOS"]


def _error(name: str, error: ApiError, shows: str) -> CodexScenario:
    return CodexScenario(name, shows, [Step("Fail.", [[error]])], asking("Fail.", "Go on."))


SCENARIOS: Final = (
    CodexScenario(
        "plain", "Two prompts with short answers.", always([Text("Hello there.")]), asking("Hello.", "Again.")
    ),
    CodexScenario(
        "deltas",
        "An answer that is streamed in many deltas, with code points of several bytes.",
        always([Text("Ein Wort, ein Wört, \N{ROCKET} und so fort. " * 10, chunk=7)]),
        asking("Talk."),
    ),
    CodexScenario(
        "phases",
        "A commentary and a final answer in one response: two messages.",
        always([Text("I look at it first.", phase="commentary"), Text("Here it is.", phase="final_answer")]),
        asking("Look."),
    ),
    CodexScenario(
        "reasoning",
        "Reasoning with a summary in two parts, then one with raw content, then the answer.",
        always(
            [
                Reasoning(["**Thinking**\n\nFirst part.", "Second part."], chunk=9),
                Reasoning([], ["Raw thoughts."], chunk=5),
                Text("Thought about it."),
            ]
        ),
        asking("Think."),
        config='model_reasoning_summary = "detailed"\nshow_raw_agent_reasoning = true\n',
    ),
    CodexScenario(
        "usage",
        "Two turns with given token counts.",
        [
            Step("First.", [[Text("One."), Usage(1000, 50, cached_tokens=400, reasoning_tokens=20)]]),
            Step("Second.", [[Text("Two."), Usage(2000, 70, cached_tokens=900, reasoning_tokens=30)]]),
        ],
        asking("First.", "Second."),
    ),
    _error("error_400", ApiError(400, "invalid_request_error", "bad request"), "A request that the service refuses."),
    _error("error_401", ApiError(401, "invalid_api_key", "bad key"), "A key that the service refuses."),
    _error("error_429", ApiError(429, "rate_limit_exceeded", "slow down"), "Too many requests, until retries end."),
    _error("error_500", ApiError(500, "server_error", "broken"), "A broken service, until retries end."),
    _error("error_quota", ApiError(429, "usage_limit_reached", "used up"), "A usage limit."),
    _error("error_context", CONTEXT_OVERFLOW, "An input beyond the context window."),
    CodexScenario(
        "cut_stream",
        "A stream that breaks in the middle of a message, and is asked for again.",
        [Step(None, [[Text("Half a ", chunk=3), Cut()]], times=1), Step(None, [[Text("Half a sentence and more.")]])],
        asking("Talk."),
    ),
)
