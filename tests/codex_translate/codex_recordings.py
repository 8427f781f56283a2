"""The recordings in ``fixtures/codex`` as inputs of the translators."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sayagain.runtime.events import RuntimeEvent
from sayagain.runtime.history import HistoryEntry
from sayagain_codex.app_server import AppServerError
from sayagain_codex.history import history
from sayagain_codex.translate.live import LiveTranslator
from support_codex import AllListed
from support_recordings import BaseRecording, fixtures_of, found_in

__all__ = ["FIXTURES", "Recording", "StoredClient", "recordings"]

FIXTURES = fixtures_of("codex", "SAYAGAIN_CODEX_RECORDINGS")


class StoredClient(AllListed):
    """Answers what a recording's fresh process answered; remembers what was asked."""

    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        self._exchanges = exchanges
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def request(self, method: str, params: Mapping[str, Any], *, patience: float | None = None) -> Any:
        self.asked.append((method, dict(params)))
        if method in ("thread/resume", "thread/unsubscribe"):
            return {}
        names = ["threadId", "ancestorThreadId", "cursor"]
        for exchange in self._exchanges:
            recorded = exchange["params"]
            if exchange["method"] == method and all(recorded.get(name) == params.get(name) for name in names):
                if "error" in exchange:
                    raise AppServerError(exchange["error"]["code"], exchange["error"]["message"])
                result = exchange["result"]
                if params.get("sortDirection") == "desc":
                    result = {**result, "data": result["data"][::-1], "nextCursor": None}
                return result
        raise AppServerError(-32600, f"not recorded: {method}")


class Recording(BaseRecording):
    @property
    def session_id(self) -> str:
        return self.about["threadId"]

    def thread(self) -> dict[str, Any]:
        return json.loads((self.folder / "thread.json").read_text(encoding="utf-8"))["thread"]

    def messages(self) -> Iterator[dict[str, Any]]:
        return self.lines("messages.jsonl")

    def exchanges(self) -> list[dict[str, Any]]:
        return list(self.lines("items.jsonl"))

    def requests(self) -> list[dict[str, Any]]:
        """What the runtime asked."""
        said = [record["message"] for record in self.messages() if record["direction"] == "out"]
        return [message for message in said if "method" in message and "id" in message]

    def live(self) -> list[RuntimeEvent]:
        """The events of all processes of the recording, as a session sees them: a process that ends closes calls."""
        translator = LiveTranslator(self.session_id, self.cwd())
        events: list[RuntimeEvent] = []
        process = 1
        for record in self.messages():
            if record["process"] != process:
                process = record["process"]
                events += translator.close_calls("failed")
            message = record["message"]
            if record["direction"] == "out" and "method" in message and "id" not in message:
                events += translator.notification(message["method"], message.get("params") or {})
        return events + translator.close_calls("failed")

    def cwd(self) -> str:
        return str(self.thread().get("cwd") or "/")

    def client(self) -> StoredClient:
        return StoredClient(self.exchanges())

    async def replayed(self) -> list[HistoryEntry]:
        batches = history(self.client(), self.thread(), self.session_id, live=False)
        return [entry async for batch in batches for entry in batch]


def recordings() -> list[Recording]:
    return found_in(FIXTURES, Recording)
