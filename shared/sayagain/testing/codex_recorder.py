"""Records scenarios from the real Codex into fixtures: ``python -m sayagain.testing.codex_recorder [scenario ...]``.

Each recording has ``messages.jsonl`` (what was said both ways, in order: ``{"process", "direction": "in"|"out",
"message"}``), ``items.jsonl`` (what a fresh process then says of the threads: ``{"method", "params", "result"}`` or
``"error"``), ``thread.json`` (the thread as it was resumed, and its children) and ``scenario.json`` (what it shows, the
runtime's version, the prompts by id). ``docs/recording.md`` says how it is used.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from sayagain.testing.codex_process import CodexPlace, CodexProcess, Decide, RequestFailed, accept, run_codex
from sayagain.testing.codex_scenarios import SCENARIOS, CodexScenario, CodexStage
from sayagain.testing.codex_scrubber import CodexScrubber
from sayagain.testing.recording import (
    id_seed,
    neutral_names,
    own_texts,
    run_recorder,
    said,
    write_document,
    write_lines,
)
from sayagain.testing.responses_api import serve_responses
from sayagain.testing.responses_request import Asked
from sayagain.testing.responses_script import Reply, Script, ScriptLike, Text, ToolUse

__all__ = ["main", "record"]

_PAGE: Final = 100
"""The most that the runtime gives at once."""


class _Recording:
    """The state of one scenario while it plays."""

    def __init__(self, scenario: CodexScenario, place: CodexPlace) -> None:
        self.scenario = scenario
        self.place = place
        self.processes: list[CodexProcess] = []
        self.script = scenario.script()
        self.thread_id = ""
        self.exchanges: list[dict[str, Any]] = []
        self.thread: dict[str, Any] = {}
        self.children: list[dict[str, Any]] = []

    async def play(self) -> None:
        scenario = self.scenario
        async with serve_responses(_resolved(self.script), keep_items=True, id_seed=id_seed(scenario.name)) as service:
            self.place.write(service.url, scenario.model, scenario.config)
            for name, content in scenario.files.items():
                (self.place.project / name).write_text(content, encoding="utf-8")

            @asynccontextmanager
            async def run(
                decide: Decide = accept, arguments: Sequence[str] = (), **thread: Any
            ) -> AsyncGenerator[CodexProcess]:
                async with run_codex(self.place, arguments=arguments, decide=decide) as codex:
                    self.processes.append(codex)
                    if self.thread_id:
                        codex.thread_id = self.thread_id
                        await codex.request("thread/resume", threadId=self.thread_id, excludeTurns=True)
                    else:
                        params = {"cwd": str(self.place.project), **scenario.thread, **thread}
                        self.thread_id = codex.thread_id = (await codex.request("thread/start", **params))["thread"][
                            "id"
                        ]
                        await codex.until(lambda m: m.get("method") == "thread/started")
                    yield codex

            await scenario.play(CodexStage(run, service, self.place.project))
            async with run_codex(self.place) as codex:
                await self._look(codex)

    async def _look(self, codex: CodexProcess) -> None:
        """Read what is stored of the thread and its children, as an adapter that resumes does."""
        resumed = await codex.request("thread/resume", threadId=self.thread_id, excludeTurns=True)
        self.thread = resumed["thread"]
        await self._pages(codex, "thread/items/list", threadId=self.thread_id, sortDirection="asc")
        view = "notLoaded" if self.thread["historyMode"] == "paginated" else "full"
        await self._pages(codex, "thread/turns/list", threadId=self.thread_id, itemsView=view, sortDirection="asc")
        listed = await self._pages(codex, "thread/list", ancestorThreadId=self.thread_id, sortKey="created_at")
        self.children = sorted(listed, key=lambda child: str(child["id"]))
        for child in self.children:
            await self._pages(codex, "thread/items/list", threadId=child["id"], sortDirection="asc")
            await self._pages(
                codex, "thread/turns/list", threadId=child["id"], itemsView="notLoaded", sortDirection="asc"
            )

    async def _pages(self, codex: CodexProcess, method: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            asked = {**params, "limit": _PAGE, **({"cursor": cursor} if cursor else {})}
            try:
                result = await codex.request(method, **asked)
            except RequestFailed as failed:
                self.exchanges.append({"method": method, "params": asked, "error": failed.error})
                return found
            self.exchanges.append({"method": method, "params": asked, "result": result})
            found += result["data"]
            cursor = result.get("nextCursor")
            if not cursor:
                return found


async def record(scenario: CodexScenario, fixtures: Path) -> Path:
    """Play a scenario and write its scrubbed recording; the folder.

    An older recording is replaced. Golden updates that were made of it stay, and may need to be written anew.
    """
    # Outside any repository, whose name and advice would be in the recording.
    base = Path.home() / ".cache" / "sayagain"
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recording", dir=base, ignore_cleanup_errors=True) as root:
        recording = _Recording(scenario, CodexPlace(Path(root)))
        await recording.play()
        messages = said(recording.processes, "message")
        threads = {"thread": recording.thread, "children": recording.children}
        ours = own_texts(scenario, recording.script, Text, recording.processes)
        scrubber = CodexScrubber(scenario.name, neutral_names(recording.place), ours)
        for value in (messages, recording.exchanges, threads):
            scrubber.learn(value)
        target = fixtures / scenario.name
        target.mkdir(parents=True, exist_ok=True)
        write_lines(target / "messages.jsonl", [scrubber.scrub(message) for message in messages])
        write_lines(target / "items.jsonl", [scrubber.scrub(exchange) for exchange in recording.exchanges])
        write_document(target / "thread.json", scrubber.scrub(threads))
        about = {
            "scenario": scenario.name,
            "threadId": recording.thread_id,
            "childThreadIds": [child["id"] for child in recording.children],
            "prompts": {key: text for codex in recording.processes for key, text in codex.prompts.items()},
        }
        known = {"shows": scenario.shows, "codex": _version(messages), "model": scenario.model}
        write_document(target / "scenario.json", {**scrubber.scrub(about), **known})
        return target


_NAMES: Final = {"@child": re.compile(r'"agent_id":"([^"]+)"'), "@session": re.compile(r"session ID (\d+)")}
"""What only the runtime knows, and where it said it to the model: ``@child`` a subagent, ``@session`` a command."""


def _resolved(script: Script) -> ScriptLike:
    """The script with these names in tool inputs made what they stand for."""

    def resolve(value: Any, said: str) -> Any:
        if isinstance(value, list):
            return [resolve(item, said) for item in cast("list[Any]", value)]
        found = _NAMES[value].search(said) if isinstance(value, str) and value in _NAMES else None
        if found is None:
            return value
        return int(found[1]) if found[1].isdigit() else found[1]

    def choose(asked: Asked) -> Reply | None:
        said = "\n".join(str(item.get("output")) for item in asked.items if "output" in item)
        return [
            replace(part, input={key: resolve(value, said) for key, value in part.input.items()})
            if isinstance(part, ToolUse) and not isinstance(part.input, str)
            else part
            for part in script(asked) or ()
        ] or None

    return choose


def _version(messages: Iterable[Mapping[str, Any]]) -> str | None:
    """The runtime's version, which it says only in the answer to ``initialize``."""
    for message in messages:
        agent = message["message"].get("result", {}).get("userAgent", "")
        if found := re.search(r"/(\d+\.\d+\.\d+)", agent):
            return found[1]
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the named scenarios, or all."""
    run_recorder("Codex", SCENARIOS, record, Path("fixtures/codex"), arguments)


if __name__ == "__main__":
    main()
