"""Questions to the user: permissions, plans, choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sayagain.testing.claude_process import Frame, deny
from sayagain.testing.messages_script import Step, Text, ToolUse
from sayagain.testing.scenarios.base import EAGER_TOOLS, Scenario, Stage, always, asking, bash, once

__all__ = ["SCENARIOS"]

_PLAN: Final = ToolUse("ExitPlanMode", {"plan": "# Plan\n\n1. Write\n2. Test"})
_PLANNING: Final = ("--permission-mode", "plan")
_QUESTION: Final = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [
        {"label": "Red", "description": "Like a rose"},
        {"label": "Blue", "description": "Like the sea"},
    ],
}


def _always(request: Frame) -> Mapping[str, Any]:
    updates = request["permission_suggestions"]
    return {"behavior": "allow", "updatedInput": request["input"], "updatedPermissions": updates}


def _first_option(request: Frame) -> Mapping[str, Any]:
    answers = {question["question"]: question["options"][0]["label"] for question in request["input"]["questions"]}
    return {"behavior": "allow", "updatedInput": {**request["input"], "answers": answers}}


def _no_answer(_: Frame) -> None:
    return None


async def _interrupt_open_request(stage: Stage) -> None:
    async with stage.run(permissions=_no_answer) as claude:
        await claude.prompt("Wait.")
        await claude.until(lambda f: f["type"] == "control_request")
        mark = len(claude.log)
        await claude.control("interrupt")
        await claude.idle(mark)


SCENARIOS: Final = (
    Scenario(
        "permission_allow",
        "A call that needs permission, allowed once.",
        once(bash("touch touched.txt")),
        asking("Touch it."),
    ),
    Scenario(
        "permission_always",
        "Allowed always, with the suggested updates: the second call is not asked for.",
        always([bash("touch one.txt")], [bash("touch one.txt")], [Text("Touched twice.")]),
        asking("Touch it.", permissions=_always),
    ),
    Scenario(
        "permission_reject",
        "A call that the user rejects.",
        once(bash("touch touched.txt"), "Then not."),
        asking("Touch it.", permissions=deny),
    ),
    Scenario(
        "accept_edits",
        "A mode in which edits need no permission.",
        once(ToolUse("Write", {"file_path": "@/new.txt", "content": "one\n"})),
        asking("Write it.", arguments=["--permission-mode", "acceptEdits"]),
    ),
    Scenario(
        "cancel_permission",
        "Interrupted while a permission request is open.",
        once(bash("touch never.txt")),
        _interrupt_open_request,
    ),
    Scenario(
        "questions",
        "AskUserQuestion, answered.",
        once(ToolUse("AskUserQuestion", {"questions": [_QUESTION]}), "Red it is."),
        asking("Ask me.", permissions=_first_option),
        environment=EAGER_TOOLS,
    ),
    Scenario(
        "plan_mode",
        "Plan mode, and a plan that is approved.",
        once(_PLAN, "Now I can write."),
        asking("Make a plan.", arguments=_PLANNING),
        environment=EAGER_TOOLS,
    ),
    Scenario(
        "plan_rejected",
        "Plan mode, and a plan that is rejected.",
        once(_PLAN, "Then not."),
        asking("Make a plan.", arguments=_PLANNING, permissions=deny),
        environment=EAGER_TOOLS,
    ),
    Scenario(
        "hook_blocks",
        "A UserPromptSubmit hook blocks a prompt; the next one passes.",
        [Step(None, [[Text("Fine indeed.")]])],
        asking("Forbidden.", "Fine."),
        settings={
            "hooks": {
                "UserPromptSubmit": [
                    {
                        "hooks": [
                            {
                                "type": "command",
                                "command": "if grep -q Forbidden; then echo not allowed here >&2; exit 2; fi",
                            }
                        ]
                    }
                ]
            }
        },
        keeps=["not allowed here", "if grep -q Forbidden; then echo not allowed here >&2; exit 2; fi"],
    ),
)
