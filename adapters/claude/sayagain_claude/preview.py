"""What a file holds before an edit that the user is asked about, so that the patch can be shown beforehand."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sayagain_claude.translate.blocks import as_mapping

__all__ = ["LARGEST", "text_before"]

LARGEST: Final = 1 << 20
"""Bytes of a file up to which its patch is shown beforehand; making one of a larger file would delay the question."""

_EDITS: Final = frozenset({"Edit", "Write"})


def text_before(request: Mapping[str, Any], cwd: str) -> str | None:
    """The text of the file that a ``can_use_tool`` request wants to change; ``""`` for one that does not exist yet.

    ``None`` for other tools, and for files that are no text, too large, or not readable. Blocking.
    """
    name = as_mapping(request.get("input")).get("file_path")
    if request.get("tool_name") not in _EDITS or not isinstance(name, str):
        return None
    try:
        path = Path(cwd) / name
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(fd, "rb") as file:
            return file.read(LARGEST).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None
