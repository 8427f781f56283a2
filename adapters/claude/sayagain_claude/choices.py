"""What a session's options will be, read before its CLI has started: from its transcript and the user's settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sayagain_claude.files import open_regular, read_regular
from sayagain_claude.options import Choices
from sayagain_claude.translate.blocks import as_mapping, as_text

__all__ = ["first_choices"]

_TAIL: Final = 256 << 10
"""Bytes at the end of a transcript in which the last prompt and answer are looked for; further back, only the CLI
knows, and an update follows when it has started."""


def first_choices(config: Path, cwd: str, transcript: Path | None = None) -> Choices:
    """What a session begins with; ``transcript`` is that of a stored one."""
    stored = _stored(transcript) if transcript else Choices()
    return Choices(stored.mode, stored.effort, _settings_mode(config, Path(cwd)))


def _stored(transcript: Path) -> Choices:
    """Every prompt is stored with its mode, every answer with its effort (measured)."""
    mode = effort = ""
    for row in _last_rows(transcript):
        if row.get("isSidechain") is True:
            continue
        if row.get("type") == "user":
            mode = mode or as_text(row.get("permissionMode"))
        elif row.get("type") == "assistant":
            effort = effort or as_text(row.get("effort"))
        if mode and effort:
            break
    return Choices(mode or None, effort or None)


def _last_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows in the file's tail, newest first. What cannot be read is no row."""
    tail = b""
    with suppress(OSError), open_regular(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        tail = file.read()
    for line in reversed(tail.split(b"\n")):
        if b'"permissionMode"' in line or b'"effort"' in line:
            with suppress(ValueError, RecursionError):
                yield as_mapping(json.loads(line))


def _settings_mode(config: Path, cwd: Path) -> str | None:
    """``permissions.defaultMode``: the project's local settings, then its shared ones, then the user's."""
    places = (cwd / ".claude" / "settings.local.json", cwd / ".claude" / "settings.json", config / "settings.json")
    for path in places:
        with suppress(OSError, ValueError, RecursionError):
            permissions = as_mapping(as_mapping(json.loads(read_regular(path))).get("permissions"))
            if mode := as_text(permissions.get("defaultMode")):
                return "default" if mode == "manual" else mode
    return None
