"""Subagents: waited for, in the background, nested, in parallel."""

from __future__ import annotations

from typing import Final

from sayagain.testing.messages_script import Hold, Step, Text, ToolUse
from sayagain.testing.scenarios.base import Scenario, Stage, asking, bash

__all__ = ["SCENARIOS"]


def _agent(name: str, *, background: bool = False) -> ToolUse:
    return ToolUse(
        "Agent",
        {
            "description": name,
            "prompt": f"{name} work.",
            "subagent_type": "general-purpose",
            "run_in_background": background,
        },
    )


async def _in_background(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Delegate.")
        await claude.until(lambda f: f["type"] == "result")
        mark = len(claude.log)
        await stage.service.held("child")
        stage.service.release("child")
        await claude.until(lambda f: f["type"] == "result", mark)
        await claude.idle(mark)


async def _interrupted(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Delegate.")
        await stage.service.held("never")
        mark = len(claude.log)
        await claude.control("interrupt")
        await claude.idle(mark)


SCENARIOS: Final = (
    Scenario(
        "subagent_foreground",
        "A subagent that is waited for; it runs a tool.",
        [
            Step("Child work.", [[Text("Child starts."), bash("echo child", "Child")], [Text("Child report.")]]),
            Step("Delegate.", [[_agent("Child")], [Text("The child is done.")]]),
        ],
        asking("Delegate."),
        keeps=["child"],
    ),
    Scenario(
        "subagent_forwarded",
        "As before, with the subagent's text forwarded.",
        [
            Step("Child work.", [[Text("Child starts."), bash("echo child", "Child")], [Text("Child report.")]]),
            Step("Delegate.", [[_agent("Child")], [Text("The child is done.")]]),
        ],
        asking("Delegate.", arguments=["--forward-subagent-text"]),
        keeps=["child"],
    ),
    Scenario(
        "subagent_background",
        "A subagent in the background: its end starts a turn of its own.",
        [
            Step("Child work.", [[Text("Child"), Hold("child"), Text(" report.")]]),
            Step("Delegate.", [[_agent("Child", background=True)], [Text("It runs.")]]),
            Step("<task-notification>", [[Text("It has reported.")]]),
        ],
        _in_background,
    ),
    Scenario(
        "subagent_nested",
        "A subagent that starts another one.",
        [
            Step("Grandchild work.", [[Text("Grandchild report.")]]),
            Step("Child work.", [[_agent("Grandchild")], [Text("Child report.")]]),
            Step("Delegate.", [[_agent("Child")], [Text("Both are done.")]]),
        ],
        asking("Delegate."),
    ),
    Scenario(
        "subagents_parallel",
        "Two subagents in one message.",
        [
            Step("Left work.", [[Text("Left report.")]]),
            Step("Right work.", [[Text("Right report.")]]),
            Step("Delegate twice.", [[_agent("Left"), _agent("Right")], [Text("Both are done.")]]),
        ],
        asking("Delegate twice."),
    ),
    Scenario(
        "subagent_cancelled",
        "Interrupted while a subagent that is waited for works.",
        [
            Step("Child work.", [[Text("Child"), Hold("never"), Text(" report.")]]),
            Step("Delegate.", [[_agent("Child")], [Text("Done.")]]),
        ],
        _interrupted,
    ),
)
