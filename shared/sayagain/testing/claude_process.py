"""A Claude Code process under a recorder's hand: its stream-json frames and the control protocol."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
from anyio.abc import Process

from sayagain.testing.recorded_process import Message, RecordedProcess, RecordingPlace, executable_in

__all__ = ["ClaudeProcess", "Frame", "Permissions", "Place", "allow", "deny", "find_claude", "run_claude"]

Frame: TypeAlias = Message
Permissions: TypeAlias = Callable[[Frame], Mapping[str, Any] | None]
"""From a ``can_use_tool`` request to its response; ``None`` leaves it unanswered."""


def find_claude() -> Path:
    """The executable in the SDK's wheel, found without importing the SDK; raises :class:`FileNotFoundError`."""
    return executable_in("claude_agent_sdk", "_bundled", "claude")


def allow(request: Frame) -> Mapping[str, Any]:
    """Allow the call as it was asked."""
    return {"behavior": "allow", "updatedInput": request["input"]}


def deny(request: Frame) -> Mapping[str, Any]:
    """Reject the call, as a user does who presses the button."""
    return {"behavior": "deny", "message": "Rejected by the user.", "toolUseID": request["tool_use_id"]}


class Place(RecordingPlace):
    """The folders of one recording, all under one fresh folder."""

    @property
    def config(self) -> Path:
        return self.root / "home" / ".claude"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"


class ClaudeProcess(RecordedProcess):
    """Prompts and control requests; ``config`` is the folder in which it keeps its transcripts."""

    def __init__(self, process: Process, permissions: Permissions, config: Path) -> None:
        super().__init__(process)
        self.permissions = permissions
        self.config = config

    def answer(self, message: Frame) -> Frame | None:
        if message["type"] != "control_request" or message["request"]["subtype"] != "can_use_tool":
            return None
        answer = self.permissions(message["request"])
        if answer is None:
            return None
        response = {"subtype": "success", "request_id": message["request_id"], "response": answer}
        return {"type": "control_response", "response": response}

    async def prompt(self, content: str | Sequence[Mapping[str, Any]], **more: Any) -> str:
        """Send a prompt under a fresh id; the id."""
        prompt_id = str(uuid.uuid4())
        blocks = [{"text": content}] if isinstance(content, str) else content
        self.prompts[prompt_id] = "".join(str(block.get("text", "")) for block in blocks)
        message = {"role": "user", "content": content}
        frame = {"type": "user", "uuid": prompt_id, "message": message, "parent_tool_use_id": None, "session_id": ""}
        await self.send({**frame, **more})
        return prompt_id

    async def ask(self, content: str | Sequence[Mapping[str, Any]]) -> str:
        """Send a prompt and wait until the session is idle again."""
        mark = len(self.log)
        prompt_id = await self.prompt(content)
        await self.idle(mark)
        return prompt_id

    async def control(self, subtype: str, **fields: Any) -> Frame:
        """Send a control request; its response (the ``response`` object of the frame)."""
        request_id = f"ours-{next(self.numbers)}"
        mark = len(self.log)
        await self.send(
            {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
        )
        frame = await self.until(
            lambda frame: frame["type"] == "control_response" and frame["response"]["request_id"] == request_id, mark
        )
        return cast("Frame", frame["response"])

    async def idle(self, since: int = 0) -> None:
        """Wait for the session to be idle: its authoritative sign that a turn is over."""
        await self.until(lambda f: f.get("subtype") == "session_state_changed" and f["state"] == "idle", since)

    async def file(self, path: Path) -> None:
        await self.until(lambda frame: frame["type"] == "assistant")
        await super().file(path)

    async def stored(self, text: str) -> None:
        """Wait until a row with ``text`` in it stands in a transcript: rows are written a moment after their frames
        (measured), and a kill between the two takes them away."""
        await self.sees(
            lambda: any(text in path.read_text(encoding="utf-8") for path in self.config.glob("projects/*/*.jsonl"))
        )


@asynccontextmanager
async def run_claude(
    place: Place,
    url: str,
    *,
    session: Sequence[str],
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    permissions: Permissions = allow,
) -> AsyncGenerator[ClaudeProcess]:
    """Start the runtime in ``place`` against the service at ``url``; ``session`` names the session in its arguments."""
    command = [
        str(find_claude()),
        *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
        *("--include-partial-messages", "--session-mirror", "--permission-prompt-tool", "stdio"),
        *session,
        *arguments,
    ]
    async with await anyio.open_process(
        command, cwd=place.project, env=_environment(place, url, environment or {}), stderr=None
    ) as process:
        claude = ClaudeProcess(process, permissions, place.config)
        async with claude.running():
            await claude.control("initialize", hooks=None)
            yield claude


def _environment(place: Place, url: str, more: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the recording machine but its search path."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(place.home),
        "TMPDIR": str(place.scratch),
        "CLAUDE_CODE_TMPDIR": str(place.scratch),
        "CLAUDE_CONFIG_DIR": str(place.config),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_EAGER_FLUSH": "1",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "IS_SANDBOX": "1",
        **more,
    }
