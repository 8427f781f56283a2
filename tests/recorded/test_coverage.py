"""Every recording is replayed and compared with live, and so is every kind of update that has a place in a history."""

from __future__ import annotations

from pathlib import Path

from recorded.recordings import FIXTURES, recordings
from sayagain.testing.scenarios import SCENARIOS
from support_folding import fold, updates_of

LIVE_ONLY = {"notice", "session_info_update", "usage_update"}
"""What is told once and belongs to no history (RES-7), or is told anew with the current state (RES-9)."""


def test_every_scenario_is_a_recording_with_both_sides() -> None:
    folders = {path.name for path in FIXTURES.iterdir() if path.is_dir()}
    assert {recording.name for recording in recordings()} == folders == set(SCENARIOS)
    for recording in recordings():
        for side in ("live", "replay"):
            assert (recording.folder / "golden" / f"{side}.jsonl").exists()


def test_every_kind_of_update_is_compared(tmp_path: Path) -> None:
    sent, compared = set[str](), set[str]()
    for recording in recordings():
        (folder := tmp_path / recording.name).mkdir()
        live, replayed = recording.live(), recording.replayed(folder)
        sent |= {update["sessionUpdate"] for _, update in updates_of([*live, *replayed])}
        compared |= {kind for _, kind, _ in fold(live).keys() & fold(replayed).keys()}
    kinds = {kind.removesuffix("_chunk").removesuffix("_update") for kind in sent - LIVE_ONLY}
    assert kinds == compared
