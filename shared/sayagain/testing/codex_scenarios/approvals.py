"""What the user is asked: commands, patches, MCP tools, questions, plans."""

from __future__ import annotations

from typing import Any, Final

from sayagain.testing.codex_process import CodexProcess, Decide, accept, decide
from sayagain.testing.codex_scenarios.base import PLAIN_MODEL, CodexScenario, CodexStage, always, asking, once
from sayagain.testing.codex_scenarios.tools import ECHO_SERVER, FILES, PATCHES
from sayagain.testing.responses_script import (
    Text,
    apply_patch,
    exec_command,
    mcp_tool,
    request_user_input,
)

__all__ = ["SCENARIOS"]

_ASKING: Final[dict[str, Any]] = {"sandbox": "read-only", "approvalPolicy": "untrusted"}
_ON_REQUEST: Final[dict[str, Any]] = {"sandbox": "read-only", "approvalPolicy": "on-request"}
_PLAN_MODE: Final = {
    "mode": "plan",
    "settings": {"model": PLAIN_MODEL, "reasoning_effort": None, "developer_instructions": None},
}
_QUESTION: Final = {
    "id": "colour",
    "header": "Colour",
    "question": "Which colour?",
    "options": [
        {"label": "Red", "description": "Warm"},
        {"label": "Blue", "description": "Cold"},
    ],
}
_TOUCH: Final = exec_command("touch made", sandbox_permissions="require_escalated", justification="May I make a file?")


def _command(name: str, answer: str, shows: str) -> CodexScenario:
    return CodexScenario(name, shows, once(_TOUCH), asking("Make it.", decide=decide(answer)), thread=_ON_REQUEST)


def _patches(name: str, answer: Decide, shows: str) -> CodexScenario:
    replies = [[apply_patch(patch)] for patch in PATCHES]
    play = asking("Change files.", decide=answer)
    return CodexScenario(name, shows, always(*replies, [Text("Changed.")]), play, files=FILES, thread=_ASKING)


def _echo(name: str, answer: str, shows: str) -> CodexScenario:
    call = mcp_tool("echo", "echo", {"text": "say it"})
    return CodexScenario(
        name,
        shows,
        always([call], [call], [Text("Echoed.")]),
        asking("Echo.", decide=decide(answer)),
        thread={**_ON_REQUEST, "config": ECHO_SERVER},
        keeps=["echo: say it", "Say it again."],
    )


async def _interrupted(stage: CodexStage) -> None:
    def silent(_: object) -> None:
        """Leave it unanswered."""

    async with stage.run(decide=silent) as codex:
        turn_id = await codex.prompt("Make it.")
        await codex.until(lambda m: "requestApproval" in m.get("method", ""))
        await codex.request("turn/interrupt", threadId=codex.thread_id, turnId=turn_id)
        await codex.turn_over()
        await _resolved(codex)


async def _resolved(codex: CodexProcess) -> None:
    await codex.until(lambda m: m.get("method") == "serverRequest/resolved")


SCENARIOS: Final = (
    _command("approval_once", "accept", "A command that is approved once."),
    _command("approval_declined", "decline", "A command that is declined; the turn goes on."),
    _command("approval_cancelled", "cancel", "A command that is cancelled; the turn ends."),
    CodexScenario(
        "approval_session",
        "A command that is approved for the session, and is not asked for again.",
        always([_TOUCH], [_TOUCH], [Text("Made it.")]),
        asking("Make it.", decide=decide("acceptForSession")),
        thread=_ON_REQUEST,
    ),
    CodexScenario(
        "approval_untrusted",
        "A command that needs approval by policy, with an amendment of the policy on offer.",
        once(exec_command("touch made")),
        asking("Make it."),
        thread=_ASKING,
    ),
    CodexScenario(
        "approval_interrupted",
        "An approval that an interrupt withdraws.",
        once(_TOUCH),
        _interrupted,
        thread=_ON_REQUEST,
    ),
    _patches("patches_approved", accept, "Patches that add, change, move and delete a file, each approved."),
    _patches("patches_declined", decide("decline"), "The same patches, each declined."),
    _echo("mcp_approved", "accept", "A tool of an MCP server, approved twice."),
    _echo("mcp_session", "acceptForSession", "A tool of an MCP server, approved for the session."),
    _echo("mcp_declined", "decline", "A tool of an MCP server, declined."),
    CodexScenario(
        "user_input",
        "A question to the user in plan mode; it is not stored.",
        once(request_user_input(_QUESTION)),
        asking("Ask me.", collaborationMode=_PLAN_MODE),
    ),
    CodexScenario(
        "plan_mode",
        "A plan that is proposed in plan mode: an item of its own.",
        always(
            [
                Text(
                    "Here is one.\n\n<proposed_plan>\n# Plan\n\n1. Look.\n2. Do.\n</proposed_plan>\n\nWhat say you?",
                    chunk=8,
                )
            ]
        ),
        asking("Plan it.", collaborationMode=_PLAN_MODE),
    ),
)
