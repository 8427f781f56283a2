"""A Codex app-server under a recorder's hand: its requests, notifications and questions."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
from anyio.abc import Process

from sayagain.testing.codex_config import stand_in_config
from sayagain.testing.recorded_process import Message, RecordedProcess, RecordingPlace, executable_in

__all__ = [
    "CodexPlace",
    "CodexProcess",
    "Decide",
    "RequestFailed",
    "accept",
    "decide",
    "find_codex",
    "run_codex",
]

Decide: TypeAlias = Callable[[Message], Mapping[str, Any] | None]
"""From a request of the runtime to its result; ``None`` leaves it unanswered."""


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
    return executable_in("codex_cli_bin", "bin", "codex")


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


class CodexPlace(RecordingPlace):
    """The folders of one recording, all under one fresh folder.

    In the temporary folder Codex makes no helper programs, and says so on standard error (measured).
    """

    @property
    def config(self) -> Path:
        return self.root / "home" / ".codex"

    def write(self, url: str, model: str, lines: str = "") -> None:
        """Make the folders, and a configuration that knows no provider but the stand-in at ``url``."""
        for folder in (self.project, self.config):
            folder.mkdir(parents=True, exist_ok=True)
        text = stand_in_config(url, model=model, more=lines, retries=1)
        (self.config / "config.toml").write_text(text, encoding="utf-8")


class CodexProcess(RecordedProcess):
    """Requests and prompts; prompts go to the thread ``thread_id``."""

    def __init__(self, process: Process, decide: Decide) -> None:
        super().__init__(process)
        self.decide = decide
        self.thread_id = ""

    def answer(self, message: Message) -> Message | None:
        result = self.decide(message) if "method" in message and "id" in message else None
        return None if result is None else {"id": message["id"], "result": result}

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; raises :class:`RequestFailed`."""
        number = next(self.numbers)
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

    async def item(self, method: str, kind: str, since: int = 0) -> dict[str, Any]:
        """Wait for ``item/started`` or ``item/completed`` of an item of that kind; the item."""
        found = await self.until(lambda m: m.get("method") == method and m["params"]["item"]["type"] == kind, since)
        return cast("dict[str, Any]", found["params"]["item"])


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
        async with codex.running():
            about = {"name": "recorder", "title": "Recorder", "version": "1"}
            await codex.request("initialize", clientInfo=about, capabilities={"experimentalApi": True})
            # The last thing that it says unasked: from here on a recording has one order.
            await codex.until(lambda m: m.get("method") == "remoteControl/status/changed")
            await codex.send({"method": "initialized"})
            yield codex
