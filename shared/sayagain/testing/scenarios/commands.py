"""Slash commands, and compactions, asked for or not."""

from __future__ import annotations

from typing import Final

from sayagain.testing.messages_script import Step, Text, Usage
from sayagain.testing.scenarios.base import Scenario, asking, bash

__all__ = ["SCENARIOS"]

_SUMMARY: Final = "The user asked for numbers."
_SUMMARY_STEP: Final = Step("Your task is to create a detailed summary", [[Text(f"<summary>{_SUMMARY}</summary>")]])
"""Answers the request that the runtime makes for a compaction; its text contains these words (measured)."""

SCENARIOS: Final = (
    Scenario(
        "compaction",
        "Two compactions with work before, between and after.",
        [
            _SUMMARY_STEP,
            Step("Run one.", [[bash("echo one")], [Text("One.")]]),
            Step("Say two.", [[Text("Two.")]]),
            Step("Say three.", [[Text("Three.")]]),
        ],
        asking("Run one.", "/compact", "Say two.", "/compact", "Say three."),
        keeps=[_SUMMARY, "one"],
    ),
    Scenario(
        "compaction_auto",
        "The context is full: the runtime compacts by itself before the next prompt.",
        [
            _SUMMARY_STEP,
            Step("Fill it.", [[Text("Full."), Usage(input_tokens=990_000, output_tokens=10)]]),
            Step("Go on.", [[Text("Went on.")]]),
        ],
        asking("Fill it.", "Go on."),
        keeps=[_SUMMARY],
    ),
    Scenario(
        "slash_commands",
        "/context, /cost and /model, which are handled by the runtime; /status, which is not there; an unknown one.",
        [Step("Say hello.", [[Text("Hello from the stand-in.")]])],
        asking("Say hello.", "/context", "/cost", "/model", "/status", "/nosuch thing"),
    ),
    Scenario(
        "slash_first",
        "A command as the first prompt of a session.",
        [],
        asking("/cost"),
    ),
)
