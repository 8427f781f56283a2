"""An item that was started and has not ended: what the client has of it, and what is new to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sayagain.protocol.loose import Block, Json, as_text
from sayagain_codex.translate.items import CALLS, compaction, plan_text
from sayagain_codex.translate.streams import Digest, TextStream

__all__ = ["OpenItem", "Told"]

Told: TypeAlias = Mapping[str, AbstractSet[str]]
"""The fields that a client has of an item, by the kind of update."""

_OTHER: Final = object()
"""A value that a client has of the item before, whatever it is."""

_IDENTITY: Final = ("toolCallId", "terminalId", "compactionId", "messageId", "plan")
"""Fields that say what an update is about: they are in every one."""

_PLAN_GROWTH: Final = 1.1
"""A plan is sent whole each time: the longer it is, the more lines wait, so that all of it is sent a few times only."""


@dataclass(slots=True)
class OpenItem:
    """One item, from its start on. ``text`` and ``output`` follow what is streamed of it."""

    item: Json
    turn_id: str
    text: TextStream | None = None
    output: Digest | None = None
    runs: bool = False
    """The command was seen to run, or allowed to; one that waits for the user has no process yet (measured)."""
    turn_over: bool = False
    mixed: bool = False
    """Another command of its turn had its id too: what was streamed is of both."""
    _sent: dict[str, Block] = field(default_factory=dict[str, Block])
    _plan: str = ""
    _plan_sent: int = 0

    def changes(self, updates: Sequence[Block], *, last: bool = False) -> list[Block]:
        """The updates without the fields that the client has already.

        ``last`` says that they are the item's final form: what an open item had and a finished one hasn't is cleared.
        """
        changes: list[Block] = []
        for update in updates:
            kind = update["sessionUpdate"]
            known = self._sent.get(kind)
            if known is None:
                self._sent[kind] = dict(update)
                changes.append(update)
                continue
            new = {**update, **dict.fromkeys(sorted(known.keys() - update.keys()))} if last else update
            changed = {name: value for name, value in new.items() if name not in known or known[name] != value}
            known.update(new)
            if changed:
                identity: Block = {name: update[name] for name in _IDENTITY if name in update}
                changes.append({"sessionUpdate": kind, **identity, **changed})
        return changes

    @property
    def told(self) -> Told:
        """What a client has of it, to be given to the item that takes its place."""
        told = {kind: {name for name, value in sent.items() if value is not None} for kind, sent in self._sent.items()}
        if self.output is not None:
            told.setdefault("terminal_update", set()).add("output")
        return told

    def take_place(self, told: Told) -> None:
        """A client has another item under this id, which is over: all of it is to be replaced."""
        self._sent = {kind: dict.fromkeys(sorted(names), _OTHER) for kind, names in told.items()}

    def may_end_as(self, item: Json) -> bool:
        """Whether ``item`` is this one's end, and not that of another one while this command runs on.

        Codex tells no start of a command whose id is that of one that runs in the background, and its end (measured).
        """
        process_id = as_text(self.item.get("processId")) if self.runs else ""
        if not process_id:
            return True
        return item.get("type") == "commandExecution" and item.get("processId") in (None, "", process_id)

    def closed(self, status: str) -> list[Block]:
        """The end of an item that never ends by itself. A message that was cut stays as it is."""
        item_id, kind = as_text(self.item.get("id")), as_text(self.item.get("type"))
        if kind == "contextCompaction":
            return self.changes([compaction(self.item, status)])
        if kind not in CALLS:
            return []
        updates: list[Block] = [{"sessionUpdate": "tool_call_update", "toolCallId": item_id, "status": status}]
        if kind == "commandExecution":
            terminal: Block = {"sessionUpdate": "terminal_update", "terminalId": item_id, "exitStatus": {}}
            if self._sent.get("terminal_update", {}).get("capabilities"):
                terminal["capabilities"] = None
            updates.insert(0, terminal)
        return self.changes(updates)

    def plan_grew(self, text: str) -> Block | None:
        """More of a plan; the whole plan when it is worth showing."""
        self._plan += text
        if "\n" not in text or len(self._plan) < self._plan_sent * _PLAN_GROWTH:
            return None
        self._plan_sent = len(self._plan)
        return plan_text(as_text(self.item.get("id")), self._plan)
