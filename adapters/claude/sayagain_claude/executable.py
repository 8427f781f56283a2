"""Where the ``claude`` executable is (design section 1).

The Python package ``claude-agent-sdk`` carries a pinned one. The package is found, never imported: that alone would
take 0.7 s and 60 MB (measured), for a control protocol of which :mod:`sayagain_claude.control` is all that we need.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from sayagain.errors import RuntimeMissing

__all__ = ["VARIABLE", "find_executable"]

VARIABLE = "CLAUDE_CODE_EXECUTABLE"
"""The environment variable that names another executable; editors pass it through (Zed does)."""


def find_executable(env: Mapping[str, str]) -> str:
    """The executable's absolute path: the environment's choice, the bundled one, one on ``PATH``, in this order.

    Raises :class:`~sayagain.errors.RuntimeMissing`, naming what was looked for.
    """
    if chosen := env.get(VARIABLE):
        found = shutil.which(chosen, path=env.get("PATH"))
        if found is None:
            raise RuntimeMissing(f"{VARIABLE} names {chosen}, which is no executable file")
        return str(Path(found).absolute())
    if bundled := _bundled():
        return bundled
    if found := shutil.which("claude", path=env.get("PATH")):
        return found
    raise RuntimeMissing(
        "Claude Code was not found: the installed claude-agent-sdk carries no executable for this platform, and there "
        f"is none on PATH. Install Claude Code, or name it in {VARIABLE}."
    )


def _bundled() -> str | None:
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bundled" / ("claude.exe" if sys.platform == "win32" else "claude")
    return str(path) if os.access(path, os.X_OK) else None
