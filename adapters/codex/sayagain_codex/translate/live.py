"""Notifications of one app-server session as runtime events.

Pure: a notification in, events out. Here is what concerns the session's threads: which there are, how they work, what
is kept of those that nobody has named yet. Their items are followed by :mod:`~sayagain_codex.translate.live_items`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sayagain.identity import child_session_id
from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text
from sayagain.runtime.events import ChildAnnounced, Foreground, RuntimeEvent, Update
from sayagain_codex.translate import notices, subagents
from sayagain_codex.translate.item_ids import with_item_ids
from sayagain_codex.translate.live_items import HANDLERS as ITEM_HANDLERS
from sayagain_codex.translate.live_items import LiveItems
from sayagain_codex.translate.usage import turn_usage, usage_update

__all__ = ["PLAN_ID", "LiveTranslator", "OpenTerminal"]

PLAN_ID: Final = "plan"
"""The plan that the model keeps by its ``update_plan`` tool; a session has one."""

_WAITING: Final = 4096
"""Notifications that may wait for subagents to be named: the parent's item follows within a few (measured)."""

_STEPS: Final = {"pending": "pending", "inProgress": "in_progress", "completed": "completed"}


@dataclass(frozen=True, slots=True)
class OpenTerminal:
    """A command that runs; ``process_id`` is what ``thread/backgroundTerminals/terminate`` takes."""

    session_id: str
    terminal_id: str
    thread_id: str
    turn_id: str
    """The turn that started it."""
    process_id: str
    background: bool
    """Its turn is over."""


@dataclass(slots=True)
class _Thread:
    session_id: str
    items: LiveItems
    path: str = ""
    running: bool = False
    waits: bool = False
    total: Json = field(default_factory=dict[str, Any])
    total_before: Json = field(default_factory=dict[str, Any])
    usage: Block | None = None


