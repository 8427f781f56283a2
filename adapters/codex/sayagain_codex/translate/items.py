"""One item of a thread as full upserts: the only place where live items and stored ones get their form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text
from sayagain_codex.translate import executions, file_changes, subagents, tools
from sayagain_codex.translate.blocks import text_block
from sayagain_codex.translate.prompts import stored_content

__all__ = ["CALLS", "agent_text", "compaction", "item_updates", "plan_text", "thought_text", "user_message_id"]


class _Translation(Protocol):
    def __call__(self, item: Json, *, live: bool, cwd: str) -> list[Block]: ...


def user_message_id(item: Json) -> str:
    """The id of a ``userMessage`` item's message: ours when the prompt came through us, else Codex's."""
    return as_text(item.get("clientId")) or as_text(item.get("id"))


def agent_text(item: Json) -> str:
    """The text of an ``agentMessage`` item."""
    return as_text(item.get("text"))


def thought_text(item: Json) -> str:
    """The text of a ``reasoning`` item: its summary's parts, then its raw content, with a blank line between."""
    parts = [*as_list(item.get("summary")), *as_list(item.get("content"))]
    return "\n\n".join(text for part in parts if (text := as_text(part)))


def plan_text(plan_id: str, text: str) -> Block:
    """A plan that is one Markdown text, as plan mode proposes it."""
    return {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": plan_id, "content": text}}


def compaction(item: Json, status: str) -> Block:
    """A compaction of the context; Codex does not tell its summary."""
    return {"sessionUpdate": "compaction_update", "compactionId": as_text(item.get("id")), "status": status}


def _message(kind: str, message_id: str, text: str) -> list[Block]:
    return [{"sessionUpdate": kind, "messageId": message_id, "content": [text_block(text)]}] if text else []


def _user(item: Json, *, live: bool, cwd: str) -> list[Block]:
    content = stored_content([as_mapping(part) for part in as_list(item.get("content"))])
    message_id = user_message_id(item)
    return [{"sessionUpdate": "user_message", "messageId": message_id, "content": content}] if content else []


def _agent(item: Json, *, live: bool, cwd: str) -> list[Block]:
    return _message("agent_message", as_text(item.get("id")), agent_text(item))


def _thought(item: Json, *, live: bool, cwd: str) -> list[Block]:
    return _message("agent_thought", as_text(item.get("id")), thought_text(item))


def _plan(item: Json, *, live: bool, cwd: str) -> list[Block]:
    text = as_text(item.get("text"))
    return [plan_text(as_text(item.get("id")), text)] if text else []


def _compacted(item: Json, *, live: bool, cwd: str) -> list[Block]:
    return [compaction(item, "completed")]


def _hidden(item: Json, *, live: bool, cwd: str) -> list[Block]:
    return []


CALLS: Final[Mapping[str, _Translation]] = {
    "commandExecution": executions.execution_updates,
    "fileChange": file_changes.change_updates,
    "mcpToolCall": tools.mcp_updates,
    "dynamicToolCall": tools.dynamic_updates,
    "functionCallOutput": tools.output_updates,
    "webSearch": tools.search_updates,
    "imageView": tools.view_updates,
    "imageGeneration": tools.image_updates,
    "sleep": tools.sleep_updates,
    "collabAgentToolCall": subagents.collab_updates,
    "subAgentActivity": subagents.activity_updates,
}
"""Items that are tool calls, by type."""

_OTHERS: Final[Mapping[str, _Translation]] = {
    "userMessage": _user,
    "agentMessage": _agent,
    "reasoning": _thought,
    "plan": _plan,
    "contextCompaction": _compacted,
    "enteredReviewMode": tools.review_updates,
    # Its text is the message that follows (measured).
    "exitedReviewMode": _hidden,
    # What a hook told the model; no part of the conversation.
    "hookPrompt": _hidden,
}


def item_updates(
    item: Mapping[str, Any], *, live: bool, cwd: str, child: Callable[[str], str | None] | None = None
) -> list[Block]:
    """The full upserts of one stored or completed item; none for one without an id, or without anything to show.

    ``live`` says that the session works in this process, so that an item which is under way still runs. ``cwd`` is
    what paths in titles are relative to. ``child`` gives the session of a subagent's thread, ``None`` when it was
    not announced; without it, tool calls that concern subagents don't refer to them.
    """
    if not as_text(item.get("id")):
        return []
    kind = as_text(item.get("type"))
    translate = CALLS.get(kind) or _OTHERS.get(kind) or tools.unknown_updates
    updates = translate(item, live=live, cwd=cwd)
    if child is not None and kind in ("collabAgentToolCall", "subAgentActivity"):
        subagents.refer(item, updates, child)
    return updates
