"""Golden updates of every recording: a diff is a decision.

``SAYAGAIN_GOLDEN=write pytest tests/codex_translate/test_codex_golden.py`` writes them anew.
"""

from __future__ import annotations

import pytest

from codex_translate.codex_recordings import Recording, recordings
from support_recordings import compare_golden


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
async def test_updates_are_as_decided(recording: Recording) -> None:
    golden = recording.folder / "golden"
    compare_golden(recording.live(), golden / "live.jsonl")
    compare_golden(await recording.replayed(), golden / "replay.jsonl")
