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

from recorded.recordings import recordings
from sayagain_claude.history import history
from sayagain_claude.translate.live import LiveTranslator
from support_recordings import broken, encode

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


def some_broken(items: Iterable[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    mixed = [broken(item, chance, JUNK) if chance.random() < 0.2 else item for item in items]
    return [item for item in mixed if isinstance(item, dict)]


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
