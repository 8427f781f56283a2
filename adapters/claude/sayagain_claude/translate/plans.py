"""Todo lists and tasks as one plan of a session, an approved plan as another (UPD-10)."""

from __future__ import annotations

from typing import Final

from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text
from sayagain_claude.translate.results import ToolResult

__all__ = ["APPROVED_ID", "PLAN_ID", "Plans"]

PLAN_ID: Final = "todos"

APPROVED_ID: Final = "plan"
"""The plan that plan mode ended with; the next one that is approved replaces it."""

_STATUSES: Final = {"pending": "pending", "in_progress": "in_progress", "completed": "completed"}


_TOOLS: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "ExitPlanMode"})


def _entry(text: str, status: str) -> Block:
    # The CLI knows no priorities; one is required.
    return {"content": text, "priority": "medium", "status": _STATUSES.get(status, "pending")}


class Plans:
    """Follows the planning tools' results and gives the whole plan after each change."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Block]] = {}

    def finished(self, session_id: str, call: Json, result: ToolResult, status: str) -> list[Block]:
        """The plan after a call of a planning tool; nothing for other tools, failed calls and calls without effect."""
        name = as_text(call.get("name"))
        if status != "completed" or name not in _TOOLS:
            return []
        input_, structured = as_mapping(call.get("input")), as_mapping(result.structured)
        if name == "ExitPlanMode":
            # The plan may have been written to a file before, or stand in the call alone (measured).
            text = as_text(structured.get("plan")) or as_text(input_.get("plan"))
            return [_approved(text)] if text.strip() else []
        if name == "TodoWrite":
            todos = [as_mapping(todo) for todo in as_list(input_.get("todos"))]
            return [_plan([_entry(as_text(t.get("content")), as_text(t.get("status"))) for t in todos])]
        tasks = self._tasks.setdefault(session_id, {})
        before = {key: dict(task) for key, task in tasks.items()}
        if name == "TaskList":
            for task in map(as_mapping, as_list(structured.get("tasks"))):
                if as_text(task.get("id")):
                    tasks[as_text(task["id"])] = _entry(as_text(task.get("subject")), as_text(task.get("status")))
        elif name == "TaskCreate":
            task = as_mapping(structured.get("task"))
            if as_text(task.get("id")):
                tasks[as_text(task["id"])] = _entry(as_text(task.get("subject")), "pending")
        elif structured.get("success") is True:
            self._change(tasks, as_text(input_.get("taskId")), input_)
        return [_plan(list(tasks.values()))] if tasks != before else []

    def _change(self, tasks: dict[str, Block], task_id: str, input_: Json) -> None:
        status = as_text(input_.get("status"))
        if status == "deleted":
            tasks.pop(task_id, None)
        elif task_id in tasks:
            if status in _STATUSES:
                tasks[task_id]["status"] = status
            if as_text(input_.get("subject")):
                tasks[task_id]["content"] = as_text(input_["subject"])


def _plan(entries: list[Block]) -> Block:
    return {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": PLAN_ID, "entries": entries}}


def _approved(text: str) -> Block:
    return {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": APPROVED_ID, "content": text}}
