"""Golden updates of every recording: a diff is a decision.

``SAYAGAIN_GOLDEN=write pytest tests/codex_translate/test_codex_golden.py`` writes them anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from codex_translate.codex_recordings import Recording, recordings
from sayagain.runtime import ChildAnnounced, ChildStarts, Foreground, HistoryEntry, RuntimeEvent, Unreadable, UserTurn

WRITE = os.environ.get("SAYAGAIN_GOLDEN") == "write"


def _line(item: RuntimeEvent | HistoryEntry) -> str:
    fields: dict[str, object] = {"is": type(item).__name__}
    match item:
        case ChildAnnounced(parent_id, _, update) | ChildStarts(parent_id, _, update):
            fields |= {"session": parent_id, "update": update}
        case UserTurn(session_id, message_ids, update):
            fields |= {"session": session_id, "ids": message_ids, "update": update}
        case Foreground(session_id, state, stop_reason):
            fields |= {"session": session_id, "state": state, "stopReason": stop_reason}
        case Unreadable(session_id, count, what):
            fields |= {"session": session_id, "count": count, "what": what}
        case _:
            fields |= {"session": getattr(item, "session_id", None), "update": getattr(item, "update", None)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def _compare(items: Iterable[RuntimeEvent | HistoryEntry], path: Path) -> None:
    text = "".join(map(_line, items))
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
async def test_updates_are_as_decided(recording: Recording) -> None:
    golden = recording.folder / "golden"
    _compare(recording.live(), golden / "live.jsonl")
    _compare(await recording.replayed(), golden / "replay.jsonl")
