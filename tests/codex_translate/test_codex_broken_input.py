"""Input with anything anywhere: the translators never raise, and what they give can go on the wire."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codex_translate.codex_recordings import Recording, recordings
from sayagain.errors import HistoryUnreadable
from sayagain_codex.app_server import AppServerError
from sayagain_codex.history import history
from sayagain_codex.translate import approvals
from sayagain_codex.translate.live import LiveTranslator
from support_codex import AllListed
from support_recordings import broken, encode

JUNK: list[Any] = [None, True, -1, 2.5, "", "x", "\ud800", "/\0", [], [None], [[]], {}, {"type": "text"}, {"a": 1}]
JUNK += [float("nan"), 2**80, "data:image/png;base64,x", "/bin/bash -lc 'x", "@@ -1 +1 @@\n?"]

RECORDINGS = recordings()

needs_recordings = pytest.mark.skipif(not RECORDINGS, reason="no recordings")


def recording(index: int) -> Recording:
    return RECORDINGS[index % len(RECORDINGS)]


@cache
def said(index: int) -> list[dict[str, Any]]:
    records = recording(index).messages()
    return [r["message"] for r in records if r["direction"] == "out" and "method" in r["message"]][:300]


@cache
def exchanges(index: int) -> list[dict[str, Any]]:
    return recording(index).exchanges()


class BrokenClient(AllListed):
    """A recording's answers, with something broken in each."""

    def __init__(self, recorded: list[dict[str, Any]], chance: random.Random) -> None:
        self._recorded = recorded
        self._chance = chance

    async def request(self, method: str, params: Mapping[str, Any], *, patience: float | None = None) -> Any:
        for exchange in self._recorded:
            if exchange["method"] == method and "result" in exchange and self._chance.random() < 0.9:
                result = exchange["result"]
                for _ in range(self._chance.randrange(4)):
                    result = broken(result, self._chance, JUNK)
                return {**result, "nextCursor": None} if isinstance(result, dict) else result
        raise AppServerError(self._chance.choice([-32601, -32600]), "no")


@needs_recordings
@settings(deadline=None, max_examples=200)
@given(st.integers(0, 1000), st.integers(0, 2**32))
def test_broken_notifications(index: int, seed: int) -> None:
    chance = random.Random(seed)
    translator = LiveTranslator(recording(index).session_id, "/work")
    for message in said(index):
        params = message["params"]
        for _ in range(chance.choice([0, 0, 1, 3])):
            params = broken(params, chance, JUNK)
        if not isinstance(params, dict):
            continue
        encode(translator.notification(message["method"], params))
        translator.terminals()
        if "id" in message:
            for capabilities in ({"elicitation": {"form": {}, "url": {}}}, {}):
                item = translator.item_of(params)
                asked = approvals.request("s", message["method"], params, item=item, capabilities=capabilities)
                json.dumps(asked, ensure_ascii=False, allow_nan=False).encode()
                result = {"outcome": {"outcome": "selected", "optionId": chance.choice(["accept", "cancel", "x"])}}
                for given_ in (None, result, {"action": "accept", "content": params}, {"outcome": 3}):
                    approvals.response(message["method"], params, given_)
    encode(translator.close_calls("failed"))


@needs_recordings
@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1000), st.integers(0, 2**32))
def test_broken_stores(index: int, seed: int) -> None:
    async def read() -> None:
        client = BrokenClient(exchanges(index), random.Random(seed))
        try:
            async for batch in history(client, recording(index).thread(), recording(index).session_id, live=False):
                encode(batch)
        except HistoryUnreadable:
            pass

    anyio.run(read)
