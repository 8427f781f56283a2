"""From a reply to the server-sent events of the Responses API, as Codex takes them (measured). No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sayagain.testing.responses_script import (
    ApiError,
    Cut,
    Hold,
    Item,
    Reasoning,
    Reply,
    Stop,
    Text,
    ToolUse,
    Usage,
    WebSearch,
)
from sayagain.testing.stand_in_script import Close, Piece, Wait, chunks, encode_event

__all__ = ["error_body", "stream_reply"]

_DEFAULT_USAGE = Usage(input_tokens=12, output_tokens=7)


def error_body(error: ApiError) -> dict[str, Any]:
    """The body of an HTTP error; Codex looks at ``type`` for some errors and at ``code`` for others."""
    return {"error": {"type": error.type, "code": error.type, "message": error.message}}


def stream_reply(reply: Reply, response_id: str, new_id: Callable[[str], str]) -> Iterator[Piece]:
    """The streamed form of a reply, with the waits and the cut where the script has them."""
    stream = _Stream(response_id, new_id)
    yield stream.event("response.created", response=stream.response("in_progress"))
    for part in reply:
        if not isinstance(part, (Text, Hold, Cut, Usage)) or (isinstance(part, Text) and part.phase != stream.phase):
            yield from stream.end_message()
        match part:
            case Text():
                yield from stream.text(part)
            case Reasoning():
                yield from stream.reasoning(part)
            case ToolUse():
                yield from stream.tool_use(part)
            case WebSearch():
                yield from stream.web_search(part)
            case Item():
                item = dict(part.item)
                item.setdefault("id", new_id("item"))
                yield from stream.whole(item)
            case Hold():
                yield Wait(part.name)
            case ApiError():
                error = {"code": part.type, "message": part.message}
                yield stream.event("response.failed", response={**stream.response("failed"), "error": error})
                return
            case Cut():
                yield Close()
                return
            case Stop() | Usage():
                pass
    yield from stream.end_message()
    usage = _usage(next((part for part in reply if isinstance(part, Usage)), _DEFAULT_USAGE))
    stop = next((part for part in reply if isinstance(part, Stop)), None)
    if stop is None:
        yield stream.event("response.completed", response={**stream.response("completed"), "usage": usage})
        return
    ended = {**stream.response("incomplete"), "usage": usage, "incomplete_details": {"reason": stop.reason}}
    yield stream.event("response.incomplete", response=ended)


class _Stream:
    """Where a response is: the number of events and of items, and the message that is open."""

    def __init__(self, response_id: str, new_id: Callable[[str], str]) -> None:
        self._response_id = response_id
        self._new_id = new_id
        self._sequence = -1
        self._index = -1
        self._message_id: str | None = None
        self._text = ""
        self.phase: str | None = None

    def event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return encode_event({"type": kind, "sequence_number": self._sequence, **fields})

    def response(self, status: str) -> dict[str, Any]:
        return {"id": self._response_id, "object": "response", "status": status, "output": []}

    def text(self, part: Text) -> Iterator[Piece]:
        if self._message_id is None:
            self._message_id, self._text, self.phase = self._new_id("msg"), "", part.phase
            yield self._added(self._message("in_progress", []))
            yield self._of_item("response.content_part.added", self._message_id, content_index=0, part=_output_text(""))
        for piece in chunks(part.text, part.chunk):
            if part.gate is not None:
                yield Wait(part.gate, step=True)
            yield self._of_item("response.output_text.delta", self._message_id, content_index=0, delta=piece)
        self._text += part.text

    def end_message(self) -> Iterator[Piece]:
        """End the message if one is open."""
        if self._message_id is None:
            return
        yield self._of_item("response.output_text.done", self._message_id, content_index=0, text=self._text)
        part = _output_text(self._text)
        yield self._of_item("response.content_part.done", self._message_id, content_index=0, part=part)
        yield self._done(self._message("completed", [part]))
        self._message_id, self.phase = None, None

    def reasoning(self, part: Reasoning) -> Iterator[Piece]:
        item_id = self._new_id("rs")
        item: dict[str, Any] = {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": None}
        yield self._added(item)
        for number, text in enumerate(part.summary):
            where = {"summary_index": number}
            empty, full = ({"type": "summary_text", "text": shown} for shown in ("", text))
            yield self._of_item("response.reasoning_summary_part.added", item_id, **where, part=empty)
            for piece in chunks(text, part.chunk):
                yield self._of_item("response.reasoning_summary_text.delta", item_id, **where, delta=piece)
            yield self._of_item("response.reasoning_summary_text.done", item_id, **where, text=text)
            yield self._of_item("response.reasoning_summary_part.done", item_id, **where, part=full)
        for number, text in enumerate(part.content):
            for piece in chunks(text, part.chunk):
                yield self._of_item("response.reasoning_text.delta", item_id, content_index=number, delta=piece)
            yield self._of_item("response.reasoning_text.done", item_id, content_index=number, text=text)
        summary = [{"type": "summary_text", "text": text} for text in part.summary]
        content = [{"type": "reasoning_text", "text": text} for text in part.content]
        yield self._done({**item, "summary": summary, "content": content})

    def tool_use(self, part: ToolUse) -> Iterator[Piece]:
        call = {"call_id": part.id or self._new_id("call"), "name": part.name, "status": "completed"}
        if part.namespace is not None:
            call["namespace"] = part.namespace
        if isinstance(part.input, str):
            kind, name, text = "custom_tool_call", "input", part.input
            events = "response.custom_tool_call_input"
        else:
            kind, name, text = "function_call", "arguments", json.dumps(part.input, ensure_ascii=False)
            events = "response.function_call_arguments"
        item_id = self._new_id("ctc" if kind == "custom_tool_call" else "fc")
        item = {"type": kind, "id": item_id, **call}
        yield self._added({**item, "status": "in_progress", name: ""})
        for piece in chunks(text, part.chunk):
            yield self._of_item(f"{events}.delta", item_id, delta=piece)
        yield self._of_item(f"{events}.done", item_id, **{name: text})
        yield self._done({**item, name: text})

    def web_search(self, part: WebSearch) -> Iterator[Piece]:
        item_id = self._new_id("ws")
        item: dict[str, Any] = {"type": "web_search_call", "id": item_id, "status": "in_progress"}
        yield self._added(item)
        for stage in ("in_progress", "searching", "completed"):
            yield self._of_item(f"response.web_search_call.{stage}", item_id)
        yield self._done({**item, "status": "completed", "action": {"type": "search", "query": part.query}})

    def whole(self, item: Mapping[str, Any]) -> Iterator[Piece]:
        yield self._added(item)
        yield self._done(item)

    def _message(self, status: str, content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        phase = {} if self.phase is None else {"phase": self.phase}
        about = {"type": "message", "id": self._message_id, "role": "assistant", "status": status}
        return {**about, "content": content, **phase}

    def _added(self, item: Mapping[str, Any]) -> bytes:
        self._index += 1
        return self.event("response.output_item.added", output_index=self._index, item=item)

    def _done(self, item: Mapping[str, Any]) -> bytes:
        return self.event("response.output_item.done", output_index=self._index, item=item)

    def _of_item(self, kind: str, item_id: str, **fields: Any) -> bytes:
        return self.event(kind, item_id=item_id, output_index=self._index, **fields)


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
