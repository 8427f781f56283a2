"""The scenarios that the recorder knows: each a script for the stand-in service, and a hand that drives the runtime."""

from __future__ import annotations

from typing import Final

from sayagain.testing.scenarios import answers, background, commands, permissions, subagents, tools, turns
from sayagain.testing.scenarios.base import Scenario, Stage

__all__ = ["SCENARIOS", "Scenario", "Stage"]

_ALL: Final = (
    *answers.SCENARIOS,
    *tools.SCENARIOS,
    *background.SCENARIOS,
    *permissions.SCENARIOS,
    *subagents.SCENARIOS,
    *turns.SCENARIOS,
    *commands.SCENARIOS,
)
SCENARIOS: Final[dict[str, Scenario]] = {scenario.name: scenario for scenario in _ALL}
