"""What is committed of recordings carries nothing of a recording machine, and no prose of the runtimes'."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.codex_scenarios import SCENARIOS as CODEX_SCENARIOS
from sayagain.testing.codex_scrubber import CODEX_MARKERS, PATCH_LINE, shell_words
from sayagain.testing.scenarios import SCENARIOS as CLAUDE_SCENARIOS
from sayagain.testing.scrubber import MARKERS, MAX_FOREIGN, strings_in

FIXTURES = Path(__file__).parents[2] / "fixtures"
SCENARIOS: Mapping[str, Mapping[str, Any]] = {"claude": CLAUDE_SCENARIOS, "codex": CODEX_SCENARIOS}
RECORDINGS = sorted(
    f"{runtime}/{path.name}" for runtime in SCENARIOS for path in (FIXTURES / runtime).iterdir() if path.is_dir()
)
LARGEST_FILE = 120_000

NEUTRAL = ("/home/user", "/dev/null", "/usr/bin/python3", "/usr/lib/sayagain", "/bin/bash")
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/<*~-])/(?:[\w.@-]+/)+[\w.@-]*")
SECRETS = re.compile(r"\bsk-|Bearer |BEGIN [A-Z ]*PRIVATE KEY|[\w.+-]+@[\w-]+\.\w+")
PLACEHOLDER = re.compile(r"<placeholder \d+ chars>")
TAG = re.compile(r"</?[a-z][a-z0-9_-]*>")
AGENT = re.compile(r"recorder/\d+\.\d+\.\d+ \(Linux; x86_64\)")
AGENT_PATHS = {"/root", "/root/helper"}
"""How Codex names agents: not paths of files."""
LISTING = re.compile(r"^(?:\s*\d+[\t→:-]|[+\- ])")


def records(recording: str) -> Iterator[tuple[Path, Any]]:
    for path in sorted((FIXTURES / recording).rglob("*.json*")):
        text = path.read_text(encoding="utf-8")
        for record in text.splitlines() if path.suffix == ".jsonl" else [text]:
            yield path, json.loads(record)


def texts_of(value: object) -> Iterable[str]:
    if is_dataclass(value):
        for field in fields(value):
            yield from texts_of(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_of(item)
    else:
        yield from strings_in(value)


def sent(recording: str) -> Iterator[Any]:
    """What our side said."""
    for path, record in records(recording):
        if path.parent.name == "golden":
            continue
        if record.get("direction") == "in":
            yield record.get("frame") or record["message"]


def our_texts(recording: str) -> str:
    """All that the scenario, its script and our side of the conversation say."""
    runtime, name = recording.split("/")
    scenario = SCENARIOS[runtime][name]
    about = json.loads((FIXTURES / recording / "scenario.json").read_text(encoding="utf-8"))
    texts = [*texts_of(scenario), *strings_in([*sent(recording), about])]
    for step in scenario.steps:
        texts += ["".join(getattr(part, "text", "") for part in reply) for reply in step.replies]
    return "\n".join(texts).replace("@/", "/home/user/project/")


def foreign_lines(text: str, ours: str, markers: Sequence[str] = MARKERS) -> list[str]:
    """The lines that are neither ours, nor names, nor placeholders behind a known beginning."""
    if text in ours or ((script := shell_words(text)) and script in ours):
        return []
    found: list[str] = []
    for line in TAG.sub("\n", PLACEHOLDER.sub("", text)).split("\n"):
        bare = line.strip()
        for marker in markers:
            bare = bare.removeprefix(marker).strip()
        if bare not in ours and LISTING.sub("", bare).strip() not in ours and re.search(r"\s", bare):
            if PATCH_LINE.fullmatch(bare) or AGENT.fullmatch(bare):
                continue
            found.append(line)
    return found


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recording_is_clean(recording: str) -> None:
    ours = our_texts(recording)
    markers = CODEX_MARKERS if recording.startswith("codex/") else MARKERS
    host = socket.gethostname()
    for path, record in records(recording):
        for text in strings_in(record):
            if text in AGENT_PATHS:
                continue
            foreign = [found for found in ABSOLUTE_PATH.findall(text) if not found.startswith(NEUTRAL)]
            assert not foreign, (path, foreign)
            assert not SECRETS.search(text), (path, text)
            assert len(host) < 4 or host not in text, (path, text)
            assert not re.search(r"/tmp|/root|-tmp-|-root-", text), (path, text)
            if path.parent.name == "golden":
                continue  # made by our own translators, whose words are ours
            allowed = text in {"Default (recommended)"} or re.fullmatch(r"(?:Opus|Sonnet|Haiku|Fable) [\d.]+.*", text)
            assert allowed or not foreign_lines(text, ours, markers), (path, foreign_lines(text, ours, markers))
            assert len(PLACEHOLDER.sub("", text)) <= MAX_FOREIGN or not foreign_lines(text, ours, markers), (path, text)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recording_is_small_and_whole(recording: str) -> None:
    folder = FIXTURES / recording
    for path in folder.rglob("*"):
        assert path.is_dir() or path.stat().st_size <= LARGEST_FILE, path
    about = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))
    runtime, name = recording.split("/")
    assert about["shows"] == SCENARIOS[runtime][name].shows
    prompts = {message["uuid"] for message in sent(recording) if "uuid" in message}
    prompts |= {
        message["params"]["clientUserMessageId"]
        for message in sent(recording)
        if "clientUserMessageId" in message.get("params", {})
    }
    assert prompts == set(about["prompts"])
    for path in folder.glob("subagents/*.jsonl"):
        assert path.with_suffix(".meta.json").exists()


def test_every_scenario_is_recorded() -> None:
    assert set(RECORDINGS) == {f"{runtime}/{name}" for runtime, known in SCENARIOS.items() for name in known}


@pytest.mark.parametrize(
    "leak", ["Use this tool whenever you must.", "<system-reminder>\nDo as told now\n</system-reminder>"]
)
def test_the_scan_sees_prose(leak: str) -> None:
    assert foreign_lines(leak, "our own words")
