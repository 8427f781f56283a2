"""Records scenarios from the real Claude Code into fixtures: ``python -m sayagain.testing.recorder [scenario ...]``.

Each recording has ``frames.jsonl`` (what was said both ways, in order: ``{"process", "direction": "in"|"out",
"frame"}``), ``transcript.jsonl`` (the session file), ``subagents/`` as the runtime lays it out, and ``scenario.json``
(what it shows, the runtime's version, the prompts by id). ``docs/recording.md`` says how it is used.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from sayagain.testing.claude_process import ClaudeProcess, Permissions, Place, allow, run_claude
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_script import Script, Text
from sayagain.testing.recording import (
    HOME,
    id_seed,
    neutral_names,
    own_texts,
    run_recorder,
    said,
    write_document,
    write_lines,
)
from sayagain.testing.scenarios import SCENARIOS, Scenario, Stage
from sayagain.testing.scrubber import Scrubber

__all__ = ["in_project", "main", "record"]


class _Recording:
    """The state of one scenario while it plays."""

    def __init__(self, scenario: Scenario, place: Place) -> None:
        self.scenario = scenario
        self.place = place
        self.session_id = str(uuid.uuid4())
        self.processes: list[ClaudeProcess] = []
        self.script = in_project(scenario.script(), place.project)

    async def play(self) -> None:
        scenario = self.scenario
        for folder in (self.place.project, self.place.config, self.place.scratch):
            folder.mkdir(parents=True)
        for name, content in scenario.files.items():
            (self.place.project / name).write_text(content, encoding="utf-8")
        if scenario.settings is not None:
            (self.place.config / "settings.json").write_text(json.dumps(scenario.settings), encoding="utf-8")
        async with serve_messages(self.script, id_seed=id_seed(scenario.name)) as service:

            @asynccontextmanager
            async def run(
                arguments: Sequence[str] = (), permissions: Permissions = allow
            ) -> AsyncGenerator[ClaudeProcess]:
                session = f"--resume={self.session_id}" if self.processes else f"--session-id={self.session_id}"
                async with run_claude(
                    self.place,
                    service.url,
                    session=[session],
                    arguments=arguments,
                    environment=scenario.environment,
                    permissions=permissions,
                ) as claude:
                    self.processes.append(claude)
                    yield claude

            await scenario.play(Stage(run, service, self.place.project))

    def files(self) -> dict[str, list[Any]]:
        """The session's records by their path under the fixture."""
        found: dict[str, list[Any]] = {}
        for transcript in sorted(self.place.config.glob(f"projects/*/{self.session_id}.jsonl")):
            found["transcript.jsonl"] = _records(transcript)
            folder = transcript.with_suffix("") / "subagents"
            for file in sorted(folder.glob("agent-*")):
                found[f"subagents/{file.name}"] = _records(file)
        return found


async def record(scenario: Scenario, fixtures: Path) -> Path:
    """Play a scenario and write its scrubbed recording; the folder.

    An older recording is replaced. Golden updates that were made of it stay, and may need to be written anew.
    """
    with tempfile.TemporaryDirectory(prefix="recording", ignore_cleanup_errors=True) as root:
        recording = _Recording(scenario, Place(Path(root)))
        await recording.play()
        frames, files = said(recording.processes, "frame"), recording.files()
        ours = own_texts(scenario, recording.script, Text, recording.processes)
        scrubber = Scrubber(scenario.name, _neutral_names(recording.place), ours)
        for value in (frames, *files.values()):
            scrubber.learn(value)
        target = fixtures / scenario.name
        shutil.rmtree(target / "subagents", ignore_errors=True)
        target.mkdir(parents=True, exist_ok=True)
        write_lines(target / "frames.jsonl", [scrubber.scrub(frame) for frame in frames])
        for name, rows in files.items():
            path = target / scrubber.scrub(name)
            path.parent.mkdir(exist_ok=True)
            write_lines(path, [scrubber.scrub(row) for row in rows if scrubber.keeps_row(row)])
        prompts = {key: text for claude in recording.processes for key, text in claude.prompts.items()}
        about = {
            "scenario": scenario.name,
            "shows": scenario.shows,
            "claude": _version(frames),
            "sessionId": recording.session_id,
            "prompts": prompts,
            "environment": dict(scenario.environment),
        }
        shows = {"shows": scenario.shows, "claude": about["claude"], "environment": about["environment"]}
        write_document(target / "scenario.json", {**scrubber.scrub(about), **shows})
        return target


def in_project(script: Script, project: Path) -> Script:
    """The script with ``@/`` at the start of a tool's input made the project folder."""

    def resolve(part: Any) -> Any:
        if not hasattr(part, "input"):
            return part
        values = {
            key: f"{project}/{value[2:]}" if isinstance(value, str) and value.startswith("@/") else value
            for key, value in cast("Mapping[str, Any]", part.input).items()
        }
        return replace(part, input=values)

    steps = [
        replace(step, replies=[[resolve(part) for part in reply] for reply in step.replies]) for step in script.steps
    ]
    return Script(steps, script.default)


def _neutral_names(place: Place) -> dict[str, str]:
    more = {str(place.scratch): f"{HOME}/.cache", f"claude-{os.getuid()}": "claude-1000"}
    return neutral_names(place) | more


def _records(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _version(frames: Iterable[Mapping[str, Any]]) -> str | None:
    """The runtime's version, from its first ``system/init``."""
    return next((f["frame"]["claude_code_version"] for f in frames if f["frame"].get("subtype") == "init"), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the named scenarios, or all."""
    run_recorder("Claude Code", SCENARIOS, record, Path("fixtures/claude"), arguments)


if __name__ == "__main__":
    main()
