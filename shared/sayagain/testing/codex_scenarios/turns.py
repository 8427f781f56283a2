"""Turns that meet: interrupts, steered prompts, commands that outlive their turn."""

from __future__ import annotations

from typing import Any, Final

from sayagain.testing.codex_process import CodexProcess
from sayagain.testing.codex_scenarios.base import FREE, CodexScenario, CodexStage, always, asking
from sayagain.testing.responses_script import Hold, Step, Text, ToolUse, exec_command

__all__ = ["SCENARIOS"]

_LOOP: Final = "touch started; echo begun; while [ -e started ]; do sleep 0.05; done; echo ended"
"""Runs until the file is taken away, or the folder is gone: a shell that outlives its runtime ends with it."""

_SAYS: Final = ["begun", "ended"]


async def _interrupt(codex: CodexProcess, turn_id: str) -> None:
    mark = len(codex.log)
    await codex.request("turn/interrupt", threadId=codex.thread_id, turnId=turn_id)
    await codex.turn_over(mark)


async def _running(stage: CodexStage, codex: CodexProcess) -> None:
    """Wait until the command runs and is an item: an interrupt between the two leaves a command that is none."""
    await codex.file(stage.project / "started")
    await codex.item("item/started", "commandExecution")


async def _interrupt_text(stage: CodexStage) -> None:
    async with stage.run() as codex:
        turn_id = await codex.prompt("Talk.")
        await codex.until(lambda m: m.get("method") == "item/agentMessage/delta")
        await _interrupt(codex, turn_id)
        await codex.ask("Go on.")


async def _interrupt_command(stage: CodexStage) -> None:
    async with stage.run() as codex:
        turn_id = await codex.prompt("Wait.")
        await _running(stage, codex)
        await _interrupt(codex, turn_id)
        (stage.project / "started").unlink()
        await codex.item("item/completed", "commandExecution")
        await codex.ask("Go on.")


async def _background(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Wait.")
        await codex.ask("Go on.")
        (stage.project / "started").unlink()
        await codex.item("item/completed", "commandExecution")


async def _terminated(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Wait.")
        listed = await codex.request("thread/backgroundTerminals/list", threadId=codex.thread_id)
        for terminal in listed["data"]:
            process_id = terminal["processId"]
            await codex.request("thread/backgroundTerminals/terminate", threadId=codex.thread_id, processId=process_id)
        await codex.item("item/completed", "commandExecution")


async def _steer(codex: CodexProcess, turn_id: str, text: str) -> None:
    await codex.prompt(text, method="turn/steer", expectedTurnId=turn_id)


async def _steer_command(stage: CodexStage) -> None:
    async with stage.run() as codex:
        turn_id = await codex.prompt("Wait.")
        await _running(stage, codex)
        await _steer(codex, turn_id, "And hurry.")
        (stage.project / "started").unlink()
        await codex.turn_over()


async def _steer_text(stage: CodexStage) -> None:
    async with stage.run() as codex:
        turn_id = await codex.prompt("Talk.")
        await stage.service.held("talk")
        await codex.until(lambda m: m.get("method") == "item/agentMessage/delta")
        await _steer(codex, turn_id, "And hurry.")
        await codex.turn_over()


async def _steer_text_kept(stage: CodexStage) -> None:
    async with stage.run(arguments=("--disable", "instant_interrupt")) as codex:
        turn_id = await codex.prompt("Talk.")
        await stage.service.held("talk")
        await codex.until(lambda m: m.get("method") == "item/agentMessage/delta")
        await _steer(codex, turn_id, "And hurry.")
        stage.service.release("talk")
        await codex.turn_over()


async def _steer_lost(stage: CodexStage) -> None:
    async with stage.run() as codex:
        turn_id = await codex.prompt("Wait.")
        await _running(stage, codex)
        await _steer(codex, turn_id, "And hurry.")
        await _interrupt(codex, turn_id)
        (stage.project / "started").unlink()
        await codex.ask("Go on.")


async def _start_twice(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.prompt("Wait.")
        await _running(stage, codex)
        await codex.prompt("And hurry.")
        (stage.project / "started").unlink()
        await codex.turn_over()


_RUNS: Final = [Step("Wait.", [[exec_command(_LOOP)], [Text("It ended.")]])]
_OUTLIVES: Final = [Step("Wait.", [[exec_command(_LOOP, yield_time_ms=300)], [Text("It runs on.")]])]
_STEERED: Final = [
    Step("Wait.", [[exec_command(_LOOP)]]),
    Step("hurry", [[Text("I hurry.")]]),
]
_TALK: Final = [
    Step("Talk.", [[Text("Once upon a time. ", chunk=6), Hold("talk"), Text("The end.")]]),
    Step("hurry", [[Text("I hurry.")]]),
]


def _waiting(name: str, shows: str, steps: list[Step], play: Any) -> CodexScenario:
    return CodexScenario(name, shows, steps, play, thread=FREE, keeps=_SAYS)


SCENARIOS: Final = (
    CodexScenario("interrupt_text", "An interrupt while text streams; the text is not stored.", _TALK, _interrupt_text),
    _waiting("interrupt_command", "An interrupt in a command, which goes on.", _RUNS, _interrupt_command),
    _waiting("background_terminal", "A command that outlives two turns.", _OUTLIVES, _background),
    _waiting("background_terminated", "A command that outlives its turn and is ended by hand.", _OUTLIVES, _terminated),
    _waiting("steer_command", "A prompt that is steered into a running command.", _STEERED, _steer_command),
    CodexScenario("steer_text", "A prompt that is steered into a text, which is broken off.", _TALK, _steer_text),
    CodexScenario(
        "steer_text_kept",
        "The same with instant_interrupt off: the text is finished first.",
        _TALK,
        _steer_text_kept,
    ),
    _waiting("steer_lost", "A steered prompt that an interrupt drops.", _STEERED, _steer_lost),
    _waiting("start_while_running", "A second turn/start in a running turn: it steers.", _STEERED, _start_twice),
    CodexScenario(
        "stdin",
        "A command that is given input.",
        always(
            [exec_command("read word; echo got $word", yield_time_ms=300, tty=True)],
            [ToolUse("write_stdin", {"session_id": "@session", "chars": "it\n"})],
            [Text("It got it.")],
        ),
        asking("Feed it."),
        thread=FREE,
        keeps=["got it", "it"],
    ),
)
