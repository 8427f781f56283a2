"""Where a runtime's executable is: the one that the user named, or the one that a Python package carries."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from sayagain.errors import RuntimeMissing

__all__ = ["bundled", "chosen"]


def chosen(env: Mapping[str, str], variable: str) -> str | None:
    """The absolute path of the executable that ``variable`` names; ``None`` when it is not set.

    Raises :class:`~sayagain.errors.RuntimeMissing` when there is none.
    """
    name = env.get(variable)
    if not name:
        return None
    found = shutil.which(name, path=env.get("PATH"))
    if found is None:
        raise RuntimeMissing(f"{variable} names {name}, which is no executable file")
    return str(Path(found).absolute())


def bundled(package: str, folder: str, name: str) -> str | None:
    """The path of the executable ``name`` in a folder of an installed package, which is found and not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / folder / (f"{name}.exe" if sys.platform == "win32" else name)
    return str(path) if os.access(path, os.X_OK) else None
