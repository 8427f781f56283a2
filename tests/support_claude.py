"""Our agent in front of the real Claude Code, over real pipes, with the stand-in model service."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from sayagain.testing.messages_api import MessagesService
from support_process import AgentProcess, own_code, start_agent

__all__ = ["AgentProcess", "agent_process", "claude_environment", "rows", "stored_ids", "transcript"]


def claude_environment(folder: Path, service: MessagesService | None, **extra: str) -> dict[str, str]:
    """An environment in which nothing leaves the machine and nothing of the user's is read."""
    env = {
        **own_code(),
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",
    }
    if service is not None:
        env |= {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "dummy"}
    for name in ("home", "config", "project"):
        (folder / name).mkdir(exist_ok=True)
    return env | extra


def agent_process(env: Mapping[str, str], *arguments: str) -> AbstractAsyncContextManager[AgentProcess]:
    """Start ``sayagain claude``; it is killed at the end if it still runs."""
    return start_agent("claude", env, *arguments)


def transcript(env: Mapping[str, str], session_id: str) -> Path:
    """The session's raw file."""
    (path,) = Path(env["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{session_id}.jsonl")
    return path


def rows(env: Mapping[str, str], session_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in transcript(env, session_id).read_text(encoding="utf-8").splitlines()]


def stored_ids(env: Mapping[str, str], session_id: str) -> list[str]:
    """The ids of stored user messages, read by the tests' own eyes, repeats included."""
    return [
        row["uuid"]
        for row in rows(env, session_id)
        if row["type"] == "user"
        and not any(isinstance(b, dict) and b.get("type") == "tool_result" for b in row["message"]["content"])
    ]
