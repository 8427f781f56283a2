"""Where the ``codex`` executable is (design section 1), and whether it is new enough."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sayagain.errors import RuntimeMissing
from sayagain.processes.executable import bundled, chosen

__all__ = ["INSTALL", "MINIMUM", "VARIABLE", "check_version", "find_executable"]

VARIABLE: Final = "CODEX_PATH"
"""The environment variable that names another executable."""

MINIMUM: Final = (0, 163)
"""The oldest version whose app-server was measured to keep the promises that we build on."""

INSTALL: Final = "pip install 'sayagain[codex]' brings one that fits"
"""What to do about an executable that is none of use."""

_VERSION: Final = re.compile(r"[/ ](\d+)\.(\d+)\.(\d+)")


def find_executable(env: Mapping[str, str]) -> str:
    """The executable's absolute path: the environment's choice, one on ``PATH``, the extra's, in this order.

    Raises :class:`~sayagain.errors.RuntimeMissing`, naming what was looked for.
    """
    try:
        own = chosen(env, VARIABLE) or shutil.which("codex", path=env.get("PATH"))
    except RuntimeMissing as error:
        raise RuntimeMissing(f"{error}. {INSTALL}") from error
    if found := own or bundled("codex_cli_bin", "bin", "codex"):
        return str(Path(found).absolute())
    raise RuntimeMissing(f"Codex was not found: there is none on PATH, and {VARIABLE} is not set. {INSTALL}")


def check_version(told: object, executable: str) -> bool:
    """Refuse a Codex that is too old, by what it tells of itself; false when that has no version.

    It is the ``userAgent`` of the answer to ``initialize``, its only version field, or the answer to ``--version``.
    Builds from source call themselves 0.0.0: who makes one knows what it is. Raises
    :class:`~sayagain.errors.RuntimeMissing`.
    """
    match = _VERSION.search(told) if isinstance(told, str) else None
    if match is None:
        return False
    version = tuple(map(int, match.groups()))
    if version != (0, 0, 0) and version < MINIMUM:
        shown, needed = ".".join(map(str, version)), ".".join(map(str, MINIMUM))
        raise RuntimeMissing(f"{executable} is Codex {shown}; {needed} or newer is needed. {INSTALL}")
    return True
