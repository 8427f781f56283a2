"""What is special in the recordings of Codex; the rule is that of :mod:`sayagain.testing.scrubber`."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from sayagain.testing.scrubber import EPOCH, Scrubber

__all__ = ["CODEX_MARKERS", "PATCH_LINE", "CodexScrubber", "shell_words"]

CODEX_MARKERS: Final = (
    "thread not found",
    "thread not loaded",
    "no rollout found for thread id",
    "no active turn to steer",
    "no active turn to interrupt",
    "unexpected status 400",
    "unexpected status 401",
    "unexpected status 500",
    "stream disconnected before completion",
    "exceeded retry limit",
    "Reconnecting...",
)
"""Beginnings that an adapter has to recognise; only the beginning is kept."""

PATCH_LINE: Final = re.compile(
    r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|diff --git a/\S+ b/\S+|(?:new|deleted) file mode \d+|(?:---|\+\+\+) \S+"
    r"|index [0-9a-f]+\.\.[0-9a-f]+(?: \d+)?|Moved to: \S+|similarity index \d+%"
    r"|rename (?:from|to) \S+|\\ No newline at end of file"
)
"""Lines of a diff that the runtime writes around ours."""

_ROLLOUT: Final = re.compile(
    r"(?<=sessions/)\d{4}/\d\d/\d\d/rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d|rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d"
)
_PREFIXED_UUID: Final = re.compile(r"(?<=[a-z]_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""An identifier that the runtime gives to an item of the model's, such as ``msg_...``."""

_NEUTRAL_DAY: Final = "2026/01/01/"
_NEUTRAL_ROLLOUT: Final = "rollout-2026-01-01T00-00-00"
_AGENT: Final = re.compile(r"\S+/(\d+\.\d+\.\d+)\S* \(.*")


def shell_words(command: str) -> str | None:
    """What the shell is asked to run in a command as the runtime shows it; ``None`` if it is no such command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words[2] if len(words) == 3 and words[1] == "-lc" else None


class CodexScrubber(Scrubber):
    """Scrubs all records of one recording of Codex."""

    def __init__(self, name: str, paths: Mapping[str, str], ours: Iterable[str]) -> None:
        super().__init__(name, paths, ours, CODEX_MARKERS)
        self._host = socket.gethostname()
        self._processes: dict[str, str] = {}
        self._nicknames: dict[str, str] = {}

    def scrub(self, value: object, key: str = "") -> Any:
        if isinstance(value, str):
            if key == "serverName" and value == self._host:
                return "host"
            if key in {"processId", "process_id"}:
                return self._processes.setdefault(value, str(1000 + len(self._processes)))
            if key in {"agentNickname", "agent_nickname"}:
                return self._nicknames.setdefault(value, f"Helper{len(self._nicknames) + 1}")
            if key == "userAgent" and (found := _AGENT.fullmatch(value)):
                return f"recorder/{found[1]} (Linux; x86_64)"
            if key == "command" and (script := shell_words(value)) is not None and self._is_ours(self._neutral(script)):
                return self._neutral(value)
        return super().scrub(value, key)

    def _clock(self, moment: int) -> datetime:
        """One moment for all: which events share a millisecond is chance, and the order of lines tells the order."""
        return EPOCH

    def _is_ours(self, text: str) -> bool:
        return bool(PATCH_LINE.fullmatch(text)) or super()._is_ours(text)

    def _neutral(self, text: str) -> str:
        def rollout(found: re.Match[str]) -> str:
            return f"{_NEUTRAL_DAY}{_NEUTRAL_ROLLOUT}" if "/" in found[0] else _NEUTRAL_ROLLOUT

        text = _PREFIXED_UUID.sub(lambda found: self._renamed(found[0]), _ROLLOUT.sub(rollout, text))
        return super()._neutral(text)
