"""Subagent sessions: their announcements, their prompts' ids and how their work ended."""

from __future__ import annotations

from typing import Final

from sayagain_claude.translate.blocks import Block, text_block

__all__ = ["STOP_REASONS", "announcement", "prompt_id", "prompt_message", "session_reference"]

STOP_REASONS: Final[dict[str, str]] = {
    "completed": "end_turn",
    "failed": "error",
    "killed": "cancelled",
    "stopped": "cancelled",
}
"""The final statuses of a task (``task_updated``, ``task_notification``) as stop reasons."""


def announcement(child_id: str, title: str, description: str, state: Block | None) -> Block:
    """The ``subagent_update`` for the parent's stream (SUB-1).

    ``capabilities`` is empty: a child's session takes no requests (SUB-5). Who wants to stop one cancels the call that
    started it.
    """
    update: Block = {"sessionUpdate": "subagent_update", "sessionId": child_id, "capabilities": {}}
    if title:
        update["title"] = title
    if description:
        update["description"] = description
    if state is not None:
        update["state"] = state
    return update


def prompt_id(child_id: str) -> str:
    """The id of the child's first message, its task.

    Made from the child's id: frames of a background child never carry the stored row's uuid (measured).
    """
    return f"{child_id}:prompt"


def prompt_message(child_id: str, prompt: str) -> Block:
    """The task that a child was given, as its first user message."""
    return {"sessionUpdate": "user_message", "messageId": prompt_id(child_id), "content": [text_block(prompt)]}


def session_reference(child_id: str) -> Block:
    """Tool call content that refers to the child (SUB-8)."""
    return {"type": "session", "sessionId": child_id}
