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

_EDITS: Final = {"Edit": "file_path", "Write": "file_path", "NotebookEdit": "notebook_path"}
"""The tools that edit files, and the field of their input that names the file."""


def text_before(request: Mapping[str, Any], cwd: str) -> str | None:
    """The text of the file that a ``can_use_tool`` request wants to change; ``""`` for one that does not exist yet.

    As the CLI reads it (measured): a line ends with a newline alone, a byte-order mark is a character, UTF-16 is text.
    ``None`` for other tools, and for files that are no text, too large, or not readable. Blocking.
    """
    name = as_mapping(request.get("input")).get(_EDITS.get(str(request.get("tool_name")), ""))
    if not isinstance(name, str):
        return None
    try:
        path = Path(cwd) / name
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            return None
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(fd, "rb") as file:
            return _decoded(file.read(LARGEST))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


def _decoded(data: bytes) -> str:
    return data.decode("utf-16-le" if data.startswith(b"\xff\xfe") else "utf-8").replace("\r\n", "\n")
