"""Where our own programs keep what no runtime keeps for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sayagain.errors import RuntimeFault

__all__ = ["STATE_DIR_VARIABLE", "state_dir"]

STATE_DIR_VARIABLE: Final = "SAYAGAIN_STATE_DIR"


def state_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for our state, not created here: ``SAYAGAIN_STATE_DIR``, else the platform's place for such.

    A relative value is an error (:class:`~sayagain.errors.RuntimeFault`), not a folder below wherever we were started.
    """
    env = os.environ if env is None else env
    if given := env.get(STATE_DIR_VARIABLE):
        folder = Path(given)
        if not folder.is_absolute():
            raise RuntimeFault(f"{STATE_DIR_VARIABLE} must be an absolute path")
        return folder
    xdg = Path(env.get("XDG_STATE_HOME", ""))
    if xdg.is_absolute():  # the XDG specification has relative ones ignored
        return xdg / "sayagain"
    try:
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    except RuntimeError as error:
        raise RuntimeFault(f"No home directory: set {STATE_DIR_VARIABLE} to a folder of your own") from error
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "sayagain"
    if sys.platform == "win32":
        return Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local") / "sayagain"
    return home / ".local" / "state" / "sayagain"
