"""Turns that meet: prompts while one runs, interrupts, kills, resumes."""

from __future__ import annotations

from typing import Final

from sayagain.testing.claude_process import ClaudeProcess
from sayagain.testing.messages_script import Hold, Step, Text
from sayagain.testing.scenarios.base import Scenario, Stage, bash

__all__ = ["SCENARIOS"]

_WAITING: Final = bash("touch started; while [ -e started ]; do sleep 0.1; done", "Wait")
"""Runs until it is ended, or its folder is gone: a shell that outlives its runtime ends with the recording."""


async def _lifecycle(claude: ClaudeProcess, prompt_id: str, state: str) -> None:
    await claude.until(
        lambda f: f["type"] == "command_lifecycle" and f["command_uuid"] == prompt_id and f["state"] == state
    )


async def _merged(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("First.")
        await stage.service.held("first")
        await claude.prompt("Second.")
        third = await claude.prompt("Third.")
        await _lifecycle(claude, third, "queued")
        stage.service.release("first")
        await _lifecycle(claude, third, "completed")
        await claude.until(lambda f: f.get("state") == "idle")


async def _folded(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("First.")
        await stage.service.held("first")
        second = await claude.prompt("Second.")
        await _lifecycle(claude, second, "queued")
        stage.service.release("first")
        await claude.idle()


async def _cancel_text(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Talk.")
        await claude.until(lambda f: f["type"] == "stream_event" and f["event"]["type"] == "content_block_delta")
        mark = len(claude.log)
        await claude.control("interrupt")
        await claude.idle(mark)
        await claude.ask("Go on.")


async def _cancel_tool(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Wait.")
        await claude.file(stage.project / "started")
        mark = len(claude.log)
        await claude.control("interrupt")
        await claude.idle(mark)
        await claude.ask("Go on.")


async def _withdrawn(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("First.")
        await stage.service.held("first")
        second = await claude.prompt("Second.")
        await _lifecycle(claude, second, "queued")
        await claude.control("cancel_async_message", message_uuid=second)
        stage.service.release("first")
        await claude.idle()


async def _killed_tool(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Wait.")
        await claude.file(stage.project / "started")
        await claude.stored('"tool_use"')
        await claude.kill()
    async with stage.run() as claude:
        await claude.ask("Go on.")


async def _killed_text(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.prompt("Talk.")
        await claude.until(lambda f: f["type"] == "stream_event" and f["event"]["type"] == "content_block_delta")
        await claude.stored('"Talk."')
        await claude.kill()
    async with stage.run() as claude:
        await claude.ask("Go on.")


async def _resumed(stage: Stage) -> None:
    async with stage.run() as claude:
        await claude.ask("Say hello.")
    async with stage.run() as claude:
        await claude.control("set_permission_mode", mode="acceptEdits")
        await claude.control("set_model", model="claude-sonnet-4-5")
        await claude.ask("Say it again.")


_TALK: Final = Step("Talk.", [[Text("I talk and"), Hold("never"), Text(" talk.")]])
_HELD: Final = Step("First.", [[Text("Begun"), Hold("first"), Text(" and ended.")]])
_GO_ON: Final = Step("Go on.", [[Text("I go on.")], [Text("I go on.")]])

SCENARIOS: Final = (
    Scenario(
        "queued_merged",
        "Two prompts sent during a text-only turn: merged into one row.",
        [_HELD, Step("Second.", [[Text("Both seen.")]])],
        _merged,
    ),
    Scenario(
        "prompt_folded",
        "A prompt sent during a tool loop: folded in as an attachment.",
        [
            Step("Second.", [[Text("Seen both.")], [Text("Seen both.")]]),
            Step("First.", [[Text("Wait"), Hold("first"), Text(" for it."), bash("echo one")], [Text("Seen both.")]]),
        ],
        _folded,
        keeps=["one"],
    ),
    Scenario(
        "prompt_withdrawn",
        "A prompt sent during a turn and withdrawn by cancel_async_message.",
        [_HELD],
        _withdrawn,
    ),
    Scenario(
        "cancel_text",
        "Interrupted while text streams; the next prompt works.",
        [_TALK, _GO_ON],
        _cancel_text,
    ),
    Scenario(
        "cancel_tool",
        "Interrupted while a tool runs; the next prompt works.",
        [Step("Wait.", [[Text("I wait."), _WAITING]]), _GO_ON],
        _cancel_tool,
    ),
    Scenario(
        "killed_text",
        "The runtime is killed while text streams; the session is resumed and asked again.",
        [_TALK, _GO_ON],
        _killed_text,
    ),
    Scenario(
        "killed_tool",
        "The runtime is killed while a tool runs; the session is resumed and asked again.",
        [Step("Wait.", [[Text("I wait."), _WAITING]]), _GO_ON],
        _killed_tool,
    ),
    Scenario(
        "resumed",
        "A session in two processes, with a mode and a model set between its prompts.",
        [
            Step("Say hello.", [[Text("Hello from the stand-in.")]]),
            Step("Say it again.", [[Text("Hello again.")]]),
        ],
        _resumed,
    ),
)
