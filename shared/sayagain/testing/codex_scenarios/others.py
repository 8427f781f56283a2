"""What few threads have: reviews, images, tools of the client, questions of MCP servers."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any, Final

from sayagain.testing.codex_process import decide
from sayagain.testing.codex_scenarios.base import CODE_MODEL, FREE, CodexScenario, CodexStage, always, asking, once
from sayagain.testing.responses_script import Text, ToolUse, mcp_tool

__all__ = ["DOT", "SCENARIOS"]

DOT: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one point, in Base64."""

_ASKING: Final[dict[str, Any]] = {
    "mcp_servers.asking": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "mcp_asking.py")]}
}
_REVIEW: Final = (
    '{"findings": [{"title": "A finding", "body": "Look here.", "confidence_score": 0.5, "priority": 1, '
    '"code_location": {"absolute_file_path": "/home/user/project/notes.txt", "line_range": {"start": 1, "end": 2}}}], '
    '"overall_correctness": "patch is correct", "overall_explanation": "All is well.", '
    '"overall_confidence_score": 0.5}'
)
_TOOL: Final = {
    "type": "function",
    "name": "ticket",
    "description": "Find a ticket.",
    "inputSchema": {"type": "object", "properties": {"number": {"type": "number"}}},
}


async def _review(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Hello.")
        mark = len(codex.log)
        target = {"type": "custom", "instructions": "Review it all."}
        await codex.request("review/start", threadId=codex.thread_id, target=target)
        await codex.turn_over(mark)
        await codex.ask("Go on.")


async def _shell(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Hello.")
        mark = len(codex.log)
        await codex.request("thread/shellCommand", threadId=codex.thread_id, command="echo by hand")
        await codex.item("item/completed", "commandExecution", mark)
        await codex.turn_over(mark)


async def _images(stage: CodexStage) -> None:
    picture = stage.project / "dot.png"
    picture.write_bytes(base64.b64decode(DOT))
    async with stage.run() as codex:
        data = {"type": "image", "url": f"data:image/png;base64,{DOT}"}
        await codex.ask(
            [{"type": "text", "text": "Look at these."}, data, {"type": "localImage", "path": str(picture)}]
        )


async def _view(stage: CodexStage) -> None:
    (stage.project / "dot.png").write_bytes(base64.b64decode(DOT))
    async with stage.run() as codex:
        await codex.ask("Look.")


def _elicitation(name: str, mode: str, answer: str, shows: str) -> CodexScenario:
    return CodexScenario(
        name,
        shows,
        once(mcp_tool("asking", "ask", {"mode": mode})),
        asking("Ask me.", decide=decide(answer)),
        thread={"config": _ASKING},
        keeps=[
            "Ask the user.",
            "Which colour?",
            "Any will do",
            "Look at this page.",
            "https://example.com/page",
            'answer: {"action": "accept", "content": {"colour": "red"}}',
            'answer: {"action": "accept", "content": {}}',
            'answer: {"action": "decline"}',
        ],
    )


SCENARIOS: Final = (
    CodexScenario("review", "A review between two turns.", always([Text(_REVIEW)]), _review),
    CodexScenario(
        "shell_command", "A command that the user runs by hand.", always([Text("Hello.")]), _shell, keeps=["by hand"]
    ),
    CodexScenario("images", "A prompt with an image as data and one as a file.", always([Text("Dots.")]), _images),
    CodexScenario(
        "view_image",
        "A picture that the model looks at.",
        once(ToolUse("view_image", {"path": "dot.png"})),
        _view,
        thread=FREE,
    ),
    CodexScenario(
        "client_tool",
        "A tool of the client.",
        once(ToolUse("ticket", {"number": 7})),
        asking("Find it."),
        thread={"dynamicTools": [_TOOL]},
    ),
    CodexScenario(
        "sleep",
        "A model that sleeps.",
        once(ToolUse("sleep", {"duration_ms": 5}, namespace="clock")),
        asking("Sleep."),
        model=CODE_MODEL,
    ),
    _elicitation("elicitation", "form", "accept", "A form of an MCP server, filled in."),
    _elicitation("elicitation_declined", "form", "decline", "A form of an MCP server, declined."),
    _elicitation("elicitation_url", "url", "accept", "A page of an MCP server, accepted."),
)
