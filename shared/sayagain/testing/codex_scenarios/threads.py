"""What happens to threads: titles, compactions, kills, reverts, other ways of storing."""

from __future__ import annotations

from typing import Final

from sayagain.testing.codex_scenarios.base import FREE, CodexScenario, CodexStage, always, asking
from sayagain.testing.responses_script import Hold, Reasoning, Step, Text, Usage, exec_command

__all__ = ["SCENARIOS"]


async def _titled(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Hello.")
        await codex.request("thread/name/set", threadId=codex.thread_id, name="A title")
        await codex.until(lambda m: m.get("method") == "thread/name/updated")


async def _compacted(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("First.")
        mark = len(codex.log)
        await codex.request("thread/compact/start", threadId=codex.thread_id)
        await codex.turn_over(mark)
        await codex.ask("Second.")


async def _killed(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("Hello.")
        await codex.prompt("Run.")
        await codex.file(stage.project / "started")
        await codex.item("item/started", "commandExecution")
        await codex.kill()
    (stage.project / "started").unlink()
    async with stage.run() as codex:
        await codex.ask("Go on.")


async def _killed_in_text(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.prompt("Talk.")
        await codex.until(lambda m: m.get("method") == "item/agentMessage/delta")
        await codex.kill()
    async with stage.run() as codex:
        await codex.ask("Go on.")


async def _reverted(stage: CodexStage) -> None:
    async with stage.run() as codex:
        await codex.ask("First.")
        turn_id = await codex.ask("Second.")
        await codex.request("thread/revert", threadId=codex.thread_id, beforeTurnId=turn_id)
        await codex.ask("Third.")


async def _resumed(stage: CodexStage) -> None:
    for text in ("First.", "Second.", "Third."):
        async with stage.run() as codex:
            await codex.ask(text)


_LOOP: Final = "touch started; while [ -e started ]; do sleep 0.05; done"

SCENARIOS: Final = (
    CodexScenario("title", "A title that is set.", always([Text("Hello there.")]), _titled),
    CodexScenario(
        "compaction",
        "A compaction by hand between two turns.",
        [Step("First.", [[Text("One.")]]), Step("Second.", [[Text("Two.")]])],
        _compacted,
    ),
    CodexScenario(
        "compaction_in_turn",
        "A compaction that a full context makes in the middle of a turn.",
        [Step("Run.", [[exec_command("echo full"), Usage(9000, 100)], [Text("It ran on.")]])],
        asking("Run."),
        thread=FREE,
        config="model_auto_compact_token_limit = 5000\n",
        keeps=["full"],
    ),
    CodexScenario(
        "killed",
        "A runtime that is killed in a command, and a thread that goes on in another one.",
        [Step("Run.", [[exec_command(_LOOP)]])],
        _killed,
        thread=FREE,
    ),
    CodexScenario(
        "killed_in_text",
        "A runtime that is killed while it answers the first prompt.",
        [Step("Talk.", [[Text("Once upon a time. ", chunk=6), Hold("talk"), Text("The end.")]])],
        _killed_in_text,
    ),
    CodexScenario("reverted", "A turn that is taken back.", always([Text("Well.")]), _reverted),
    CodexScenario("resumed", "A thread over three processes.", always([Text("Well.")]), _resumed),
    CodexScenario(
        "legacy",
        "A thread that is stored the older way: commands are not in its history.",
        [
            Step("Hello.", [[Text("Hello there.")]]),
            Step("Run.", [[Reasoning(["A thought."]), exec_command("echo hello")], [Text("Ran it.")]]),
        ],
        asking("Hello.", "Run."),
        thread={**FREE, "historyMode": "legacy"},
        keeps=["hello"],
    ),
)
