"""The scenarios that the recorder of Codex knows: a script for the stand-in service, and a hand that drives Codex."""

from __future__ import annotations

from typing import Final

from sayagain.testing.codex_scenarios import answers, approvals, others, subagents, threads, tools, turns
from sayagain.testing.codex_scenarios.base import CodexScenario, CodexStage

__all__ = ["SCENARIOS", "CodexScenario", "CodexStage"]

_ALL: Final = (
    *answers.SCENARIOS,
    *tools.SCENARIOS,
    *approvals.SCENARIOS,
    *others.SCENARIOS,
    *subagents.SCENARIOS,
    *turns.SCENARIOS,
    *threads.SCENARIOS,
)
SCENARIOS: Final[dict[str, CodexScenario]] = {scenario.name: scenario for scenario in _ALL}
