"""What a client holds after a list of updates: the fold of the v2 patch semantics (UPD-2, UPD-3, TC-2)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from sayagain.runtime.events import ChildAnnounced, Foreground, RuntimeEvent, Update
from sayagain.runtime.history import ChildStarts, HistoryEntry, HistoryUpdate, UserTurn

__all__ = ["Entities", "fold", "updates_of"]

Entities = dict[tuple[str, str, str], dict[str, Any]]
"""(session id, kind, entity id) to the entity's fields."""

_MESSAGES = {"user_message", "agent_message", "agent_thought"}
_PATCHED = {
    "tool_call_update": ("tool_call", "toolCallId"),
    "terminal_update": ("terminal", "terminalId"),
    "compaction_update": ("compaction", "compactionId"),
    "subagent_update": ("subagent", "sessionId"),
}


def _join(blocks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Blocks with adjacent plain texts joined: how text is cut into chunks is no part of a message."""
    joined: list[dict[str, Any]] = []
    for block in blocks:
        if joined and block.keys() == {"type", "text"} and joined[-1].keys() == {"type", "text"}:
            joined[-1]["text"] += block["text"]
        else:
            joined.append(dict(block))
    return joined


def _apply(entities: Entities, session_id: str, update: Mapping[str, Any]) -> None:
    kind = update["sessionUpdate"]
    fields = {key: value for key, value in update.items() if key != "sessionUpdate"}
    if kind.removesuffix("_chunk") in _MESSAGES:
        base = kind.removesuffix("_chunk")
        entity = entities.setdefault((session_id, base, fields["messageId"]), {"content": []})
        if kind.endswith("_chunk"):
            entity["content"] = _join([*entity["content"], fields["content"]])
        else:
            entity["content"] = _join(fields["content"])
    elif kind == "terminal_output_chunk":
        entity = entities.setdefault((session_id, "terminal", fields["terminalId"]), {})
        entity["output"] = entity.get("output", b"") + base64.b64decode(fields["data"])
    elif kind in _PATCHED:
        name, id_field = _PATCHED[kind]
        new = {"status": "pending"} if name == "tool_call" else {}
        entity = entities.setdefault((session_id, name, fields.pop(id_field)), new)
        for key, value in fields.items():
            if value is None or value == []:
                entity.pop(key, None)
            else:
                entity[key] = base64.b64decode(value["data"]) if key == "output" else value
    elif kind == "plan_update":
        entities[session_id, "plan", fields["plan"]["planId"]] = fields["plan"]


def fold(items: Iterable[RuntimeEvent | HistoryEntry]) -> Entities:
    """The entities after live events, or after a replay."""
    entities: Entities = {}
    parents: dict[str, str] = {}
    for item in items:
        match item:
            case ChildAnnounced(parent_id, child_id, update) | ChildStarts(parent_id, child_id, update):
                parents[child_id] = parent_id
                _apply(entities, parent_id, update)
            case Foreground(session_id, state, stop_reason):
                # The agent core mirrors a child's state on its parent.
                mirrored = {"state": state, "stopReason": stop_reason}
                mirror = {"sessionUpdate": "subagent_update", "sessionId": session_id, "state": mirrored}
                _apply(entities, parents[session_id], mirror)
            case Update(session_id, update) | HistoryUpdate(session_id, update):
                _apply(entities, session_id, update)
            case UserTurn(session_id, _, update) if update is not None:
                _apply(entities, session_id, update)
            case _:
                pass
    return entities


def updates_of(items: Iterable[RuntimeEvent | HistoryEntry]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The (session id, update) pairs that go on the wire."""
    for item in items:
        match item:
            case Update(session_id, update) | HistoryUpdate(session_id, update):
                yield session_id, update
            case ChildAnnounced(parent_id, _, update) | ChildStarts(parent_id, _, update):
                yield parent_id, update
            case UserTurn(session_id, _, update) if update is not None:
                yield session_id, update
            case _:
                pass