class LiveTranslator:
    """Turns the notifications of one thread and its subagents' threads into events.

    ``session_id`` is the root's, which is also its thread's id. The root's own state, insertions and rejections are
    not its business: ``Foreground`` comes for children only, and no ``userMessage`` item of the root that has a
    ``clientId`` becomes an update.
    """

    def __init__(self, session_id: str, cwd: str) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self._root = _Thread(session_id, LiveItems(cwd, self._child, root=True), path="/root")
        self._threads: dict[str, _Thread] = {session_id: self._root}
        self._unknown: dict[str, list[tuple[str, Json]]] = {}
        self._waiting = 0
        self._notices = notices.Notices()
        self._handlers: Final[Mapping[str, Callable[[_Thread, Json], list[RuntimeEvent]]]] = {
            "thread/status/changed": self._status,
            "thread/closed": self._closed,
            "thread/deleted": self._closed,
            "thread/name/updated": self._named_thread,
            "thread/tokenUsage/updated": self._tokens,
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "turn/plan/updated": self._plan,
            "item/started": self._item_started,
            "item/completed": self._item_completed,
        }

    def notification(self, method: str, params: Mapping[str, Any]) -> list[RuntimeEvent]:
        """The events of one notification, in order. Unknown methods and malformed params give none."""
        thread_id = as_text(params.get("threadId")) or as_text(as_mapping(params.get("thread")).get("id"))
        if method == "thread/started":
            return self.adopt(as_mapping(params.get("thread")))
        if method in notices.METHODS and (not thread_id or thread_id not in self._threads):
            # Of no thread, or of one that nobody may ever name: the user should hear it now.
            return self._noticed(self._root, method, params)
        thread = self._threads.get(thread_id)
        if thread is None:
            self._keep(thread_id, method, params)
            return []
        if method in notices.METHODS:
            retried = method == "error" and params.get("willRetry") is True
            taken_back = thread.items.retract() if retried else []
            return self._updates(thread, taken_back) + self._noticed(thread, method, params)
        if (told := ITEM_HANDLERS.get(method)) is not None:
            return self._updates(thread, told(thread.items, with_item_ids(params)))
        handler = self._handlers.get(method)
        return handler(thread, params) if handler else []

    def adopt(self, thread: Mapping[str, Any]) -> list[RuntimeEvent]:
        """Announce a subagent by its ``Thread``, as ``thread/read`` gives it, where no item has named it yet.

        Nothing happens when its parent isn't known either, and for threads that are no subagents.
        """
        found = subagents.named_in_thread(as_mapping(thread))
        if found is None or found[0] not in self._threads:
            return []
        return self._announce(self._threads[found[0]], [found[1]])

    def session_of(self, thread_id: str) -> str | None:
        """The session of a thread, as server requests name it; ``None`` while it isn't announced."""
        thread = self._threads.get(thread_id)
        return thread.session_id if thread else None

    def item_of(self, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The open item that a server request is about: by ``itemId``, else the open call of its MCP server."""
        thread = self._threads.get(as_text(params.get("threadId")))
        if thread is None:
            return None
        opened = thread.items.get(as_text(with_item_ids(params).get("itemId")))
        if opened is None:
            arguments = as_mapping(params.get("_meta")).get("tool_params")
            opened = thread.items.call_of(as_text(params.get("serverName")), arguments)
        return opened.item if opened is not None else None

    def permitted(self, params: Mapping[str, Any]) -> list[RuntimeEvent]:
        """The user allowed what a server request is about: it runs now. To be called when the answer was written."""
        thread = self._threads.get(as_text(params.get("threadId")))
        item_id = as_text(with_item_ids(params).get("itemId"))
        return self._updates(thread, thread.items.permitted(item_id)) if thread is not None else []

    def terminals(self) -> list[OpenTerminal]:
        """The commands that run now, of all threads, in the order in which they began."""
        return [
            OpenTerminal(
                thread.session_id,
                item_id,
                thread_id,
                opened.turn_id,
                as_text(opened.item.get("processId")),
                opened.turn_over,
            )
            for thread_id, thread in self._threads.items()
            for item_id, opened in thread.items.running()
        ]

    def background(self, session_id: str) -> list[Mapping[str, Any]]:
        """What runs on while the session is idle, in wire form: its terminals, and the root's subagents (UPD-8)."""
        found: list[Mapping[str, Any]] = [
            {"type": "terminal", "terminalId": terminal.terminal_id}
            for terminal in self.terminals()
            if terminal.session_id == session_id and terminal.background
        ]
        if session_id == self._session_id:
            found += [
                {"type": "subagent", "sessionId": thread.session_id}
                for thread in self._threads.values()
                if thread.running and thread.session_id != session_id
            ]
        return found

    def turn_usage(self) -> Mapping[str, Any] | None:
        """The tokens of the root's turn so far, as the ``usage`` of an idle state."""
        return turn_usage(self._root.total_before, self._root.total)

    def turn_over(self, params: Mapping[str, Any]) -> list[RuntimeEvent]:
        """The end of a turn that is told later: what it left open is over, but for commands that run on."""
        turn, thread = as_mapping(params.get("turn")), self._threads.get(as_text(params.get("threadId")))
        status = "failed" if turn.get("status") == "failed" else "cancelled"
        return self._updates(thread, thread.items.end_turn(as_text(turn.get("id")), status)) if thread else []

    def close_calls(self, status: str) -> list[RuntimeEvent]:
        """End everything that is open, children's too, and every child: the process is gone.

        ``status`` is ``failed`` or ``cancelled``.
        """
        self._unknown.clear()
        self._waiting = 0
        events: list[RuntimeEvent] = []
        for thread in self._threads.values():
            events += self._updates(thread, thread.items.close(status))
            error = {"code": -32603, "message": "Codex ended"} if status == "failed" else None
            events += self._idle(thread, "error" if status == "failed" else "cancelled", error)
        return events

    # Threads

    def _keep(self, thread_id: str, method: str, params: Json) -> None:
        if not thread_id or (method not in self._handlers and method not in ITEM_HANDLERS):
            return
        self._unknown.setdefault(thread_id, []).append((method, params))
        self._waiting += 1
        if self._waiting > _WAITING:
            # Codex has threads of its own that nobody ever names; they come first, and go first.
            self._waiting -= len(self._unknown.pop(next(iter(self._unknown))))

    def _announce(self, parent: _Thread, found: list[subagents.Named]) -> list[RuntimeEvent]:
        """Announce those that are not known; what was kept of them follows."""
        events: list[RuntimeEvent] = []
        for named in found:
            if named.thread_id in self._threads:
                continue
            child_id = child_session_id(self._session_id, named.thread_id)
            items = LiveItems(self._cwd, self._child, root=False)
            child = _Thread(child_id, items, path=named.path, running=True)
            self._threads[named.thread_id] = child
            update = subagents.announcement(child_id, named, {"state": "running"})
            events.append(ChildAnnounced(parent.session_id, child_id, update))
            events.append(Foreground(child_id, "running"))
            kept = self._unknown.pop(named.thread_id, [])
            self._waiting -= len(kept)
            for method, params in kept:
                events += self.notification(method, params)
        return events

    def _named(self, thread: _Thread, item: Json) -> list[RuntimeEvent]:
        """Announce the subagents of an item whose parent is its thread.

        Other items may name a sibling; its parent is known by its path alone (SUB-3). One that was started in an
        earlier process is announced when it is given more to do.
        """
        return self._announce(
            thread,
            [
                named
                for named in subagents.named_by(item)
                if named.started or named.addressed or (thread.path and named.path.rpartition("/")[0] == thread.path)
            ],
        )

    def _child(self, thread_id: str) -> str | None:
        thread = self._threads.get(thread_id)
        return thread.session_id if thread and thread.session_id != self._session_id else None

    def _idle(self, thread: _Thread, reason: str, error: Block | None = None) -> list[RuntimeEvent]:
        if thread.session_id == self._session_id or not thread.running:
            return []
        thread.running = thread.waits = False
        return [Foreground(thread.session_id, "idle", stop_reason=reason, error=error)]

    def _status(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        status = as_mapping(params.get("status"))
        if thread.session_id == self._session_id or status.get("type") != "active":
            return []
        waits = bool(as_list(status.get("activeFlags")))
        if thread.running and waits == thread.waits:
            return []
        thread.running, thread.waits = True, waits
        return [Foreground(thread.session_id, "requires_action" if waits else "running")]

    def _closed(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        return self._idle(thread, "cancelled")

    def _named_thread(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        if thread.session_id != self._session_id:
            return []  # a subagent is called by what it was started for
        title = as_text(params.get("threadName"))
        return self._updates(thread, [{"sessionUpdate": "session_info_update", "title": title or None}])

    def _turn_started(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        thread.total_before = thread.total
        return self._status(thread, {"status": {"type": "active"}})

    def _turn_completed(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        turn = as_mapping(params.get("turn"))
        events = self.turn_over(params)
        reason = subagents.STOP_REASONS.get(as_text(turn.get("status")), "end_turn")
        fault = None
        if reason == "error":
            message = as_text(as_mapping(turn.get("error")).get("message"))
            fault = {"code": -32603, "message": message or "The subagent failed"}
        return events + self._idle(thread, reason, fault)

    def _tokens(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        thread.total = as_mapping(as_mapping(params.get("tokenUsage")).get("total"))
        update = usage_update(params)
        if update is None or update == thread.usage:
            return []
        thread.usage = update
        return self._updates(thread, [update])

    # Items

    def _item_started(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        params = with_item_ids(params)
        item = as_mapping(params.get("item"))
        return self._named(thread, item) + self._updates(thread, thread.items.started(params, item))

    def _item_completed(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        params = with_item_ids(params)
        item = as_mapping(params.get("item"))
        return self._named(thread, item) + self._updates(thread, thread.items.completed(params, item))

    def _plan(self, thread: _Thread, params: Json) -> list[RuntimeEvent]:
        entries = [
            # Codex knows no priorities; one is required.
            {
                "content": as_text(step.get("step")),
                "priority": "medium",
                "status": _STEPS.get(as_text(step.get("status")), "pending"),
            }
            for step in map(as_mapping, as_list(params.get("plan")))
        ]
        plan = {"type": "items", "planId": PLAN_ID, "entries": entries}
        return self._updates(thread, [{"sessionUpdate": "plan_update", "plan": plan}])

    def _noticed(self, thread: _Thread, method: str, params: Json) -> list[RuntimeEvent]:
        update = self._notices.notification(method, params)
        return self._updates(thread, [update] if update is not None else [])

    def _updates(self, thread: _Thread, updates: Iterable[Block]) -> list[RuntimeEvent]:
        return [Update(thread.session_id, update) for update in updates]
