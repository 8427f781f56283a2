"""What a Messages API request asked, as far as tests look at it.

Claude Code's own requests need reading with care (measured): reminders travel as text blocks of the user's message; a
prompt after an interrupted tool is merged into the message with that tool's result; a prompt after a failed turn is
merged into the failed prompt's message; a prompt that is folded into a tool loop comes in a frame of words; the end
of work in the background is a reminder and nothing else; titles are asked on the side, without tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

__all__ = ["Asked", "Kind", "ToolResult", "read_request"]

Kind: TypeAlias = Literal["turn", "continuation", "notification", "summary", "side"]
"""``turn``: there is new user text; ``continuation``: only tool results are new; ``notification``: work in the
background ended; ``summary``: a compaction asks for its summary; ``side``: asked without tools, such as a title."""

_REMINDER: Final = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_NOTIFICATION: Final = re.compile(r"<task-notification>.*?</task-notification>", re.DOTALL)
_FOLDED: Final = re.compile(
    r"\AThe user sent a new message while you were working:\n(.*?)(?:\n\nThis is how Claude Code surfaces .*)?\Z",
    re.DOTALL,
)
_SUMMARY_REQUEST: Final = "Your task is to create a detailed summary"
_TOOL_LOADED: Final = "Tool loaded."
"""Goes with the result of a search for tools."""
_OLDER_THAN: Final = ("[Request interrupted by user", "<local-command-", "<command-name>")
"""Beginnings of texts that belong to what came before the newest input, and are merged into its message."""


@dataclass(frozen=True)
class ToolResult:
    """A tool result in the newest message."""

    tool_use_id: str
    text: str
    is_error: bool


@dataclass(frozen=True)
class Asked:
    """One ``POST /v1/messages``; no headers are kept.

    ``newest_text`` is the newest user input without reminders and interrupt markers (or the newest notification), and
    ``round`` the number of model messages since then. ``messages`` is empty unless the service was told to keep them;
    a script always sees them. ``session_id`` is what the runtime gave as metadata, or ``""``.
    """

    index: int
    kind: Kind
    model: str
    stream: bool
    newest_text: str
    round: int
    roles: tuple[str, ...]
    tool_results: tuple[ToolResult, ...]
    tools: tuple[str, ...]
    session_id: str
    messages: Sequence[Mapping[str, Any]] = ()


def read_request(body: Mapping[str, Any], index: int, seen: dict[str, list[list[str]]]) -> Asked:
    """Read one request; ``seen`` is the reader's memory of the newest message of each session.

    The memory tells a new prompt from an older one that the runtime merged into the same message.
    """
    messages = cast("list[dict[str, Any]]", body.get("messages") or [])
    session_id = _session_id(body)
    rounds = 0
    texts: list[str] = []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            rounds += 1
        elif message.get("role") == "user" and (texts := _input_texts(message)):
            break
    newest = "\n".join(_new_texts(texts, seen.setdefault(session_id, [])))
    notification = _notification(messages)
    tools = tuple(str(tool.get("name")) for tool in cast("list[dict[str, Any]]", body.get("tools") or []))
    return Asked(
        index=index,
        kind=_kind(newest, rounds, tools, notification),
        model=str(body.get("model")),
        stream=bool(body.get("stream")),
        newest_text=notification or newest,
        round=0 if notification else rounds,
        roles=tuple(str(message.get("role")) for message in messages),
        tool_results=_tool_results(messages[-1]) if messages else (),
        tools=tools,
        session_id=session_id,
        messages=messages,
    )


def _kind(newest: str, rounds: int, tools: Sequence[str], notification: str) -> Kind:
    if _SUMMARY_REQUEST in newest:
        return "summary"
    if notification:
        return "notification"
    if not tools:
        return "side"
    return "turn" if rounds == 0 else "continuation"


def _session_id(body: Mapping[str, Any]) -> str:
    """Claude Code sends ``metadata.user_id`` as JSON with a ``session_id`` (measured)."""
    user_id = cast("dict[str, Any]", body.get("metadata") or {}).get("user_id")
    try:
        identity = json.loads(user_id) if isinstance(user_id, str) else None
    except ValueError:
        return str(user_id)
    return str(cast("dict[str, Any]", identity).get("session_id", "")) if isinstance(identity, dict) else ""


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[dict[str, Any]]", content) if isinstance(content, list) else []


def _text(content: object) -> str:
    return "\n".join(str(block.get("text", "")) for block in _blocks(content) if block.get("type") == "text")


def _input_texts(message: Mapping[str, Any]) -> list[str]:
    texts: list[str] = []
    for block in _blocks(message.get("content")):
        if block.get("type") != "text":
            continue
        text = _REMINDER.sub("", str(block.get("text", ""))).strip()
        if text.startswith(_OLDER_THAN):
            texts.clear()
        elif folded := _FOLDED.match(text):
            texts.append(folded[1])
        elif text and text != _TOOL_LOADED:
            texts.append(text)
    return texts


def _notification(messages: Sequence[Mapping[str, Any]]) -> str:
    """The notification that the newest message consists of, or ``""``."""
    if not messages or messages[-1].get("role") != "user" or _input_texts(messages[-1]):
        return ""
    found = _NOTIFICATION.search(_text(messages[-1].get("content")))
    return found[0] if found else ""


def _new_texts(texts: list[str], seen: list[list[str]]) -> list[str]:
    """``texts`` without those that an earlier newest message of the session already had."""
    older = max((len(known) for known in seen if texts[: len(known)] == known and known != texts), default=0)
    if texts and texts not in seen:
        seen.append(texts)
    return texts[older:]


def _tool_results(message: Mapping[str, Any]) -> tuple[ToolResult, ...]:
    return tuple(
        ToolResult(str(block.get("tool_use_id")), _text(block.get("content")), bool(block.get("is_error")))
        for block in _blocks(message.get("content"))
        if block.get("type") == "tool_result"
    )
