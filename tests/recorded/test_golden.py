"""Golden updates of every recording: a diff is a decision.

``SAYAGAIN_GOLDEN=write pytest tests/recorded/test_golden.py`` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from recorded.recordings import Recording, recordings
from support_recordings import compare_golden


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
def test_updates_are_as_decided(recording: Recording, tmp_path: Path) -> None:
    golden = recording.folder / "golden"
    compare_golden(recording.live(), golden / "live.jsonl")
    compare_golden(recording.replayed(tmp_path), golden / "replay.jsonl")
