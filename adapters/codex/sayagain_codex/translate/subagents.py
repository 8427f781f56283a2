"""Subagents of both generations: who they are, and the parent's items that name them.

The first generation has ``collabAgentToolCall`` items; the receivers of a spawn are in its completed item only. The
second has ``subAgentActivity`` items, with the agent's path from the root agent (``/root/name``). Both measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text
from sayagain_codex.translate.blocks import call_status, first_line, session_reference, text_content

__all__ = [
    "STOP_REASONS",
    "Named",
    "activity_updates",
    "announcement",
    "collab_updates",
    "named_by",
    "named_in_thread",
    "refer",
]

STOP_REASONS: Final = {"completed": "end_turn", "interrupted": "cancelled", "failed": "error"}
"""Statuses of a turn that is over, as stop reasons."""

_TOOLS: Final = {
    "spawnAgent": ("spawn_agent", "Start a subagent"),
    "sendInput": ("send_input", "Message a subagent"),
    "sendMessage": ("send_message", "Message a subagent"),
    "followupTask": ("followup_task", "Give a subagent another task"),
    "resumeAgent": ("resume_agent", "Resume a subagent"),
    "wait": ("wait", "Wait for subagents"),
    "closeAgent": ("close_agent", "Close a subagent"),
    "interruptAgent": ("interrupt_agent", "Interrupt a subagent"),
    "listAgents": ("list_agents", "List subagents"),
}

_ACTIVITIES: Final = {
    "started": ("spawn_agent", "Start subagent"),
    "interacted": ("send_message", "Message subagent"),
    "interrupted": ("interrupt_agent", "Interrupt subagent"),
}


@dataclass(frozen=True, slots=True)
class Named:
    """A subagent's thread that an item names. ``path`` is its agent path, in the second generation."""

    thread_id: str
    title: str
    description: str = ""
    path: str = ""
    started: bool = False
    """The item is the one that started it, so the item's thread is its parent."""
    addressed: bool = False
    """The item gives it more to do, by the id that the one who started it was told."""


def named_by(item: Json) -> Sequence[Named]:
    """The subagents that an item names, in its order."""
    match item.get("type"):
        case "collabAgentToolCall":
            prompt, tool = as_text(item.get("prompt")), item.get("tool")
            title = (first_line(prompt) or "Subagent") if tool == "spawnAgent" else ""
            receivers = dict.fromkeys(text for text in map(as_text, as_list(item.get("receiverThreadIds"))) if text)
            started, addressed = tool == "spawnAgent", tool in ("sendInput", "resumeAgent")
            return [Named(thread_id, title, started=started, addressed=addressed) for thread_id in receivers]
        case "subAgentActivity":
            thread_id, path = as_text(item.get("agentThreadId")), as_text(item.get("agentPath"))
            if not thread_id:
                return ()
            title = path.rpartition("/")[2] or "Subagent"
            started = item.get("kind") == "started"
            return [Named(thread_id, title, as_text(item.get("model")) if started else "", path, started)]
        case _:
            return ()


def named_in_thread(thread: Json) -> tuple[str, Named] | None:
    """The parent's thread id and the subagent that a ``Thread`` describes; ``None`` when it is no subagent's."""
    spawn = as_mapping(as_mapping(as_mapping(thread.get("source")).get("subAgent")).get("thread_spawn"))
    thread_id = as_text(thread.get("id"))
    parent = as_text(thread.get("parentThreadId")) or as_text(spawn.get("parent_thread_id"))
    if not thread_id or not parent:
        return None
    path = as_text(spawn.get("agent_path"))
    title = (
        path.rpartition("/")[2] or first_line(as_text(thread.get("preview"))) or as_text(thread.get("agentNickname"))
    )
    return parent, Named(thread_id, title or "Subagent", path=path, started=True)


def announcement(child_id: str, named: Named, state: Block | None) -> Block:
    """The ``subagent_update`` for the parent's stream (SUB-1).

    ``capabilities`` is empty: a client may not change a child (SUB-5).
    """
    update: Block = {
        "sessionUpdate": "subagent_update",
        "sessionId": child_id,
        "capabilities": {},
    }
    if named.title:
        update["title"] = named.title
    if named.description:
        update["description"] = named.description
    if state is not None:
        update["state"] = state
    return update


def collab_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """A call of the first generation's tools, or a wait of the second's."""
    name, title = _TOOLS.get(as_text(item.get("tool")), ("subagent", "Subagent"))
    prompt = as_text(item.get("prompt"))
    update: Block = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": as_text(item.get("id")),
        "name": name,
        "title": first_line(f"{title}: {first_line(prompt)}") if prompt.strip() else title,
        "kind": "think",
        "status": call_status(item, live=live),
    }
    raw = {field: text for field in ("prompt", "model") if (text := as_text(item.get(field)))}
    if raw:
        update["rawInput"] = raw
    said = [text_content(text) for text in _messages(item) if text.strip()]
    if said:
        update["content"] = said
    return [update]


def activity_updates(item: Json, *, live: bool, cwd: str) -> list[Block]:
    """What the second generation's parent did with a subagent. That one ended is its own state, and no call."""
    activity = _ACTIVITIES.get(as_text(item.get("kind")))
    if activity is None:
        return []
    name, title = activity
    agent = as_text(item.get("agentPath")).rpartition("/")[2]
    update: Block = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": as_text(item.get("id")),
        "name": name,
        "title": f"{title} {agent}".strip(),
        "kind": "think",
        "status": "completed",
    }
    return [update]


def refer(item: Json, updates: Sequence[Block], child: Callable[[str], str | None]) -> None:
    """Let the tool calls among ``updates`` show the subagents that the item names, those that are known (SUB-8)."""
    sessions = [child(named.thread_id) for named in named_by(item)]
    references = [session_reference(session_id) for session_id in sessions if session_id is not None]
    for update in updates:
        if references:
            update["content"] = [*references, *update.get("content", [])]


def _messages(item: Json) -> list[str]:
    states = as_mapping(item.get("agentsStates"))
    # The last words of those waited for; a spawn and the like have none.
    messages = [as_text(as_mapping(state).get("message")) for state in states.values()]
    return messages if item.get("tool") == "wait" else []
