"""Agents in front of Codex: a Responses API on loopback, and a configuration in which nothing else is reached."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sayagain.check.model import Feature
from sayagain.check.profiles import Profile, ServiceProfile, model_reply
from sayagain.testing.codex_config import stand_in_config
from sayagain.testing.responses_api import serve_responses
from sayagain.testing.responses_request import Asked
from sayagain.testing.responses_script import Reply, Text, ToolUse, exec_command, spawn_agent

__all__ = ["codex_profile"]

_PRIVATE: Final = ("OPENAI_", "CODEX_")

_ASKING: Final = 'approval_policy = "on-request"\nsandbox_mode = "read-only"\n'


@asynccontextmanager
async def codex_profile(folder: Path, patience: float) -> AsyncGenerator[Profile]:
    """A service and an environment; works for every agent that runs ``codex`` with the environment it gets."""
    cwd = folder / "project"
    for path in (cwd, folder / "home", folder / "codex"):
        path.mkdir()
    async with serve_responses(_reply) as service:
        (folder / "codex" / "config.toml").write_text(stand_in_config(service.url, more=_ASKING), encoding="utf-8")
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE) or name == "CODEX_PATH"
        }
        env |= {
            "HOME": str(folder / "home"),
            "CODEX_HOME": str(folder / "codex"),
            # Of codex-acp, whose own choice is a mode that asks nobody.
            "INITIAL_AGENT_MODE": "read-only",
        }
        yield ServiceProfile("codex", service, env, cwd, frozenset(Feature) - {Feature.SPOIL}, patience)


def _reply(asked: Asked) -> Reply | None:
    return model_reply(asked, Text, delegate=spawn_agent, ask=_ask)


def _ask(command: str) -> ToolUse:
    return exec_command(command, sandbox_permissions="require_escalated", justification="May I?")
