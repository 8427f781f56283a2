"""Agents in front of Claude Code: a Messages API on loopback, and an environment in which nothing else is reached."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sayagain.check.model import Feature
from sayagain.check.profiles import STREAMED, Profile, ServiceProfile, asked_for, reported
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_request import Asked
from sayagain.testing.messages_script import Hold, Reply, Text, ToolUse

__all__ = ["claude_profile"]

_PRIVATE: Final = ("ANTHROPIC_", "CLAUDE")

_SETTINGS: Final = '{"permissions": {"defaultMode": "default"}}'
"""Some agents choose a mode that asks nobody where this is not set."""


@asynccontextmanager
async def claude_profile(folder: Path) -> AsyncGenerator[Profile]:
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
        yield ServiceProfile("claude", service, env, cwd, frozenset(Feature) - {Feature.SPOIL})


def _reply(asked: Asked) -> Reply | None:
    if asked.kind not in ("turn", "continuation"):
        return None
    wish, token = asked_for(asked.newest_text)
    match wish, asked.round:
        case "hold", 0:
            return [Text("Working. "), Hold(token), Text("Worked.")]
        case "stream", 0:
            return [Text("".join(STREAMED), chunk=len(STREAMED[0]), gate=token)]
        case "delegate", 0:
            arguments = {
                "description": "Work",
                "prompt": reported(token),
                "subagent_type": "general-purpose",
                "run_in_background": False,
            }
            return [ToolUse("Agent", arguments)]
        case "report", 0:
            return [Text("The subagent did it.")]
        case "ask", 0:
            return [ToolUse("Bash", {"command": f"touch {token}", "description": "Touch a file"})]
        case _:
            return [Text("Done.")]
