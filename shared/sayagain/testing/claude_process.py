"""A Claude Code process under a recorder's hand: its stream-json frames in order, and the control protocol.

This drives the runtime as plainly as it goes, on purpose without the adapter: a recording made through the adapter
would only show what the adapter already knows.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
from anyio.abc import ByteReceiveStream, Process

__all__ = ["ClaudeProcess", "Frame", "Permissions", "Place", "allow", "deny", "find_claude", "run_claude"]

Frame: TypeAlias = Mapping[str, Any]
Permissions: TypeAlias = Callable[[Frame], Mapping[str, Any] | None]
"""From a ``can_use_tool`` request to its response; ``None`` leaves it unanswered."""

_PATIENCE: Final = 60.0
"""Seconds until a recording that waits for a frame is given up; no frame of a good one comes near it."""

_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks for a file: a tool tells nobody that it runs."""


def find_claude() -> Path:
    """The executable in the SDK's wheel, found without importing the SDK; raises :class:`FileNotFoundError`."""
    spec = find_spec("claude_agent_sdk")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder, "_bundled", "claude")).is_file():
            return path
    raise FileNotFoundError("no bundled claude executable: is claude-agent-sdk installed?")


def allow(request: Frame) -> Mapping[str, Any]:
    """Allow the call as it was asked."""
    return {"behavior": "allow", "updatedInput": request["input"]}


def deny(request: Frame) -> Mapping[str, Any]:
    """Reject the call, as a user does who presses the button."""
    return {"behavior": "deny", "message": "Rejected by the user.", "toolUseID": request["tool_use_id"]}


@dataclass(frozen=True)
class Place:
    """The folders of one recording, all under one fresh folder."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "home" / "project"

    @property
    def config(self) -> Path:
        return self.root / "home" / ".claude"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"


@dataclass
class ClaudeProcess:
    """What was said both ways, and ways to say more and to wait for an answer."""

    process: Process
    permissions: Permissions
    config: Path
    log: list[tuple[str, Frame]] = field(default_factory=list[tuple[str, Frame]])
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _news: anyio.Event = field(default_factory=anyio.Event)
    _ended: bool = False

    async def send(self, frame: Frame) -> None:
        """Write one line."""
        assert self.process.stdin is not None
        self.log.append(("in", frame))
        await self.process.stdin.send(json.dumps(frame).encode() + b"\n")

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
        request_id = f"ours-{next(self._numbers)}"
        mark = len(self.log)
        await self.send(
            {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
        )
        frame = await self.until(
            lambda frame: frame["type"] == "control_response" and frame["response"]["request_id"] == request_id, mark
        )
        return cast("Frame", frame["response"])

    async def until(self, wanted: Callable[[Frame], bool], since: int = 0) -> Frame:
        """The first frame of the runtime at or after ``since`` in the log that is ``wanted``."""
        with anyio.fail_after(_PATIENCE):
            position = since
            while True:
                while position < len(self.log):
                    direction, frame = self.log[position]
                    position += 1
                    if direction == "out" and wanted(frame):
                        return frame
                if self._ended:
                    raise EOFError("the runtime ended before the frame came")
                await self._news.wait()

    async def idle(self, since: int = 0) -> None:
        """Wait for the session to be idle: its authoritative sign that a turn is over."""
        await self.until(lambda f: f.get("subtype") == "session_state_changed" and f["state"] == "idle", since)

    async def file(self, path: Path) -> None:
        """Wait until a tool has made the file; asked for at each frame and, between them, ever so often."""
        await self.until(lambda frame: frame["type"] == "assistant")
        with anyio.fail_after(_PATIENCE):
            while not await anyio.Path(path).exists():
                with anyio.move_on_after(_LOOK_AGAIN):
                    await self._news.wait()

    async def stored(self, text: str) -> None:
        """Wait until a row with ``text`` in it stands in a transcript: rows are written a moment after their frames
        (measured), and a kill between the two takes them away."""
        with anyio.fail_after(_PATIENCE):
            while not any(text in path.read_text(encoding="utf-8") for path in self.config.glob("projects/*/*.jsonl")):
                with anyio.move_on_after(_LOOK_AGAIN):
                    await self._news.wait()

    async def finish(self) -> None:
        """Close standard input and wait for the end."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with anyio.fail_after(_PATIENCE):
            await self.process.wait()

    async def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def read(self) -> None:
        """Take every frame until the end, and answer permission requests."""
        assert self.process.stdout is not None
        async for line in _lines(self.process.stdout):
            frame = cast("dict[str, Any]", json.loads(line))
            self.log.append(("out", frame))
            if frame["type"] == "control_request" and frame["request"]["subtype"] == "can_use_tool":
                answer = self.permissions(frame["request"])
                if answer is not None:
                    response = {"subtype": "success", "request_id": frame["request_id"], "response": answer}
                    await self.send({"type": "control_response", "response": response})
            self._wake()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    pending = b""
    async for data in stream:
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


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
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claude.read)
            try:
                await claude.control("initialize", hooks=None)
                yield claude
                if process.returncode is None:
                    await claude.finish()
            except Exception as error:  # noqa: BLE001 - raised again below, without a group around it
                failure = error
            finally:
                if process.returncode is None:
                    process.kill()
        if failure is not None:
            raise failure


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
