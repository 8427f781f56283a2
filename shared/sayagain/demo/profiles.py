"""What the demo needs to know of a runtime: an environment, a stand-in for its model, and its own record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from sayagain.testing.codex_config import stand_in_config
from sayagain.testing.stand_in import StandIn

__all__ = ["PROFILES", "DemoProfile"]

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class DemoProfile:
    """A runtime that the demo can show.

    ``serve`` starts a stand-in for the model that answers a prompt with a reply. ``environment`` gives the agent's
    whole environment, for a folder and the stand-in's URL: nothing of the user's is read, nothing leaves the machine.
    ``rows`` is what the runtime itself has written of a session below the folder, read without any code of the agent;
    ``message_id`` is the id of a row that stores a user message, and ``is_reply`` whether a row stores the model's.
    """

    title: str
    serve: Callable[[str, str], AbstractAsyncContextManager[StandIn[Any]]]
    environment: Callable[[Path, str], dict[str, str]]
    rows: Callable[[Path, str], Sequence[Row]]
    message_id: Callable[[Row], str | None]
    is_reply: Callable[[Row], bool]

    def stored(self, folder: Path, session_id: str, message_id: str) -> int:
        """How often the user message is stored."""
        return sum(self.message_id(row) == message_id for row in self.rows(folder, session_id))

    def has_reply(self, folder: Path, session_id: str, text: str) -> bool:
        """Whether the model's answer is stored."""
        return any(self.is_reply(row) and text in json.dumps(row) for row in self.rows(folder, session_id))


def _json_lines(paths: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                # The last line may be half written at this moment.
                continue
    return rows


def _user_environment(*private: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(private)}


# Claude Code.


def _serve_claude(prompt: str, reply: str) -> AbstractAsyncContextManager[StandIn[Any]]:
    from sayagain.testing.messages_api import serve_messages
    from sayagain.testing.messages_script import Script, Step, Text

    return serve_messages(Script([Step(prompt, [[Text(reply)]])]))


def _claude_environment(folder: Path, url: str) -> dict[str, str]:
    return _user_environment("ANTHROPIC_", "CLAUDE") | {
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "demo",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _claude_rows(folder: Path, session_id: str) -> list[Row]:
    return _json_lines((folder / "config" / "projects").glob(f"*/{session_id}.jsonl"))


# Codex.


def _serve_codex(prompt: str, reply: str) -> AbstractAsyncContextManager[StandIn[Any]]:
    from sayagain.testing.responses_api import serve_responses
    from sayagain.testing.responses_script import Script, Step, Text

    return serve_responses(Script([Step(prompt, [[Text(reply)]])]))


def _codex_environment(folder: Path, url: str) -> dict[str, str]:
    for path in (folder / "home", folder / "codex"):
        path.mkdir()
    (folder / "codex" / "config.toml").write_text(stand_in_config(url), encoding="utf-8")
    env = _user_environment("OPENAI_", "CODEX_")
    if (chosen := os.environ.get("CODEX_PATH")) is not None:
        env["CODEX_PATH"] = chosen
    return env | {
        # Skills are read from the home folder, too.
        "HOME": str(folder / "home"),
        "CODEX_HOME": str(folder / "codex"),
    }


def _codex_rows(folder: Path, session_id: str) -> list[Row]:
    rows = _json_lines((folder / "codex" / "sessions").glob(f"**/rollout-*-{session_id}*.jsonl"))
    # What the client is shown later; each has a twin, without the client's id, for the model.
    payloads = (cast("Row", row["payload"]) for row in rows if row.get("type") == "event_msg")
    return [payload["item"] for payload in payloads if "item" in payload]


def _codex_message_id(row: Row) -> str | None:
    return row.get("client_id") if row.get("type") == "UserMessage" else None


PROFILES: Final[Mapping[str, DemoProfile]] = {
    "claude": DemoProfile(
        title="Claude Code",
        serve=_serve_claude,
        environment=_claude_environment,
        rows=_claude_rows,
        message_id=lambda row: row.get("uuid"),
        is_reply=lambda row: row.get("type") == "assistant",
    ),
    "codex": DemoProfile(
        title="Codex",
        serve=_serve_codex,
        environment=_codex_environment,
        rows=_codex_rows,
        message_id=_codex_message_id,
        is_reply=lambda row: row.get("type") == "AgentMessage",
    ),
}
"""By the name of the command that serves the runtime."""
