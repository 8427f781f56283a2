"""The Codex runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sayagain.runtime.seam import Runtime

__all__ = ["create_runtime", "login"]


def create_runtime() -> Runtime:
    """The entry point in the group ``sayagain.runtimes``."""
    import os
    from functools import partial

    from sayagain.runtime.lazy import LazyRuntime
    from sayagain_codex.about import CAPABILITIES, NAME, TITLE
    from sayagain_codex.auth import auth_methods
    from sayagain_codex.launch import Launcher

    launcher = Launcher(os.environ)

    def load() -> Runtime:
        from sayagain_codex.runtime import CodexRuntime

        return CodexRuntime(launcher=launcher)

    return LazyRuntime(NAME, TITLE, CAPABILITIES, partial(auth_methods, os.environ), load, ahead=launcher)


def login(arguments: Sequence[str]) -> int:
    """``codex login`` on this terminal, with the arguments of an auth method; its exit status."""
    import os
    import subprocess

    from sayagain_codex.executable import find_executable

    return subprocess.run([find_executable(os.environ), "login", *arguments], check=False).returncode
