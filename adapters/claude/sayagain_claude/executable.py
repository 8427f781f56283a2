"""Where the ``claude`` executable is (design section 1).

The Python package ``claude-agent-sdk`` carries a pinned one. The package is found, never imported: that alone would
take 0.7 s and 60 MB (measured), for a control protocol of which :mod:`sayagain_claude.control` is all that we need.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from sayagain.errors import RuntimeMissing
from sayagain.processes.executable import bundled, chosen

__all__ = ["VARIABLE", "find_executable"]

VARIABLE = "CLAUDE_CODE_EXECUTABLE"
"""The environment variable that names another executable; editors pass it through (Zed does)."""


def find_executable(env: Mapping[str, str]) -> str:
    """The executable's absolute path: the environment's choice, the bundled one, one on ``PATH``, in this order.

    Raises :class:`~sayagain.errors.RuntimeMissing`, naming what was looked for.
    """
    pinned = chosen(env, VARIABLE) or bundled("claude_agent_sdk", "_bundled", "claude")
    if found := pinned or shutil.which("claude", path=env.get("PATH")):
        return found
    raise RuntimeMissing(
        "Claude Code was not found: the installed claude-agent-sdk carries no executable for this platform, and there "
        f"is none on PATH. Install Claude Code, or name it in {VARIABLE}."
    )
