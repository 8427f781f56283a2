"""The open items of one thread: what is told of each as updates, from its start to its end.

Pure: the params of a notification in, with ids for clients (:mod:`~sayagain_codex.translate.item_ids`), and updates
out. A finished item leaves nothing behind, unless another of its turn may take its place. What an item looks like is
said in :mod:`~sayagain_codex.translate.items` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sayagain.protocol.loose import Block, Json, as_text
from sayagain_codex.translate.blocks import base64_text, text_content
from sayagain_codex.translate.file_changes import change_call
from sayagain_codex.translate.item_ids import bears_turn
from sayagain_codex.translate.items import CALLS, agent_text, compaction, item_updates, thought_text
from sayagain_codex.translate.open_items import OpenItem, Told
from sayagain_codex.translate.streams import Digest, TextStream

__all__ = ["HANDLERS", "LiveItems"]

_TEXTS: Final = {"agentMessage": ("agent_message", agent_text), "reasoning": ("agent_thought", thought_text)}


class LiveItems:
    """The items of one thread that have not ended, by their ids.

    ``root`` is for the thread that is the session itself. ``child`` gives the session of a subagent's thread, or
    ``None`` for one that was not announced.
    """

    def __init__(self, cwd: str, child: Callable[[str], str | None], *, root: bool) -> None:
        self._cwd = cwd
        self._child = child
        self._root = root
        self._open: dict[str, OpenItem] = {}
        self._turn_id = ""
        # What was told of finished items whose id may come again in their turn, until the next one begins.
        self._told: dict[str, Told] = {}

    # What is open.

    def get(self, item_id: str) -> OpenItem | None:
        """The open item of that id."""
        return self._open.get(item_id)

    def call_of(self, server: str, arguments: object) -> OpenItem | None:
        """The open call of an MCP server: the last one with these arguments, else the last one."""
        calls = [opened for opened in self._open.values() if server and opened.item.get("server") == server]
        same = [opened for opened in calls if opened.item.get("arguments") == arguments]
        found = same or calls
        return found[-1] if found else None

    def running(self) -> Iterator[tuple[str, OpenItem]]:
        """The commands that run now, in the order in which they began."""
        return ((item_id, opened) for item_id, opened in self._open.items() if opened.runs)

    # What happens to them.

    def permitted(self, item_id: str) -> list[Block]:
        """The user allowed the item: it runs now."""
        opened = self._open.get(item_id)
        if opened is None:
            return []
        opened.runs = opened.output is not None
        return [{"sessionUpdate": "tool_call_update", "toolCallId": item_id, "status": "in_progress"}]

    def end_turn(self, turn_id: str, status: str) -> list[Block]:
        """The turn is over: what it left open never ends by itself, but for commands that run on."""
        updates: list[Block] = []
        for item_id, opened in list(self._open.items()):
            if opened.turn_id != turn_id:
                continue
            if opened.runs:
                opened.turn_over = True  # goes on in the background, and ends with its own notification (measured)
            else:
                updates += self._open.pop(item_id).closed(status)
        return updates

    def close(self, status: str) -> list[Block]:
        """End everything that is open."""
        closed = [update for opened in self._open.values() for update in opened.closed(status)]
        self._open.clear()
        self._told.clear()
        return closed

    def retract(self) -> list[Block]:
        """The model is asked again: what it was saying is said anew under another id, and never ends (measured)."""
        updates: list[Block] = []
        for item_id, opened in list(self._open.items()):
            if opened.text is not None:
                del self._open[item_id]
                updates += opened.text.taken_back()
        return updates

    # Notifications.

    def started(self, params: Json, item: Json) -> list[Block]:
        """An item begins; what is told of it twice is told once."""
        item_id, kind = as_text(item.get("id")), as_text(item.get("type"))
        if not item_id or item_id in self._open:
            return []
        turn_id = as_text(params.get("turnId"))
        if turn_id != self._turn_id:
            self._turn_id = turn_id
            self._told.clear()
        opened = self._new(item, turn_id)
        if kind in CALLS:
            self._open[item_id] = opened
            return opened.changes(self._call_started(opened, kind), last=True)
        if kind == "contextCompaction":
            self._open[item_id] = opened
            return opened.changes([compaction(item, "in_progress")])
        if kind in _TEXTS:
            self._open[item_id] = opened
            opened.text = TextStream(_TEXTS[kind][0], item_id, again=item_id in self._told)
        elif kind == "plan":
            self._open[item_id] = opened
        return []

    def _call_started(self, opened: OpenItem, kind: str) -> list[Block]:
        if kind == "commandExecution":
            opened.output = Digest()
            opened.runs = bool(as_text(opened.item.get("processId")))
        updates = item_updates(opened.item, live=True, cwd=self._cwd, child=self._child)
        for update in updates:
            if update["sessionUpdate"] == "tool_call_update":
                update["status"] = "in_progress"
            elif opened.runs and self._root:
                # Codex can end it by its process id; a client may not change a child (SUB-5).
                update["capabilities"] = {"cancel": {}}
        return updates

    def completed(self, params: Json, item: Json) -> list[Block]:
        """An item ends, whether or not its start was told. The root's keyed prompts are told by who holds them."""
        item_id, kind = as_text(item.get("id")), as_text(item.get("type"))
        turn_id = as_text(params.get("turnId"))
        opened = self._open.get(item_id) or self._new(item, turn_id)
        if not opened.may_end_as(item):
            opened.mixed = True
            return []
        self._open.pop(item_id, None)
        if kind == "userMessage" and self._root and as_text(item.get("clientId")):
            return []
        updates = self._ended(opened, item)
        if bears_turn(item_id, turn_id):
            self._told[item_id] = opened.told
        return updates

    def _new(self, item: Json, turn_id: str) -> OpenItem:
        opened = OpenItem(item, turn_id)
        opened.take_place(self._told.get(as_text(item.get("id")), {}))
        return opened

    def _ended(self, opened: OpenItem, item: Json) -> list[Block]:
        kind = as_text(item.get("type"))
        updates = item_updates(item, live=False, cwd=self._cwd, child=self._child)
        if kind in _TEXTS and opened.text is not None and opened.text.ended(_TEXTS[kind][1](item)):
            return []
        if kind == "commandExecution" and opened.output is not None and not opened.mixed:
            for update in updates:
                # Deltas lack some, mostly the first; a long aggregate is cut in the middle (both measured).
                if "output" in update and opened.output.covers(as_text(item.get("aggregatedOutput"))):
                    del update["output"]
        return opened.changes(updates, last=True)

    def text_delta(self, params: Json, name: str = "") -> list[Block]:
        """A message goes on; a thought's parts have a ``name`` and an index."""
        opened = self._open.get(as_text(params.get("itemId")))
        if opened is None or opened.text is None:
            return []
        index = params.get(f"{name}Index") if name else 0
        part = (name, index if type(index) is int else 0)
        return opened.text.delta(as_text(params.get("delta")), part)

    def summary_delta(self, params: Json) -> list[Block]:
        """The summary of a thought goes on."""
        return self.text_delta(params, "summary")

    def content_delta(self, params: Json) -> list[Block]:
        """A thought goes on."""
        return self.text_delta(params, "content")

    def output_delta(self, params: Json) -> list[Block]:
        """A command writes."""
        item_id, text = as_text(params.get("itemId")), as_text(params.get("delta"))
        opened = self._open.get(item_id)
        if opened is None or opened.output is None or not text:
            return []
        opened.output.add(text)
        opened.runs = True
        return [{"sessionUpdate": "terminal_output_chunk", "terminalId": item_id, "data": base64_text(text)}]

    def plan_delta(self, params: Json) -> list[Block]:
        """A written plan goes on."""
        text = as_text(params.get("delta"))
        opened = self._open.get(as_text(params.get("itemId")))
        if opened is None or opened.item.get("type") != "plan" or not text:
            return []
        grown = opened.plan_grew(text)
        return [] if grown is None else [grown]

    def patch(self, params: Json) -> list[Block]:
        """A file change is another one than was said."""
        item_id = as_text(params.get("itemId"))
        opened = self._open.get(item_id)
        if opened is None or opened.item.get("type") != "fileChange":
            return []
        opened.item = {**opened.item, "changes": params.get("changes")}
        call = change_call(params.get("changes"), self._cwd)
        return opened.changes([{"sessionUpdate": "tool_call_update", "toolCallId": item_id, **call}])

    def progress(self, params: Json) -> list[Block]:
        """An MCP server tells how far its call is."""
        item_id, message = as_text(params.get("itemId")), as_text(params.get("message"))
        opened = self._open.get(item_id)
        if opened is None or not message.strip():
            return []
        content = [text_content(message)]
        return opened.changes([{"sessionUpdate": "tool_call_update", "toolCallId": item_id, "content": content}])


HANDLERS: Final[Mapping[str, Callable[[LiveItems, Json], list[Block]]]] = {
    "item/agentMessage/delta": LiveItems.text_delta,
    "item/reasoning/summaryTextDelta": LiveItems.summary_delta,
    "item/reasoning/textDelta": LiveItems.content_delta,
    "item/plan/delta": LiveItems.plan_delta,
    "item/commandExecution/outputDelta": LiveItems.output_delta,
    "item/fileChange/patchUpdated": LiveItems.patch,
    "item/mcpToolCall/progress": LiveItems.progress,
}
"""What tells of an item that is open. Starts and ends may name subagents too, which come first."""
