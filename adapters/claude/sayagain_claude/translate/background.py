"""Tasks of the CLI: what runs beside the conversation, what of it is in the background, and how it ends (UPD-8).

The CLI calls a task whatever it runs aside: a shell command that takes more than three seconds or was sent to the
background, a subagent, a watcher. Its frames, in order (measured, claude 2.1.332)::

    background_tasks_changed {tasks} -> task_started {task_id, tool_use_id, is_backgrounded} -> tool_result
    -> task_updated {patch.status} -> task_notification {status, summary} -> background_tasks_changed {tasks: []}

A task that starts in the foreground and moves to the background later shows in ``background_tasks_changed`` alone.
Each can be stopped by the control request ``stop_task``, and nothing else stops with it (measured).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sayagain.runtime.events import RuntimeEvent, Update
from sayagain_claude.translate import harness, subagents, terminals, tools
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, plain_text

if TYPE_CHECKING:
    from sayagain_claude.translate.results import ToolResult

__all__ = ["CALL_STATUSES", "Notification", "Task", "TaskKind", "Tasks", "call_ended", "launched_task", "notification"]

TaskKind = Literal["terminal", "tool_call", "subagent"]

CALL_STATUSES: Final = {"completed": "completed", "failed": "failed", "killed": "cancelled", "stopped": "cancelled"}
"""The final statuses of a task as those of the call that started it."""

_TAG: Final = re.compile(r"<(task-id|tool-use-id|status|summary)>(.*?)</\1>", re.DOTALL)


@dataclass(slots=True)
class Task:
    """A running task, with the update that describes what a client knows it by."""

    task_id: str
    kind: TaskKind
    session_id: str
    entity_id: str
    """The terminal's, the tool call's or the child session's id."""
    call_id: str
    shown: Block
    background: bool = False

    @property
    def item(self) -> Block:
        """Its entry in a ``background`` list."""
        field = {"terminal": "terminalId", "tool_call": "toolCallId", "subagent": "sessionId"}[self.kind]
        return {"type": self.kind, field: self.entity_id}


