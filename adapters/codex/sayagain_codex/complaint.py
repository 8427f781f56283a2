"""Why a process ended early, by what it wrote to standard error."""

from __future__ import annotations

import re
from typing import Final

from sayagain_codex.values import without_values

__all__ = ["complaint"]

_DECORATION: Final = re.compile(r"^(?:\x1b\[[0-9;]*m)*\d{4}-\d\d-\d\dT\S+\s+|\x1b\[[0-9;]*m", re.MULTILINE)
"""The time of a line of a log, and colours."""

_ERROR: Final = re.compile(r"(?:\S+: )?error\b|thread '.*' panicked", re.IGNORECASE)
"""How a line begins that is an error of Codex, of its command line, or of a shell script before it."""

_REMARK: Final = re.compile(
    r"\W*(?:warning|warn|note|info|debug|tip|hint|usage|try|for more information)\b", re.IGNORECASE
)


def complaint(stderr: str) -> str:
    """The last error, which a backtrace or advice may follow (measured), or else the last line that is no remark.

    Warnings come first and have nothing to do with the end. ``""`` when there is nothing else. It goes to clients, so
    no value of the configuration is in it.
    """
    before, _, _ = without_values(_DECORATION.sub("", stderr)).partition("\nStack backtrace:")
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    for index in reversed(range(len(lines))):
        if _ERROR.match(lines[index]):
            # What a panic says is on the line behind the place where it happened.
            panicked = "panicked" in lines[index] and lines[index].endswith(":")
            return " ".join(lines[index : index + 2]) if panicked else lines[index]
    return next((line for line in reversed(lines) if not _REMARK.match(line)), "")
