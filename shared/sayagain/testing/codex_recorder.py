"""Records scenarios from the real Codex into fixtures: ``python -m sayagain.testing.codex_recorder [scenario ...]``.

Each recording has ``messages.jsonl`` (what was said both ways, in order: ``{"process", "direction": "in"|"out",
"message"}``), ``items.jsonl`` (what a fresh process then says of the threads: ``{"method", "params", "result"}`` or
``"error"``), ``thread.json`` (the thread as it was resumed, and its children) and ``scenario.json`` (what it shows, the
runtime's version, the prompts by id). ``docs/recording.md`` says how it is used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import anyio

from sayagain.testing.codex_process import CodexPlace, CodexProcess, Decide, RequestFailed, accept, run_codex
from sayagain.testing.codex_scenarios import SCENARIOS, CodexScenario, CodexStage
from sayagain.testing.codex_scrubber import CodexScrubber
from sayagain.testing.responses_api import serve_responses
from sayagain.testing.responses_request import Asked
from sayagain.testing.responses_script import Reply, Script, ScriptLike, Text, ToolUse
from sayagain.testing.scrubber import strings_in

__all__ = ["main", "record"]

_HOME: Final = "/home/user"
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
        seed = hashlib.sha256(scenario.name.encode()).hexdigest()[:12]
        async with serve_responses(_resolved(self.script), keep_items=True, id_seed=seed) as service:
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

    def ours(self) -> Iterable[str]:
        """Every text that the scenario made."""
        yield from _strings_of(self.script)
        for step in self.script.steps:
            for reply in step.replies:  # a message may be cut in parts by holds
                yield "".join(part.text for part in reply if isinstance(part, Text))
        yield from self.scenario.files.values()
        yield from self.scenario.keeps
        for codex in self.processes:
            for direction, message in codex.log:
                if direction == "in":
                    yield from strings_in(message)

    def messages(self) -> list[dict[str, Any]]:
        return [
            {"process": number, "direction": direction, "message": message}
            for number, codex in enumerate(self.processes, start=1)
            for direction, message in codex.log
        ]


async def record(scenario: CodexScenario, fixtures: Path) -> Path:
    """Play a scenario and write its scrubbed recording; the folder.

    An older recording is replaced. Golden updates that were made of it stay, and may need to be written anew.
    """
    base = (
        Path.home() / ".cache" / "sayagain"
    )  # outside any repository, whose name and advice would be in the recording
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recording", dir=base, ignore_cleanup_errors=True) as root:
        recording = _Recording(scenario, CodexPlace(Path(root)))
        await recording.play()
        messages = recording.messages()
        threads = {"thread": recording.thread, "children": recording.children}
        scrubber = CodexScrubber(scenario.name, _neutral_names(recording.place), recording.ours())
        for value in (messages, recording.exchanges, threads):
            scrubber.learn(value)
        target = fixtures / scenario.name
        target.mkdir(parents=True, exist_ok=True)
        _write_lines(target / "messages.jsonl", [scrubber.scrub(message) for message in messages])
        _write_lines(target / "items.jsonl", [scrubber.scrub(exchange) for exchange in recording.exchanges])
        _write(target / "thread.json", scrubber.scrub(threads))
        about = {
            "scenario": scenario.name,
            "threadId": recording.thread_id,
            "childThreadIds": [child["id"] for child in recording.children],
            "prompts": {key: text for codex in recording.processes for key, text in codex.prompts.items()},
        }
        known = {"shows": scenario.shows, "codex": _version(messages), "model": scenario.model}
        _write(target / "scenario.json", {**scrubber.scrub(about), **known})
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


def _strings_of(value: object) -> Iterable[str]:
    if is_dataclass(value):
        for part in fields(value):
            yield from _strings_of(getattr(value, part.name))
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from _strings_of(item)
    else:
        yield from strings_in(value)


def _neutral_names(place: CodexPlace) -> dict[str, str]:
    package = Path(__file__).resolve().parent
    names = {
        str(place.home): _HOME,
        str(place.root): "/home",
        str(package): "/usr/lib/sayagain",
        sys.executable: "/usr/bin/python3",
    }
    host = socket.gethostname()
    return names if len(host) < 4 else {**names, host: "host"}  # a shorter one may be part of any word


def _write_lines(path: Path, records: Iterable[Any]) -> None:
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _version(messages: Iterable[Mapping[str, Any]]) -> str | None:
    """The runtime's version, which it says only in the answer to ``initialize``."""
    for message in messages:
        agent = message["message"].get("result", {}).get("userAgent", "")
        if found := re.search(r"/(\d+\.\d+\.\d+)", agent):
            return found[1]
    return None


async def _record_all(names: Sequence[str], fixtures: Path) -> None:
    for name in names:
        folder = await record(SCENARIOS[name], fixtures)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{name}: {size / 1000:.0f} kB", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the named scenarios, or all."""
    parser = argparse.ArgumentParser(description="Record scenarios from the real Codex.")
    parser.add_argument("scenario", nargs="*", choices=[[], *SCENARIOS], help="all, if none is named")
    parser.add_argument("--fixtures", type=Path, default=Path("fixtures/codex"), help="where the recordings go")
    options = parser.parse_args(arguments)
    anyio.run(_record_all, options.scenario or list(SCENARIOS), options.fixtures)


if __name__ == "__main__":
    main()
