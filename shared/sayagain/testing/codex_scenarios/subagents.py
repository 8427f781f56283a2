"""Subagents of both versions."""

from __future__ import annotations

from typing import Final

from sayagain.testing.codex_process import CodexProcess, decide
from sayagain.testing.codex_scenarios.base import CODE_MODEL, FREE, V1_MODEL, CodexScenario, CodexStage, asking
from sayagain.testing.responses_script import (
    Hold,
    Reasoning,
    Reply,
    Step,
    Text,
    ToolUse,
    exec_command,
    in_code,
    spawn_agent,
)

__all__ = ["SCENARIOS"]

_TASK: Final = "Child, do your part."
_MORE: Final = "Child, do more."


def _v1(name: str, **arguments: object) -> ToolUse:
    return ToolUse(name, arguments, namespace="multi_agent_v1")


def _v2(name: str, **arguments: object) -> ToolUse:
    return ToolUse(name, arguments, namespace="collaboration")


_WORK: Final[list[Reply]] = [
    [Reasoning(["The child thinks."]), Text("I work.", phase="commentary"), exec_command("echo child")],
    [Text("The child is done.")],
]
_CODE_WORK: Final[list[Reply]] = [
    [Reasoning(["The child thinks."]), Text("I work.", phase="commentary"), in_code(exec_command("echo child"))],
    [Text("The child is done.")],
]


async def _child_over(codex: CodexProcess, since: int = 0) -> None:
    await codex.until(
        lambda m: m.get("method") == "turn/completed" and m["params"]["threadId"] != codex.thread_id, since
    )


async def _child_text(codex: CodexProcess) -> None:
    await codex.until(
        lambda m: m.get("method") == "item/agentMessage/delta" and m["params"]["threadId"] != codex.thread_id
    )


async def _late(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Delegate.")
        stage.service.release("child")
        await _child_over(codex)
        await codex.ask("Well?")


async def _killed(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Delegate.")
        await _child_text(codex)
        await codex.kill()
    async with stage.run() as codex:
        await codex.ask("Well?")


async def _interrupted(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.prompt("Delegate.")
        await _child_text(codex)
        stage.service.release("parent")
        await codex.turn_over()


SCENARIOS: Final = (
    CodexScenario(
        "subagent_v1",
        "A subagent of version 1 that is waited for, gets more input and is closed.",
        [
            Step(_TASK, _WORK),
            Step(_MORE, [[Text("More is done.")]]),
            Step(
                "Delegate.",
                [
                    [spawn_agent(_TASK)],
                    [_v1("wait_agent", targets=["@child"])],
                    [_v1("send_input", target="@child", message=_MORE)],
                    [_v1("wait_agent", targets=["@child"])],
                    [_v1("close_agent", target="@child")],
                    [Text("It did its part.")],
                ],
            ),
        ],
        asking("Delegate."),
        thread=FREE,
        model=V1_MODEL,
        keeps=["child"],
    ),
    CodexScenario(
        "subagents_v1",
        "Two subagents of version 1 from one response, ended after the turn that started them.",
        [
            Step("First child", [[Hold("child"), Text("First is done.")]]),
            Step("Second child", [[Hold("child"), Text("Second is done.")]]),
            Step("Delegate.", [[spawn_agent("First child"), spawn_agent("Second child")], [Text("Started both.")]]),
        ],
        _late,
        thread=FREE,
        model=V1_MODEL,
    ),
    CodexScenario(
        "subagent_v1_killed",
        "A subagent of version 1 that is running when the runtime is killed.",
        [
            Step(_TASK, [[Text("It begins. ", chunk=4), Hold("child"), Text("It ends.")]]),
            Step("Delegate.", [[spawn_agent(_TASK)], [Text("Started.")]]),
        ],
        _killed,
        thread=FREE,
        model=V1_MODEL,
    ),
    CodexScenario(
        "subagent_v2",
        "A subagent of version 2 that is waited for, and gets a message and another task.",
        [
            Step(_TASK, _CODE_WORK),
            Step(_MORE, [[Text("More is done.")]]),
            Step(
                "Delegate.",
                [
                    [spawn_agent(_TASK, version=2)],
                    [_v2("wait_agent", timeout_ms=60000)],
                    [_v2("followup_task", target="helper", message=_MORE)],
                    [_v2("wait_agent", timeout_ms=60000)],
                    [Text("It did its part.")],
                ],
            ),
        ],
        asking("Delegate."),
        thread=FREE,
        model=CODE_MODEL,
        keeps=["child"],
    ),
    CodexScenario(
        "subagent_v2_interrupted",
        "A subagent of version 2 that its parent interrupts.",
        [
            Step(_TASK, [[Text("It begins. ", chunk=4), Hold("child"), Text("It ends.")]]),
            Step(
                "Delegate.",
                [
                    [spawn_agent(_TASK, version=2)],
                    [Hold("parent"), _v2("interrupt_agent", target="helper")],
                    [Text("Stopped it.")],
                ],
            ),
        ],
        _interrupted,
        thread=FREE,
        model=CODE_MODEL,
    ),
    CodexScenario(
        "subagent_v2_late",
        "A subagent of version 2 that ends after the turn that started it.",
        [
            Step(_TASK, [[Hold("child"), Text("The child is done.")]]),
            Step("Delegate.", [[spawn_agent(_TASK, version=2)], [Text("Started.")]]),
        ],
        _late,
        thread=FREE,
        model=CODE_MODEL,
    ),
    CodexScenario(
        "subagent_approval",
        "A subagent whose command needs approval.",
        [
            Step(
                _TASK,
                [
                    [exec_command("touch made", sandbox_permissions="require_escalated", justification="May I?")],
                    [Text("The child is done.")],
                ],
            ),
            Step("Delegate.", [[spawn_agent(_TASK)], [_v1("wait_agent", targets=["@child"])], [Text("Done.")]]),
        ],
        asking("Delegate.", decide=decide("accept")),
        thread={"sandbox": "read-only", "approvalPolicy": "on-request"},
        model=V1_MODEL,
    ),
)
