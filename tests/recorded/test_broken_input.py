"""Frames and rows with anything anywhere: the translators never raise, and what they give can go on the wire."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorded.folding import updates_of
from recorded.recordings import recordings
from sayagain.runtime import HistoryEntry, RuntimeEvent
from sayagain_claude.history import history
from sayagain_claude.translate.live import LiveTranslator

JUNK: list[Any] = [None, True, -1, 2.5, "", "x", "\ud800", "mcp__", [], [None], [[]], {}, {"type": "text"}, {"a": 1}]
SESSION = "00000000-0000-4000-8000-000000000001"

RECORDINGS = recordings()

needs_recordings = pytest.mark.skipif(not RECORDINGS, reason="no recordings")


@cache
def frames(index: int) -> list[dict[str, Any]]:
    records = RECORDINGS[index % len(RECORDINGS)].records()
    return [record["frame"] for record in records if record["direction"] == "out"][:400]


@cache
def rows(index: int) -> list[dict[str, Any]]:
    path = RECORDINGS[index % len(RECORDINGS)].folder / "transcript.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()][:400]


def broken(value: Any, chance: random.Random) -> Any:
    """``value`` with one thing somewhere in it replaced, removed or doubled."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.15:
        return chance.choice(JUNK)
    if isinstance(value, list):
        where = chance.randrange(len(value))
        return [broken(item, chance) if index == where else item for index, item in enumerate(value)] * (
            2 if chance.random() < 0.1 else 1
        )
    key = chance.choice(list(value))
    if chance.random() < 0.1:
        return {name: item for name, item in value.items() if name != key}
    return value | {key: broken(value[key], chance)}


def some_broken(items: Iterable[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    mixed = [broken(item, chance) if chance.random() < 0.2 else item for item in items]
    return [item for item in mixed if isinstance(item, dict)]


def encode(items: Iterable[RuntimeEvent | HistoryEntry]) -> None:
    for _, update in updates_of(items):
        json.dumps(update, ensure_ascii=False, allow_nan=False).encode()


@needs_recordings
@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1000), st.integers(0, 2**32))
def test_broken_frames(index: int, seed: int) -> None:
    translator = LiveTranslator(SESSION, "/work")
    for frame in some_broken(frames(index), seed):
        encode(translator.frame(frame))
    encode(translator.close_calls("failed"))


@needs_recordings
@settings(deadline=None, max_examples=100)
@given(st.integers(0, 1000), st.integers(0, 2**32))
def test_broken_rows(index: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{SESSION}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in some_broken(rows(index), seed)), encoding="utf-8")
        for batch in history(path, SESSION, live=False):
            encode(batch)
