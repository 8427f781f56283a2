"""From a reply to what goes over the wire: server-sent events, or one whole message. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sayagain.testing.messages_script import ApiError, Cut, Hold, Reply, Stop, Text, Thinking, ToolUse, Usage
from sayagain.testing.stand_in_script import Close, Piece, Wait, chunks, encode_event

__all__ = ["stream_reply", "whole_reply"]


_DEFAULT_USAGE = Usage(input_tokens=12, output_tokens=7)


def stream_reply(reply: Reply, message_id: str, model: str, tool_id: Callable[[], str]) -> Iterator[Piece]:
    """The streamed form of a reply, with the waits and the cut where the script has them."""
    usage = next((part for part in reply if isinstance(part, Usage)), _DEFAULT_USAGE)
    yield encode_event({"type": "message_start", "message": _message(message_id, model, usage)})
    yield encode_event({"type": "ping"})
    index, text_open = -1, False
    for part in reply:
        if text_open and isinstance(part, (Thinking, ToolUse)):
            yield _block_stop(index)
            text_open = False
        match part:
            case Text():
                if not text_open:
                    index, text_open = index + 1, True
                    yield _block_start(index, {"type": "text", "text": ""})
                for piece in chunks(part.text, part.chunk):
                    if part.gate is not None:
                        yield Wait(part.gate, step=True)
                    yield _block_delta(index, {"type": "text_delta", "text": piece})
            case Thinking():
                index += 1
                yield _block_start(index, {"type": "thinking", "thinking": "", "signature": ""})
                for piece in chunks(part.text, part.chunk):
                    yield _block_delta(index, {"type": "thinking_delta", "thinking": piece})
                yield _block_delta(index, {"type": "signature_delta", "signature": part.signature})
                yield _block_stop(index)
            case ToolUse():
                index += 1
                call = {"type": "tool_use", "id": part.id or tool_id(), "name": part.name, "input": dict[str, Any]()}
                yield _block_start(index, call)
                for piece in chunks(json.dumps(part.input, ensure_ascii=False), part.chunk):
                    yield _block_delta(index, {"type": "input_json_delta", "partial_json": piece})
                yield _block_stop(index)
            case Hold():
                yield Wait(part.name)
            case ApiError():
                yield encode_event({"type": "error", "error": {"type": part.type, "message": part.message}})
                yield Close()
                return
            case Cut():
                yield Close()
                return
            case Stop() | Usage():
                pass
    if text_open:
        yield _block_stop(index)
    delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield encode_event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage.output_tokens}})
    yield encode_event({"type": "message_stop"})


def whole_reply(reply: Reply, message_id: str, model: str, tool_id: Callable[[], str]) -> dict[str, Any]:
    """The reply as one message; waits and cuts have no place in it."""
    content: list[dict[str, Any]] = []
    for part in reply:
        match part:
            case Text():
                if content and content[-1]["type"] == "text":
                    content[-1]["text"] += part.text
                else:
                    content.append({"type": "text", "text": part.text})
            case Thinking():
                content.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
            case ToolUse():
                call = {"type": "tool_use", "id": part.id or tool_id(), "name": part.name, "input": dict(part.input)}
                content.append(call)
            case Hold() | Stop() | Usage() | ApiError() | Cut():
                pass
    usage = next((part for part in reply if isinstance(part, Usage)), _DEFAULT_USAGE)
    message = _message(message_id, model, usage)
    message["usage"]["output_tokens"] = usage.output_tokens
    return {**message, "content": content, "stop_reason": _stop_reason(reply)}


def _message(message_id: str, model: str, usage: Usage) -> dict[str, Any]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_creation_input_tokens,
            "cache_read_input_tokens": usage.cache_read_input_tokens,
            "output_tokens": 1,
        },
    }


def _stop_reason(reply: Reply) -> str:
    for part in reply:
        if isinstance(part, Stop):
            return part.reason
    return "tool_use" if any(isinstance(part, ToolUse) for part in reply) else "end_turn"


def _block_start(index: int, block: Mapping[str, Any]) -> bytes:
    return encode_event({"type": "content_block_start", "index": index, "content_block": block})


def _block_delta(index: int, delta: Mapping[str, Any]) -> bytes:
    return encode_event({"type": "content_block_delta", "index": index, "delta": delta})


def _block_stop(index: int) -> bytes:
    return encode_event({"type": "content_block_stop", "index": index})
