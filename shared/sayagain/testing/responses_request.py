"""What a Responses API request asked, as far as tests look at it.

Codex's own requests need reading with care (measured): the context of a thread (its environment, instructions of the
project, skills) travels as user messages in tags; each prompt is a message of its own, also one that steers or that
follows a failed turn; a subagent's task may be a message of its parent; what the model said and called are items
between them, and tools may be offered by an item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

__all__ = ["Asked", "Kind", "Memory", "ToolResult", "read_request"]

Kind: TypeAlias = Literal["turn", "continuation", "notification", "summary", "side"]
"""``turn``: there is new user text; ``continuation``: only tool results are new; ``notification``: news of a subagent;
``summary``: a compaction asks for its summary; ``side``: asked for another end than a turn."""

_CONTEXT: Final = re.compile(
    r"\A\s*(?:<(?P<tag>[a-z_]+)[ >].*</(?P=tag)>|# AGENTS\.md instructions for .*</INSTRUCTIONS>)\s*\Z", re.DOTALL
)
_SUMMARY: Final = "Another language model started to solve this problem"
"""Begins the message that a compaction leaves; the user messages before it stay, the model's do not."""
_NOTIFICATIONS: Final = ("<subagent_notification>",)
_NEW_TASK: Final = "Message Type: NEW_TASK"
_RESULTS: Final = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_SUMMARY_REQUEST: Final = "You are performing a CONTEXT CHECKPOINT COMPACTION"


@dataclass
class Memory:
    """What earlier requests of a thread had: tells a new prompt from an older one that no model item follows.

    ``known`` are the ids of user messages, ``newest`` the texts of the newest input, ``round`` the round of the newest
    request, and ``base`` the rounds of its turn that a compaction in the middle has taken out of the input.
    """

    known: set[str] = field(default_factory=set[str])
    newest: list[str] = field(default_factory=list[str])
    round: int = 0
    base: int = 0


@dataclass(frozen=True)
class ToolResult:
    """A tool result after the newest calls."""

    tool_use_id: str
    text: str


@dataclass(frozen=True)
class Asked:
    """One ``POST /v1/responses``; no headers are kept.

    ``newest_text`` is the newest user input without the context that the runtime adds (or the newest notification),
    and ``round`` the number of model replies since then. ``inputs`` are all user texts of the request in order,
    without that context. ``items`` is empty unless the service was told to keep them; a script always sees them.
    ``thread_id`` is the runtime's thread, or ``""``; ``tools`` are names, with ``NAMESPACE.`` before those in one.
    """

    index: int
    kind: Kind
    model: str
    newest_text: str
    round: int
    inputs: tuple[str, ...]
    tool_results: tuple[ToolResult, ...]
    tools: tuple[str, ...]
    thread_id: str
    effort: str | None = None
    items: Sequence[Mapping[str, Any]] = ()


def read_request(body: Mapping[str, Any], index: int, memories: dict[str, Memory]) -> Asked:
    """Read one request; ``memories`` are the reader's own, by thread."""
    items = cast("list[dict[str, Any]]", body.get("input") or [])
    metadata = _turn_metadata(body)
    thread_id = str(metadata.get("thread_id") or body.get("prompt_cache_key") or "")
    request_kind = str(metadata.get("request_kind") or "turn")
    memory = memories.setdefault(thread_id, Memory())
    inputs = {str(item.get("id") or text): text for item in items for text in _input_texts(item)}
    rounds, tail = _newest(items)
    notification = _notification(items)
    reasoning = cast("dict[str, Any]", body.get("reasoning") or {})
    kind: Kind
    if request_kind == "compaction" or any(text.startswith(_SUMMARY_REQUEST) for text in inputs.values()):
        kind, newest = "summary", list(inputs.values())[-1:]
    elif request_kind != "turn":
        kind, newest = "side", list(inputs.values())[-1:]
    else:
        fresh = [inputs[key] for key in tail if key not in memory.known]
        if fresh:
            memory.newest, memory.base = fresh, 0
        elif rounds == 0 and memory.newest and _text(items[-1].get("content")).startswith(_SUMMARY):
            memory.base = memory.round + 1
        memory.known |= inputs.keys()
        memory.round = rounds = 0 if notification else memory.base + rounds
        kind = "notification" if notification else "turn" if rounds == 0 else "continuation"
        newest = [notification] if notification else memory.newest
    return Asked(
        index=index,
        kind=kind,
        model=str(body.get("model")),
        newest_text="\n".join(newest),
        round=rounds,
        inputs=tuple(inputs.values()),
        tool_results=_tool_results(items),
        tools=tuple(_tools(body, items)),
        thread_id=thread_id,
        effort=reasoning.get("effort"),
        items=items,
    )


def _turn_metadata(body: Mapping[str, Any]) -> dict[str, Any]:
    """What Codex says of the turn, as JSON in the request's metadata."""
    metadata = cast("dict[str, Any]", body.get("client_metadata") or {})
    try:
        found = json.loads(metadata.get("x-codex-turn-metadata") or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _newest(items: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """The model replies since the newest user input, and the ids of that input.

    A reply is a run of items that the model made; the results of its calls end it.
    """
    rounds, tail, in_reply = 0, list[str](), False
    for item in reversed(items):
        made = _is_made(item)
        if tail and made:
            break
        tail[:0] = [str(item.get("id") or text) for text in _input_texts(item)]
        if tail and item.get("type") == "agent_message":
            break  # what stands before a subagent's task was said to its parent
        rounds += made and not in_reply
        in_reply = made
    return rounds, tail


def _is_made(item: Mapping[str, Any]) -> bool:
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item.get("role") == "assistant"
    return kind in {"reasoning", "compaction"} or kind.endswith("_call")


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if "text" in block)


def _input_texts(item: Mapping[str, Any]) -> list[str]:
    if item.get("type") == "agent_message":
        blocks = cast("list[dict[str, Any]]", item.get("content") or [])
        task = any(_NEW_TASK in str(block.get("text", "")) for block in blocks)
        return [str(block["encrypted_content"]) for block in blocks if task and "encrypted_content" in block]
    if item.get("type", "message") == "message" and item.get("role") == "user":
        text = _text(item.get("content"))
        return [text] if text and not text.startswith(_SUMMARY) and not _CONTEXT.match(text) else []
    return []


def _notification(items: Sequence[Mapping[str, Any]]) -> str:
    """The notification that is all that the model has not yet answered, or ``""``."""
    found = ""
    for item in reversed(items):
        if _is_made(item):
            break
        if item.get("type") in _RESULTS or _input_texts(item):
            return ""
        text = _text(item.get("content"))
        if not found and (item.get("type") == "agent_message" or text.startswith(_NOTIFICATIONS)):
            found = text
    return found


def _tool_results(items: Sequence[Mapping[str, Any]]) -> tuple[ToolResult, ...]:
    found: list[ToolResult] = []
    for item in reversed(items):
        if item.get("type") not in _RESULTS:
            break
        found.insert(0, ToolResult(str(item.get("call_id")), _text(item.get("output"))))
    return tuple(found)


def _tools(body: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    offered = [*cast("list[dict[str, Any]]", body.get("tools") or [])]
    for item in items:
        if item.get("type") == "additional_tools":
            offered += cast("list[dict[str, Any]]", item.get("tools") or [])
    for tool in offered:
        if tool.get("type") == "namespace":
            yield from (f"{tool['name']}.{inner['name']}" for inner in cast("list[dict[str, Any]]", tool["tools"]))
        else:
            yield str(tool.get("name") or tool.get("type"))
