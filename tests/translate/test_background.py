"""Tasks beside the conversation: what is listed, what can be stopped, and how each ends."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.runtime.events import RuntimeEvent, Update
from sayagain_claude.translate.background import notification
from sayagain_claude.translate.live import LiveTranslator
from translate.rows import SESSION, answer, call, prompt, read, result, store

STRUCTURED = {"stdout": "", "stderr": "", "backgroundTaskId": "b1"}
TERMINAL = {"type": "terminal", "terminalId": "t1"}


def system(subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, **fields}


def started(**fields: Any) -> dict[str, Any]:
    frame = {"task_id": "b1", "tool_use_id": "t1", "task_type": "local_bash", "is_backgrounded": True}
    return system("task_started", **(frame | fields))


def changed(*task_ids: str) -> dict[str, Any]:
    return system("background_tasks_changed", tasks=[{"task_id": task_id} for task_id in task_ids])


def notified(status: str = "completed", summary: str = "completed (exit code 0)") -> dict[str, Any]:
    return system("task_notification", task_id="b1", tool_use_id="t1", status=status, summary=summary)


def updates(events: list[RuntimeEvent], kind: str) -> list[dict[str, Any]]:
    found = [dict(event.update) for event in events if isinstance(event, Update)]
    return [{k: v for k, v in u.items() if k != "sessionUpdate"} for u in found if u["sessionUpdate"] == kind]


@pytest.fixture
def translator() -> LiveTranslator:
    translator = LiveTranslator(SESSION, "/project")
    translator.frame(answer("m1", call("t1", command="c")))
    return translator


def test_a_command_in_the_background_from_its_start_to_its_end(translator: LiveTranslator) -> None:
    assert translator.frame(changed("b1")) == []
    assert translator.tasks.items(SESSION) == []  # listed when it is announced, not before
    events = translator.frame(started())
    assert updates(events, "terminal_update") == [{"terminalId": "t1", "capabilities": {"cancel": {}}}]
    assert translator.tasks.items(SESSION) == [TERMINAL]
    assert updates(translator.frame(result("t1", "…", STRUCTURED)), "terminal_update") == []
    translator.frame({"type": "result"})
    assert translator.frame(system("task_updated", task_id="b1", patch={"status": "completed"})) == []
    events = translator.frame(notified())
    end = {"terminalId": "t1", "exitStatus": {"exitCode": 0}, "capabilities": None}
    assert updates(events, "terminal_update") == [end]
    assert translator.tasks.items(SESSION) == []
    assert translator.frame(notified()) == []


def test_a_command_in_the_foreground_ends_with_its_result(translator: LiveTranslator) -> None:
    translator.frame(started(is_backgrounded=False))
    assert translator.tasks.items(SESSION) == []
    assert translator.tasks.find("terminal", "t1") is not None
    assert translator.frame(notified()) == []
    events = translator.frame(result("t1", "out", {"stdout": "out", "stderr": ""}))
    assert [update.get("exitStatus") for update in updates(events, "terminal_update")] == [{"exitCode": 0}, None]
    assert updates(events, "terminal_update")[-1] == {"terminalId": "t1", "capabilities": None}
    assert translator.tasks.find("terminal", "t1") is None


def test_a_command_that_moves_to_the_background_is_listed_then(translator: LiveTranslator) -> None:
    translator.frame(started(is_backgrounded=False))
    translator.frame(changed("b1"))
    assert translator.tasks.items(SESSION) == [TERMINAL]


def test_a_task_that_is_gone_without_a_word_has_ended(translator: LiveTranslator) -> None:
    translator.frame(changed("b1"))
    translator.frame(started())
    translator.frame(result("t1", "…", STRUCTURED))
    [end] = updates(translator.frame(changed()), "terminal_update")
    assert end["exitStatus"] == {"signal": "SIGKILL"}
    assert translator.tasks.items(SESSION) == []


@pytest.mark.parametrize(("status", "end"), [("cancelled", {"signal": "SIGKILL"}), ("failed", {})])
def test_the_end_of_the_process_ends_what_runs_behind(translator: LiveTranslator, status: str, end: Any) -> None:
    translator.frame(started())
    translator.frame(result("t1", "…", STRUCTURED))
    [update] = updates(translator.close_calls(status), "terminal_update")
    assert (update["exitStatus"], update["capabilities"]) == (end, None)


def test_what_runs_in_a_child_cannot_be_addressed(translator: LiveTranslator) -> None:
    translator.frame(system("task_started", task_id="a1", tool_use_id="t0", task_type="local_agent"))
    of_child = {"agent_id": "a1", "parent_tool_use_id": "t0"}
    translator.frame(answer("c1", call("t9", command="c")) | of_child)
    events = translator.frame(started(task_id="b9", tool_use_id="t9"))
    assert updates(events, "terminal_update") == []
    assert translator.tasks.find("terminal", "t9") is None
    assert translator.tasks.items(f"{SESSION}.a1") == [{"type": "terminal", "terminalId": "t9"}]
    assert translator.tasks.items(SESSION) == []


def words(status: str, summary: str = "completed (exit code 0)") -> str:
    return (
        f"<task-notification>\n<task-id>b1</task-id>\n<tool-use-id>t1</tool-use-id>\n"
        f"<status>{status}</status>\n<summary>{summary}</summary>\n</task-notification>"
    )


def test_only_an_end_is_an_end() -> None:
    assert notification("Hello") is None
    assert notification("<task-notification><task-id>b1</task-id><event>x</event></task-notification>") is None
    assert notification(words("running")) is None
    end = notification(words("failed", "failed with exit code 3"))
    assert end is not None
    assert (end.call_id, end.status, end.summary) == ("t1", "failed", "failed with exit code 3")


@pytest.mark.parametrize("stored_as", ["queue", "row"])
def test_the_end_of_a_command_is_replayed_from_where_it_is_stored(tmp_path: Any, stored_as: str) -> None:
    if stored_as == "queue":
        end = {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": words("completed")}
    else:
        end = prompt(words("completed"), "u2", promptSource="system", origin={"kind": "task-notification"})
    rows = [prompt("Hi", "u1"), answer("m1", call("t1", command="c")), result("t1", "…", STRUCTURED), end]
    entries = read(store(tmp_path, rows))
    terminals = [
        e.update for e in entries if getattr(e, "update", None) and e.update["sessionUpdate"] == "terminal_update"
    ]  # type: ignore[union-attr]
    assert terminals[0]["command"] == "c"
    assert [update["exitStatus"] for update in terminals if "exitStatus" in update] == [{"exitCode": 0}]
