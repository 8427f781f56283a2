"""A Codex app-server under a recorder's hand: its messages in order, both ways.

This drives the runtime as plainly as it goes, on purpose without the adapter: a recording made through the adapter
would only show what the adapter already knows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
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

__all__ = [
    "CodexPlace",
    "CodexProcess",
    "Decide",
    "Message",
    "RequestFailed",
    "accept",
    "decide",
    "find_codex",
    "run_codex",
]

Message: TypeAlias = Mapping[str, Any]
Decide: TypeAlias = Callable[[Message], Mapping[str, Any] | None]
"""From a request of the runtime to its result; ``None`` leaves it unanswered."""

_PATIENCE: Final = 60.0
"""Seconds until a recording that waits for a message is given up; none of a good one comes near it."""

_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks for a file: a command tells nobody that it runs."""


class RequestFailed(Exception):
    """The runtime answered with an error: ``error`` as on the wire."""

    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        super().__init__(method, error)
        self.method = method
        self.error = error

    def __str__(self) -> str:
        return f"{self.method}: {self.error.get('message')} ({self.error.get('code')})"


def find_codex() -> Path:
    """The executable in its wheel, found without importing it; raises :class:`FileNotFoundError`."""
    spec = find_spec("codex_cli_bin")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder, "bin", "codex")).is_file():
            return path
    raise FileNotFoundError("no bundled codex executable: is openai-codex-cli-bin installed?")


def decide(decision: str) -> Decide:
    """Answer approvals of commands and files with ``decision``; what else is asked is accepted, or declined."""

    def answer(request: Message) -> Mapping[str, Any]:
        params = request["params"]
        match request["method"]:
            case "mcpServer/elicitation/request":
                action = decision if decision in {"decline", "cancel"} else "accept"
                session = {"persist": "session"} if decision == "acceptForSession" else None
                fields = cast("dict[str, Any]", params.get("requestedSchema") or {}).get("properties", {})
                filled = dict.fromkeys(cast("dict[str, Any]", fields), "red")
                return {"action": action, "content": filled if action == "accept" else None, "_meta": session}
            case "item/tool/call":
                return {"success": True, "contentItems": [{"type": "inputText", "text": "It is open."}]}
            case "item/tool/requestUserInput":
                questions = cast("list[dict[str, Any]]", params["questions"])
                return {"answers": {ask["id"]: {"answers": [ask["options"][0]["label"]]} for ask in questions}}
            case _:
                return {"decision": decision}

    return answer


accept: Final = decide("accept")


@dataclass(frozen=True)
class CodexPlace:
    """The folders of one recording, all under one fresh folder.

    In the temporary folder Codex makes no helper programs, and says so on standard error (measured).
    """

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "home" / "project"

    @property
    def config(self) -> Path:
        return self.root / "home" / ".codex"

    def write(self, url: str, model: str, lines: str = "") -> None:
        """Make the folders, and a configuration that knows no provider but the stand-in at ``url``."""
        for folder in (self.project, self.config):
            folder.mkdir(parents=True, exist_ok=True)
        text = (
            f'model = "{model}"\nmodel_provider = "stand-in"\n{lines}\n[model_providers.stand-in]\nname = "Stand-in"\n'
            f'base_url = "{url}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n'
            "request_max_retries = 1\nstream_max_retries = 1\n"
        )
        (self.config / "config.toml").write_text(text, encoding="utf-8")


