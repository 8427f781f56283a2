"""Agents in front of Claude Code: a Messages API on loopback, and an environment in which nothing else is reached."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sayagain.check.model import Feature
from sayagain.check.profiles import Profile, ServiceProfile, model_reply
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_request import Asked
from sayagain.testing.messages_script import Reply, Text, ToolUse

__all__ = ["claude_profile"]

_PRIVATE: Final = ("ANTHROPIC_", "CLAUDE")

_SETTINGS: Final = '{"permissions": {"defaultMode": "default"}}'
"""Some agents choose a mode that asks nobody where this is not set."""


@asynccontextmanager
async def claude_profile(folder: Path, patience: float) -> AsyncGenerator[Profile]:
    """A service and an environment; works for every agent that runs ``claude`` with the environment it gets."""
    cwd = folder / "project"
    for path in (cwd, folder / "home", folder / "config"):
        path.mkdir()
    (folder / "config" / "settings.json").write_text(_SETTINGS, encoding="utf-8")
    async with serve_messages(_reply) as service:
        env = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
        env |= {
            "HOME": str(folder / "home"),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            "ANTHROPIC_BASE_URL": service.url,
            "ANTHROPIC_API_KEY": "stand-in",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "IS_SANDBOX": "1",
        }
        yield ServiceProfile("claude", service, env, cwd, frozenset(Feature) - {Feature.SPOIL}, patience)


def _reply(asked: Asked) -> Reply | None:
    return model_reply(asked, Text, delegate=_delegate, ask=_ask)


def _delegate(prompt: str) -> ToolUse:
    arguments = {
        "description": "Work",
        "prompt": prompt,
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    return ToolUse("Agent", arguments)


def _ask(command: str) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "Touch a file"})
