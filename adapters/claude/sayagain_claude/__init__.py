"""The Claude Code runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sayagain.runtime.seam import Runtime

__all__ = ["create_runtime", "login"]


def create_runtime() -> Runtime:
    """The entry point in the group ``sayagain.runtimes``."""
    from sayagain_claude.runtime import ClaudeRuntime

    return ClaudeRuntime()


def login(arguments: Sequence[str]) -> int:
    """``claude auth login`` on this terminal, with the arguments of an auth method; its exit status."""
    import os
    import subprocess

    from sayagain_claude.executable import find_executable

    return subprocess.run([find_executable(os.environ), "auth", "login", *arguments], check=False).returncode
