"""Work beside the conversation, as clients see it: output while it is printed, background lists, what a resume needs.

Two moments matter for each update: when it is made, and when the agent core takes it. A client that attaches is told
what the core has taken, and nothing twice; so what a snapshot says is noted at the second moment.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import anyio

from sayagain.errors import InvalidParams
from sayagain.runtime.events import Foreground, ForegroundState, RuntimeEvent, Update
from sayagain_claude.tails import FIRST_PAUSE, KEPT, LONGEST_PAUSE, Tails
from sayagain_claude.translate import terminals
from sayagain_claude.translate.background import Task, TaskKind, Tasks
from sayagain_claude.translate.blocks import Block, as_list, as_mapping, as_text

__all__ = ["Beside"]

Emit: TypeAlias = Callable[[Iterable[RuntimeEvent]], Awaitable[None]]

_FIELDS: Final = {"terminal": "terminalId", "tool_call": "toolCallId"}


class Beside:
    """For one session. ``tasks`` are the translator's; ``emit`` sends events in order."""

    def __init__(self, session_id: str, env: Mapping[str, str], tasks: Tasks, emit: Emit) -> None:
        self._session_id = session_id
        self._tasks = tasks
        self._emit = emit
        self._tails = Tails(session_id, env)
        self._watching = False
        self._states: dict[str, ForegroundState] = {}
        self._reported: dict[str, Sequence[Block]] = {}
        self._shown: dict[tuple[str, str], Block] = {}
        self._taken: Sequence[Mapping[str, Any]] = ()
        self._output: dict[str, bytes] = {}

    # Made.

    def stamped(self, event: Foreground) -> Foreground:
        """The event with the background list, which is on every state update (UPD-8)."""
        items = self._tasks.items(event.session_id)
        self._states[event.session_id] = event.state
        self._reported[event.session_id] = items
        return replace(event, background=items)

    async def before(self, frame: Mapping[str, Any]) -> None:
        """Before a frame is translated: what a task printed last comes before its end."""
        match frame.get("subtype"):
            case "task_notification":
                await self._finish(task for task in self._tasks if task.task_id == frame.get("task_id"))
            case "background_tasks_changed":
                listed = {as_text(as_mapping(task).get("task_id")) for task in as_list(frame.get("tasks"))}
                await self._finish(task for task in self._tasks if task.task_id not in listed)
            case _:
                pass

    async def after(self) -> bool:
        """After a frame was translated; true when output has to be watched for, by :meth:`watch`."""
        tasks = {task.task_id: task for task in self._tasks}
        for task in tasks.values():
            if task.background and task.kind != "subagent":
                self._shown[task.kind, task.entity_id] = task.shown
            if task.kind == "terminal":
                self._tails.follow(task.task_id, task.session_id, task.entity_id)
        self._tails.keep_only(tasks)
        for session_id, state in self._states.items():
            if self._tasks.items(session_id) != self._reported[session_id]:
                await self._emit([Foreground(session_id, state)])
        start = len(self._tails) > 0 and not self._watching
        self._watching = self._watching or start
        return start

    async def ending(self) -> None:
        """The process is gone: what was printed is shown, the calls end after it."""
        await self._finish(self._tasks)

    async def watch(self) -> None:
        """Report what commands print, until none runs."""
        pause = FIRST_PAUSE
        try:
            while len(self._tails):
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                # One by one: while a client is slow, a command may end, and its last word comes after this.
                for task_id in self._tails:
                    if news := self._tails.read(task_id):
                        pause = FIRST_PAUSE
                        await self._emit([Update(session_id, update) for session_id, update in news])
        finally:
            self._watching = False

    async def _finish(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.background:
                await self._emit([Update(owner, update) for owner, update in self._tails.finish(task.task_id)])

    # Taken.

    def taken(self, event: RuntimeEvent) -> None:
        """The core takes an event."""
        if isinstance(event, Foreground):
            if event.session_id == self._session_id:
                self._taken = event.background or ()
                self._forget()
            return
        if not isinstance(event, Update) or event.session_id != self._session_id:
            return
        update = event.update
        if update["sessionUpdate"] == "terminal_output_chunk":
            terminal_id = update["terminalId"]
            self._output[terminal_id] = (self._output.get(terminal_id, b"") + base64.b64decode(update["data"]))[-KEPT:]
        elif update["sessionUpdate"] == "terminal_update":
            if "exitStatus" in update:
                self._output.pop(update["terminalId"], None)
            elif "output" in update:
                self._output[update["terminalId"]] = base64.b64decode(update["output"]["data"])

    def _forget(self) -> None:
        known = {(task.kind, task.entity_id) for task in self._tasks}
        known |= {(item["type"], item.get(_FIELDS.get(item["type"], ""), "")) for item in self._taken}
        self._shown = {key: shown for key, shown in self._shown.items() if key in known}

    def snapshot(self) -> list[Mapping[str, Any]]:
        """The items of the background list as they are now, for a client that attaches (RES-11)."""
        updates: list[Mapping[str, Any]] = []
        for item in self._taken:
            key = (item["type"], item.get(_FIELDS.get(item["type"], ""), ""))
            if key in self._shown:
                update = dict(self._shown[key])
                if key[0] == "terminal" and (output := self._output.get(key[1])):
                    update["output"] = terminals.snapshot(key[1], output)["output"]
                updates.append(update)
        return updates

    def running(self) -> list[str]:
        """Tasks whose output is being reported."""
        return [task.task_id for task in self._tasks if task.task_id in self._tails]

    def commands(self) -> list[str]:
        """Tasks that are commands. Those of subagents are not: to stop one starts a turn, which asks the model."""
        return [task.task_id for task in self._tasks if task.kind == "terminal" or task.shown.get("name") == "Monitor"]

    def task_of(self, kind: TaskKind, entity_id: str) -> str:
        """The task that a client may stop under this id; raises :class:`InvalidParams` (TC-4)."""
        task = self._tasks.find(kind, entity_id)
        if task is None:
            raise InvalidParams(_FIELDS.get(kind, ""), "nothing that can be cancelled runs under this id")
        return task.task_id
