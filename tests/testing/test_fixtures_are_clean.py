"""What is committed under fixtures/claude carries nothing of a recording machine, and no prose of the runtime's."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.scenarios import SCENARIOS
from sayagain.testing.scrubber import MARKERS, MAX_FOREIGN, strings_in

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
RECORDINGS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
LARGEST_FILE = 120_000

NEUTRAL = ("/home/user", "/dev/null", "/usr/bin/python3", "/usr/lib/sayagain")
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/<*~-])/(?:[\w.@-]+/)+[\w.@-]*")
SECRETS = re.compile(r"sk-ant-|Bearer |BEGIN [A-Z ]*PRIVATE KEY|[\w.+-]+@[\w-]+\.\w+")
PLACEHOLDER = re.compile(r"<placeholder \d+ chars>")
TAG = re.compile(r"</?[a-z][a-z0-9_-]*>")
LISTING = re.compile(r"^(?:\s*\d+[\t→:-]|[+\- ])")


def records(recording: str) -> Iterator[tuple[Path, Any]]:
    for path in sorted((FIXTURES / recording).rglob("*.json*")):
        text = path.read_text(encoding="utf-8")
        for record in [text] if path.name == "scenario.json" else text.splitlines():
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


def our_texts(recording: str) -> str:
    """All that the scenario, its script and our side of the conversation say."""
    scenario = SCENARIOS[recording]
    said = [frame["frame"] for _, frame in records(recording) if "direction" in frame and frame["direction"] == "in"]
    about = json.loads((FIXTURES / recording / "scenario.json").read_text(encoding="utf-8"))
    texts = [*texts_of(scenario), *strings_in(said), *strings_in(about)]
    for step in scenario.steps:
        texts += ["".join(getattr(part, "text", "") for part in reply) for reply in step.replies]
    return "\n".join(texts).replace("@/", "/home/user/project/")


def foreign_lines(text: str, ours: str) -> list[str]:
    """The lines that are neither ours, nor names, nor placeholders behind a known beginning."""
    if text in ours:
        return []
    found: list[str] = []
    for line in TAG.sub("\n", PLACEHOLDER.sub("", text)).split("\n"):
        bare = line.strip()
        for marker in MARKERS:
            bare = bare.removeprefix(marker).strip()
        if bare not in ours and LISTING.sub("", bare).strip() not in ours and re.search(r"\s", bare):
            found.append(line)
    return found


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recording_is_clean(recording: str) -> None:
    ours = our_texts(recording)
    host = socket.gethostname()
    for path, record in records(recording):
        for text in strings_in(record):
            foreign = [found for found in ABSOLUTE_PATH.findall(text) if not found.startswith(NEUTRAL)]
            assert not foreign, (path, foreign)
            assert not SECRETS.search(text), (path, text)
            assert len(host) < 4 or host not in text, (path, text)
            assert not re.search(r"/tmp|/root|-tmp-|-root-", text), (path, text)
            if path.parent.name == "golden":
                continue  # made by our own translators, whose words are ours
            allowed = text in {"Default (recommended)"} or re.fullmatch(r"(?:Opus|Sonnet|Haiku|Fable) [\d.]+.*", text)
            assert allowed or not foreign_lines(text, ours), (path, foreign_lines(text, ours))
            assert len(PLACEHOLDER.sub("", text)) <= MAX_FOREIGN or not foreign_lines(text, ours), (path, text)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_recording_is_small_and_whole(recording: str) -> None:
    folder = FIXTURES / recording
    for path in folder.rglob("*"):
        assert path.is_dir() or path.stat().st_size <= LARGEST_FILE, path
    about = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))
    assert about["shows"] == SCENARIOS[recording].shows
    sent = {
        frame["frame"]["uuid"]
        for _, frame in records(recording)
        if frame.get("direction") == "in" and "uuid" in frame["frame"]
    }
    assert sent == set(about["prompts"])
    for path in folder.glob("subagents/*.jsonl"):
        assert path.with_suffix(".meta.json").exists()


def test_every_scenario_is_recorded() -> None:
    assert set(RECORDINGS) == set(SCENARIOS)


@pytest.mark.parametrize(
    "leak", ["Use this tool whenever you must.", "<system-reminder>\nDo as told now\n</system-reminder>"]
)
def test_the_scan_sees_prose(leak: str) -> None:
    assert foreign_lines(leak, "our own words")
