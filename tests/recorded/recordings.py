"""The recordings in ``fixtures/claude`` as inputs of the translators."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sayagain.runtime.events import RuntimeEvent
from sayagain.runtime.history import HistoryEntry
from sayagain_claude.history import history
from sayagain_claude.translate.live import LiveTranslator
from support_recordings import BaseRecording, fixtures_of, found_in

__all__ = ["FIXTURES", "Recording", "recordings"]

FIXTURES = fixtures_of("claude", "SAYAGAIN_RECORDINGS")

_NOT_TRANSLATED = {"control_request", "control_response", "control_cancel_request", "transcript_mirror"}


class Recording(BaseRecording):
    @property
    def session_id(self) -> str:
        return self.about["sessionId"]

    def records(self) -> Iterator[dict[str, Any]]:
        return self.lines("frames.jsonl")

    def cwd(self) -> str:
        return next((r["frame"]["cwd"] for r in self.records() if r["frame"].get("subtype") == "init"), "/")

    def transcript(self, folder: Path) -> Path | None:
        """The session's files laid out in ``folder`` as the runtime keeps them; ``None`` when nothing was stored."""
        if not (self.folder / "transcript.jsonl").exists():
            return None
        path = folder / f"{self.session_id}.jsonl"
        shutil.copy(self.folder / "transcript.jsonl", path)
        if (self.folder / "subagents").is_dir():
            shutil.copytree(self.folder / "subagents", path.with_suffix("") / "subagents")
        return path

    def live(self) -> list[RuntimeEvent]:
        """The events of all processes of the recording, as a session sees them: a process that ends closes calls."""
        translator = LiveTranslator(self.session_id, self.cwd())
        events: list[RuntimeEvent] = []
        process = 1
        for record in self.records():
            if record["process"] != process:
                process = record["process"]
                events += translator.close_calls("failed")
            if record["direction"] == "out" and record["frame"].get("type") not in _NOT_TRANSLATED:
                events += translator.frame(record["frame"])
        return events + translator.close_calls("failed")

    def replayed(self, folder: Path) -> list[HistoryEntry]:
        path = self.transcript(folder)
        return [entry for batch in history(path, self.session_id, live=False) for entry in batch] if path else []


def recordings() -> list[Recording]:
    return found_in(FIXTURES, Recording)
