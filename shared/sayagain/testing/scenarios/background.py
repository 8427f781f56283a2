"""Commands and watchers beside the conversation, and pictures that commands print."""

from __future__ import annotations

from typing import Final

from sayagain.testing.messages_script import Step, Text, ToolUse
from sayagain.testing.scenarios.base import EAGER_TOOLS, Scenario, Stage, always, asking, bash

__all__ = ["SCENARIOS"]

_PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
_WAIT: Final = "echo begins; while [ ! -e go ]; do sleep 0.1; done; echo ends"


async def _stopped(stage: Stage) -> None:
    """A task is stopped by its id, as a client asks for it."""
    async with stage.run() as claude:
        await claude.prompt("Run it.")
        task = await claude.until(lambda f: f.get("subtype") == "task_started")
        await claude.until(lambda f: f["type"] == "result")
        mark = len(claude.log)
        await claude.control("stop_task", task_id=task["task_id"])
        await claude.until(lambda f: f.get("subtype") == "background_tasks_changed", mark)


async def _moved(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Run it.")
        first = await claude.until(lambda f: f["type"] == "result")
        (stage.project / "go").touch()
        await claude.until(lambda f: f["type"] == "result" and f["uuid"] != first["uuid"])
        last = next(number for number, (_, frame) in reversed(list(enumerate(claude.log))) if frame["type"] == "result")
        await claude.idle(last)


SCENARIOS: Final = (
    Scenario(
        "background_stopped",
        "A command in the background, stopped.",
        always(
            [ToolUse("Bash", {"command": _WAIT, "description": "Wait", "run_in_background": True})], [Text("It runs.")]
        ),
        _stopped,
    ),
    Scenario(
        "background_moved",
        "A command that exceeds its time and goes on in the background.",
        [
            Step(
                "Run it.",
                [[ToolUse("Bash", {"command": _WAIT, "description": "Wait", "timeout": 500})], [Text("It runs.")]],
            )
        ],
        _moved,
        keeps=["begins", 'Background command "Wait" completed (exit code 0)'],
    ),
    Scenario(
        "watcher",
        "A watcher, stopped.",
        always(
            [ToolUse("Monitor", {"command": "while [ ! -e go ]; do sleep 0.1; done", "description": "Watch"})],
            [Text("It watches.")],
        ),
        _stopped,
        environment=EAGER_TOOLS,
    ),
    Scenario(
        "bash_picture",
        "A command that prints a picture, and one whose exit code 1 is no failure.",
        always(
            [bash(f"echo 'data:image/png;base64,{_PIXEL}'", "Draw")],
            [bash("grep nothing notes.txt", "Look")],
            [Text("Ran all.")],
        ),
        asking("Run it."),
        files={"notes.txt": "some\n"},
        keeps=[_PIXEL, f"data:image/png;base64,{_PIXEL}"],
    ),
)