class Tasks:
    """The running tasks of a session and its children, in the order in which they started."""

    __slots__ = ("_cwd", "_in_background", "_root_id", "_tasks")

    def __init__(self, root_id: str, cwd: str) -> None:
        self._root_id = root_id
        self._cwd = cwd
        self._tasks: dict[str, Task] = {}
        self._in_background: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    def find(self, kind: TaskKind, entity_id: str) -> Task | None:
        """The running task that a client can stop under this id."""
        return next((t for t in self if t.kind == kind and t.entity_id == entity_id and self._is_ours(t)), None)

    def items(self, session_id: str) -> list[Block]:
        """The ``background`` list of a session."""
        return [task.item for task in self if task.background and task.session_id == session_id]

    def started(self, frame: Json, owner: str, call: Json | None, child_id: str | None) -> list[RuntimeEvent]:
        """``task_started``: ``owner`` is the session of the ``call``, or of the parent of the child."""
        task_id, call_id = as_text(frame.get("task_id")), as_text(frame.get("tool_use_id"))
        if not task_id or task_id in self._tasks:
            return []
        background = frame.get("is_backgrounded") is True or task_id in self._in_background
        if call is not None:
            terminal = terminals.opened(call, self._cwd)
            shown = terminal or tools.started(call, self._cwd) | {"status": "in_progress"}
            if child_id is not None and terminal is None:
                shown["content"] = [subagents.session_reference(child_id)]
            task = Task(task_id, "terminal" if terminal else "tool_call", owner, call_id, call_id, shown, background)
        elif child_id is not None:
            # A subagent that is sent on after its call was over.
            task = Task(task_id, "subagent", owner, child_id, call_id, {}, background)
        else:
            return []
        self._tasks[task_id] = task
        return self._cancellable(task, {"cancel": {}})

    def changed(self, frame: Json) -> list[RuntimeEvent]:
        """``background_tasks_changed``: all tasks in the background, those that were moved there included."""
        listed = frozenset(as_text(as_mapping(task).get("task_id")) for task in as_list(frame.get("tasks")))
        self._in_background = listed
        events: list[RuntimeEvent] = []
        for task in self:
            if task.background and task.task_id not in listed:
                events += self._ended(task, _LOST)  # its notification came first, if there was one
            task.background = task.task_id in listed
        return events

    def notified(self, frame: Json) -> list[RuntimeEvent]:
        """``task_notification``: the end of a task in the background. One in the foreground ends with its call."""
        task = self._tasks.get(as_text(frame.get("task_id")))
        status = as_text(frame.get("status"))
        if task is None or not task.background or status not in CALL_STATUSES:
            return []
        return self._ended(task, Notification(task.call_id, status, as_text(frame.get("summary"))))

    def goes_on(self, result: ToolResult) -> bool:
        """Whether a call's work goes on in the background behind its result."""
        task_id = launched_task(result)
        task = self._tasks.get(task_id) if task_id else None
        if task is None or task.call_id != result.tool_call_id:
            return False
        task.background = True
        return True

    def call_over(self, call_id: str) -> list[RuntimeEvent]:
        """A call has its result, and nothing of it goes on."""
        task = next((task for task in self if task.call_id == call_id and not task.background), None)
        if task is None:
            return []
        del self._tasks[task.task_id]
        return self._cancellable(task, None)

    def close(self, status: str) -> list[RuntimeEvent]:
        """The process is gone, and every task with it; calls in the background are ``failed`` or ``cancelled``."""
        self._in_background = frozenset()
        end = _LOST if status == "cancelled" else Notification("", "failed", "")
        return [event for task in self for event in self._ended(task, end)]

    def _ended(self, task: Task, end: Notification) -> list[RuntimeEvent]:
        del self._tasks[task.task_id]
        if not task.background or task.kind == "subagent":
            return self._cancellable(task, None)
        if task.kind == "terminal":
            update = terminals.ended(task.entity_id, end.status, end.summary)
        else:
            update = _call_ended(task.entity_id, end)
        if self._is_ours(task):
            update["capabilities"] = None
        return [Update(task.session_id, update)]

    def _is_ours(self, task: Task) -> bool:
        # A client cannot address what runs in a child session.
        return task.session_id == self._root_id

    def _cancellable(self, task: Task, capabilities: Block | None) -> list[RuntimeEvent]:
        if task.kind == "subagent" or not self._is_ours(task):
            return []
        field = "terminalId" if task.kind == "terminal" else "toolCallId"
        task.shown["capabilities"] = capabilities
        update = {"sessionUpdate": task.shown["sessionUpdate"], field: task.entity_id, "capabilities": capabilities}
        return [Update(task.session_id, update)]


@dataclass(frozen=True, slots=True)
class Notification:
    """The end of a task, as it is stored for the model."""

    call_id: str
    status: str
    summary: str


_LOST: Final = Notification("", "killed", "")


def notification(text: str) -> Notification | None:
    """What a ``<task-notification>`` says; ``None`` for other texts, and for news that are no end."""
    if not text.lstrip().startswith("<task-notification>"):
        return None
    fields = {match[1]: match[2].strip() for match in _TAG.finditer(text)}
    if fields.get("status") not in CALL_STATUSES:
        return None
    return Notification(fields.get("tool-use-id", ""), fields["status"], fields.get("summary", ""))


def launched_task(result: ToolResult) -> str | None:
    """The task that goes on in the background behind a call's result; ``None`` when the call is over with it."""
    if result.is_error:
        return None
    structured = as_mapping(result.structured)
    if structured:
        if as_text(structured.get("backgroundTaskId")):
            return as_text(structured["backgroundTaskId"])
        if structured.get("status") in ("async_launched", "remote_launched"):
            return as_text(structured.get("agentId")) or as_text(structured.get("taskId")) or None
        # Monitor; other tools that name a task have done what they did.
        return (as_text(structured.get("taskId")) or None) if "timeoutMs" in structured else None
    return harness.background_task(plain_text(result.content))


def call_ended(call: Json | None, call_id: str, end: Notification) -> Block:
    """The update that ends what a call left in the background."""
    if terminals.is_shell(call):
        return terminals.ended(call_id, end.status, end.summary)
    return _call_ended(call_id, end)


def _call_ended(call_id: str, end: Notification) -> Block:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": CALL_STATUSES[end.status]}