@dataclass
class CodexProcess:
    """What was said both ways, and ways to say more and to wait for an answer."""

    process: Process
    decide: Decide
    log: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    thread_id: str = ""
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _news: anyio.Event = field(default_factory=anyio.Event)
    _ended: bool = False

    async def send(self, message: Message) -> None:
        """Write one line."""
        assert self.process.stdin is not None
        self.log.append(("in", message))
        await self.process.stdin.send(json.dumps(message).encode() + b"\n")

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; raises :class:`RequestFailed`."""
        number = next(self._numbers)
        mark = len(self.log)
        await self.send({"id": number, "method": method, "params": params})
        answer = await self.until(lambda m: m.get("id") == number and "method" not in m, mark)
        if "error" in answer:
            raise RequestFailed(method, answer["error"])
        return cast("dict[str, Any]", answer["result"])

    async def prompt(self, content: str | Sequence[Mapping[str, Any]], method: str = "turn/start", **more: Any) -> str:
        """Submit a prompt under a fresh id, by ``turn/start`` or ``turn/steer``; the id of its turn."""
        client_id = str(uuid.uuid4())
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        self.prompts[client_id] = "".join(str(block.get("text", "")) for block in blocks)
        params = {"threadId": self.thread_id, "clientUserMessageId": client_id, "input": blocks, **more}
        result = await self.request(method, **params)
        return str(result["turn"]["id"] if "turn" in result else result["turnId"])

    async def ask(self, content: str | Sequence[Mapping[str, Any]], **more: Any) -> str:
        """Submit a prompt and wait until its turn is over; the turn's id."""
        mark = len(self.log)
        turn_id = await self.prompt(content, **more)
        await self.turn_over(mark)
        return turn_id

    async def turn_over(self, since: int = 0) -> Message:
        """Wait for the end of a turn of the root thread."""
        return await self.until(
            lambda m: m.get("method") == "turn/completed" and m["params"]["threadId"] == self.thread_id, since
        )

    async def until(self, wanted: Callable[[Message], bool], since: int = 0) -> Message:
        """The first message of the runtime at or after ``since`` in the log that is ``wanted``."""
        with anyio.fail_after(_PATIENCE):
            position = since
            while True:
                while position < len(self.log):
                    direction, message = self.log[position]
                    position += 1
                    if direction == "out" and wanted(message):
                        return message
                if self._ended:
                    raise EOFError("the runtime ended before the message came")
                await self._news.wait()

    async def item(self, method: str, kind: str, since: int = 0) -> dict[str, Any]:
        """Wait for ``item/started`` or ``item/completed`` of an item of that kind; the item."""
        found = await self.until(lambda m: m.get("method") == method and m["params"]["item"]["type"] == kind, since)
        return cast("dict[str, Any]", found["params"]["item"])

    async def file(self, path: Path) -> None:
        """Wait until a command has made the file; asked for at each message and, between them, ever so often."""
        with anyio.fail_after(_PATIENCE):
            while not await anyio.Path(path).exists():
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
        """Take every message until the end, and answer the runtime's requests."""
        assert self.process.stdout is not None
        async for line in _lines(self.process.stdout):
            message = cast("dict[str, Any]", json.loads(line))
            self.log.append(("out", message))
            if "method" in message and "id" in message:
                answer = self.decide(message)
                if answer is not None:
                    await self.send({"id": message["id"], "result": answer})
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
async def run_codex(
    place: CodexPlace, *, arguments: Sequence[str] = (), decide: Decide = accept
) -> AsyncGenerator[CodexProcess]:
    """Start the runtime in ``place`` and initialize it; no thread is opened."""
    command = [str(find_codex()), "app-server", *arguments]
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(place.home),
        "CODEX_HOME": str(place.config),
    }
    async with await anyio.open_process(
        command, cwd=place.project, env=environment, stderr=subprocess.DEVNULL
    ) as process:
        codex = CodexProcess(process, decide)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(codex.read)
            try:
                about = {"name": "recorder", "title": "Recorder", "version": "1"}
                await codex.request("initialize", clientInfo=about, capabilities={"experimentalApi": True})
                # The last thing that it says unasked: from here on a recording has one order.
                await codex.until(lambda m: m.get("method") == "remoteControl/status/changed")
                await codex.send({"method": "initialized"})
                yield codex
                if process.returncode is None:
                    await codex.finish()
            except Exception as error:  # noqa: BLE001 - raised again below, without a group around it
                failure = error
            finally:
                if process.returncode is None:
                    process.kill()
        if failure is not None:
            raise failure
