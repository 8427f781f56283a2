"""Commands as terminals, and what runs in the background, in front of the real Claude Code."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process
from support_wire import Wire, WireError, entities

pytestmark = pytest.mark.real


def bash(command: str, **more: Any) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "Run it", **more})


def script_of(*replies: Any) -> Script:
    return Script([Step("Go", [*replies, [Text("It goes.")]])])


def allow(wire: Wire) -> None:
    wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}})


def folded(updates: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Terminals as a client holds them; ``output`` in bytes."""
    held: dict[str, dict[str, Any]] = {}
    for update in updates:
        if update["sessionUpdate"] == "terminal_update":
            terminal = held.setdefault(update["terminalId"], {"output": b""})
            for name, value in update.items():
                if name == "output":
                    terminal["output"] = base64.b64decode(value["data"])
                elif value is None:
                    terminal.pop(name, None)
                elif name not in ("sessionUpdate", "terminalId"):
                    terminal[name] = value
        elif update["sessionUpdate"] == "terminal_output_chunk":
            held[update["terminalId"]]["output"] += base64.b64decode(update["data"])
    return held


def calls(wire: Wire, session_id: str) -> dict[str, dict[str, Any]]:
    held: dict[str, dict[str, Any]] = {}
    for update in wire.updates(session_id, "tool_call_update"):
        held.setdefault(update["toolCallId"], {}).update(update)
    return held


def backgrounds(wire: Wire, session_id: str) -> list[Any]:
    return [update.get("background") for update in wire.updates(session_id, "state_update")]


async def followed_up(wire: Wire, session_id: str) -> None:
    """Wait until the model has answered to the end of what ran in the background."""
    await wire.until(
        lambda: (
            "Done." in entities(wire.updates(session_id)).values() and wire.states(session_id)[-1] == "idle:end_turn"
        )
    )


async def replayed(env: dict[str, str], session_id: str, cwd: str) -> list[dict[str, Any]]:
    """What another process replays."""
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(session_id, cwd, replay=True)
        return second.wire.updates(session_id)


class TestForeground:
    @pytest.fixture
    def script(self) -> Script:
        return script_of([bash("echo one; echo two >&2; exit 3")], [bash("cd / && pwd")], [bash("grep nothing notes")])

    async def test_a_command_is_a_terminal_live_and_in_replay(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        Path(cwd, "notes").write_text("some\n", encoding="utf-8")
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        live = folded(agent.wire.updates(session_id))
        assert [(t["command"], t["cwd"], t["output"], t["exitStatus"]) for t in live.values()] == [
            ("echo one; echo two >&2; exit 3", cwd, b"one\ntwo\n", {"exitCode": 3}),
            ("cd / && pwd", cwd, b"/\n", {"exitCode": 0}),
            ("grep nothing notes", cwd, b"", {"exitCode": 1}),
        ]
        shown = calls(agent.wire, session_id)
        assert [call["content"] for call in shown.values()] == [[{"type": "terminal", "terminalId": t}] for t in live]
        assert [call["status"] for call in shown.values()] == ["failed", "completed", "completed"]
        # The reference comes after what it refers to.
        first = next(iter(live))
        opened = agent.wire.index(lambda line: _terminal(line) == first)
        assert opened < agent.wire.index(lambda line: first in str(_update(line).get("content")))
        await agent.close()
        assert folded(await replayed(env, session_id, cwd)) == live


class TestOutputWhileItRuns:
    @pytest.fixture
    def script(self) -> Script:
        return script_of([bash("echo begins; while [ ! -e go ]; do sleep 0.1; done; echo ends")])

    async def test_a_long_command_shows_its_output_before_it_ends(self, agent: AgentProcess, cwd: str) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.until(lambda: agent.wire.updates(session_id, "terminal_output_chunk"))
        (terminal,) = folded(agent.wire.updates(session_id)).values()
        assert terminal["output"] == b"begins\n"
        assert terminal["capabilities"] == {"cancel": {}}
        assert backgrounds(agent.wire, session_id)[-1] == []
        Path(cwd, "go").touch()
        await agent.wire.idle(session_id)
        (terminal,) = folded(agent.wire.updates(session_id)).values()
        assert (terminal["output"], terminal["exitStatus"]) == (b"begins\nends\n", {"exitCode": 0})
        assert "capabilities" not in terminal

    async def test_one_command_can_be_cancelled_and_the_turn_goes_on(self, agent: AgentProcess, cwd: str) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.until(lambda: agent.wire.updates(session_id, "terminal_output_chunk"))
        (terminal_id,) = folded(agent.wire.updates(session_id))
        assert await agent.wire.request("terminal/cancel", {"sessionId": session_id, "terminalId": terminal_id}) == {}
        await agent.wire.idle(session_id)
        assert agent.wire.states(session_id)[-1] == "idle:end_turn"
        (terminal,) = folded(agent.wire.updates(session_id)).values()
        assert (terminal["output"], terminal["exitStatus"]) == (b"begins\n", {"exitCode": 137})
        with pytest.raises(WireError) as caught:
            await agent.wire.request("terminal/cancel", {"sessionId": session_id, "terminalId": terminal_id})
        assert caught.value.code == -32602
        assert caught.value.data["field"] == "terminalId"


def _update(line: Any) -> Mapping[str, Any]:
    return line.get("params", {}).get("update", {}) if isinstance(line, dict) else {}


def _terminal(line: Any) -> str | None:
    return _update(line).get("terminalId")


class TestBackgroundCommands:
    @pytest.fixture
    def script(self) -> Script:
        command = "echo begins; while [ ! -e go ]; do sleep 0.1; done; echo ends; exit 5"
        return script_of([bash(command, run_in_background=True)])

    async def test_it_is_listed_reports_and_ends(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        await agent.wire.until(lambda: agent.wire.updates(session_id, "terminal_output_chunk"))
        (terminal_id,) = folded(agent.wire.updates(session_id))
        item = {"type": "terminal", "terminalId": terminal_id}
        assert backgrounds(agent.wire, session_id)[-1] == [item]
        (call,) = calls(agent.wire, session_id).values()
        assert call["status"] == "completed"
        # Announced before it is listed (UPD-8).
        listed = agent.wire.index(lambda line: item in (_update(line).get("background") or []))
        assert agent.wire.index(lambda line: _terminal(line) == terminal_id) < listed
        # A client that comes now is told of it before the list (RES-11), its output so far included.
        start = len(agent.wire.lines)
        await agent.wire.resume(session_id, cwd)
        told = [dict(_update(line)) for line in agent.wire.lines[start:] if _update(line)]
        kinds = [update["sessionUpdate"] for update in told]
        assert kinds.index("terminal_update") < kinds.index("state_update")
        assert folded(told)[terminal_id]["output"] == b"begins\n"
        assert folded(told)[terminal_id]["capabilities"] == {"cancel": {}}
        Path(cwd, "go").touch()
        # Its end starts a turn of its own, without a message of the user.
        await followed_up(agent.wire, session_id)
        (live,) = folded(agent.wire.updates(session_id)).values()
        assert (live["output"], live["exitStatus"]) == (b"begins\nends\n", {"exitCode": 5})
        assert "capabilities" not in live
        assert backgrounds(agent.wire, session_id)[-1] == []
        ended = agent.wire.index(lambda line: "exitStatus" in _update(line))
        delisted = max(i for i, line in enumerate(agent.wire.lines) if item in (_update(line).get("background") or []))
        assert ended < agent.wire.update_index(session_id, "state_update", delisted + 1)
        assert len(agent.wire.updates(session_id, "user_message")) == 1
        for words in ("exited with code", "running in background", "task-notification"):
            assert words not in json.dumps(agent.wire.updates(session_id))
        start = len(agent.wire.lines)
        await agent.wire.resume(session_id, cwd, replay=True)
        assert folded(_update(line) for line in agent.wire.lines[start:] if _update(line)) == {terminal_id: live}
        await agent.close()
        (again,) = folded(await replayed(env, session_id, cwd)).values()
        assert again == live

    async def test_it_can_be_cancelled(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        await agent.wire.until(lambda: agent.wire.updates(session_id, "terminal_output_chunk"))
        (terminal_id,) = folded(agent.wire.updates(session_id))
        states = agent.wire.states(session_id)
        await agent.wire.request("terminal/cancel", {"sessionId": session_id, "terminalId": terminal_id})
        await agent.wire.until(lambda: backgrounds(agent.wire, session_id)[-1] == [])
        (live,) = folded(agent.wire.updates(session_id)).values()
        assert (live["output"], live["exitStatus"]) == (b"begins\n", {"signal": "SIGKILL"})
        # The foreground was idle and stays so: the list alone changed.
        assert agent.wire.states(session_id) == [*states, "idle"]
        await agent.close()
        (again,) = folded(await replayed(env, session_id, cwd)).values()
        assert again == live

    async def test_a_close_ends_it(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        close = await agent.wire.begin("session/close", {"sessionId": session_id})
        await agent.wire.answer(close)
        (terminal,) = folded(agent.wire.updates(session_id)).values()
        assert terminal["exitStatus"] == {"signal": "SIGKILL"}
        assert backgrounds(agent.wire, session_id)[-1] == []
        assert max(i for i, line in enumerate(agent.wire.lines) if _update(line)) < agent.wire.answer_index(close)
        # It was stopped in good order, so its end is stored too.
        assert folded(await replayed(env, session_id, cwd)) == folded(agent.wire.updates(session_id))


class TestMovedToTheBackground:
    @pytest.fixture
    def script(self) -> Script:
        return script_of([bash("echo begins; while [ ! -e go ]; do sleep 0.1; done; echo ends", timeout=500)])

    async def test_a_command_that_exceeds_its_time_goes_on_in_the_background(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        (terminal_id,) = folded(agent.wire.updates(session_id))
        assert backgrounds(agent.wire, session_id)[-1] == [{"type": "terminal", "terminalId": terminal_id}]
        Path(cwd, "go").touch()
        await followed_up(agent.wire, session_id)
        (live,) = folded(agent.wire.updates(session_id)).values()
        assert (live["output"], live["exitStatus"]) == (b"begins\nends\n", {"exitCode": 0})
        await agent.close()
        (again,) = folded(await replayed(env, session_id, cwd)).values()
        assert again == live


class TestWatchers:
    @pytest.fixture
    def env(self, env: dict[str, str]) -> dict[str, str]:
        return env | {"ENABLE_TOOL_SEARCH": "false"}

    @pytest.fixture
    def script(self) -> Script:
        watch = ToolUse(
            "Monitor",
            {"command": "while [ ! -e go ]; do sleep 0.1; done", "description": "Watch it", "timeout_ms": 60000},
        )
        return script_of([watch])

    async def test_a_watcher_is_a_call_that_goes_on_and_can_be_cancelled(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Go")
        await agent.wire.idle(session_id)
        (call_id,) = calls(agent.wire, session_id)
        call = calls(agent.wire, session_id)[call_id]
        assert (call["title"], call["status"], call["capabilities"]) == ("Watch it", "in_progress", {"cancel": {}})
        assert backgrounds(agent.wire, session_id)[-1] == [{"type": "tool_call", "toolCallId": call_id}]
        start = len(agent.wire.lines)
        await agent.wire.resume(session_id, cwd)
        told = [_update(line) for line in agent.wire.lines[start:] if _update(line)]
        assert [u["status"] for u in told if u["sessionUpdate"] == "tool_call_update"] == ["in_progress"]
        await agent.wire.request("tool_call/cancel", {"sessionId": session_id, "toolCallId": call_id})
        await agent.wire.until(lambda: backgrounds(agent.wire, session_id)[-1] == [])
        call = calls(agent.wire, session_id)[call_id]
        assert (call["status"], call["capabilities"]) == ("cancelled", None)
        assert "Monitor started" not in json.dumps(agent.wire.updates(session_id))
        with pytest.raises(WireError) as caught:
            await agent.wire.request("tool_call/cancel", {"sessionId": session_id, "toolCallId": call_id})
        assert (caught.value.code, caught.value.data["field"]) == (-32602, "toolCallId")
        await agent.close()
        again = [u for u in await replayed(env, session_id, cwd) if u["sessionUpdate"] == "tool_call_update"]
        assert again[-1]["status"] == "cancelled"


class TestBackgroundSubagents:
    @pytest.fixture
    def script(self) -> Script:
        task = ToolUse(
            "Task",
            {
                "description": "Look around",
                "prompt": "Child, look",
                "subagent_type": "general-purpose",
                "run_in_background": True,
            },
        )
        wait = bash("while [ ! -e go ]; do sleep 0.1; done")
        return Script(
            [Step("Child, look", [[wait], [Text("I looked.")]]), Step("Delegate", [[task], [Text("It goes.")]])]
        )

    async def test_it_is_listed_and_can_be_cancelled(
        self, agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
    ) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Delegate")
        await agent.wire.idle(session_id)
        (call_id,) = calls(agent.wire, session_id)
        assert calls(agent.wire, session_id)[call_id]["status"] == "in_progress"
        assert backgrounds(agent.wire, session_id)[-1] == [{"type": "tool_call", "toolCallId": call_id}]
        await agent.wire.request("tool_call/cancel", {"sessionId": session_id, "toolCallId": call_id})
        child_id = agent.wire.updates(session_id, "subagent_update")[0]["sessionId"]
        await agent.wire.until(lambda: agent.wire.states(child_id)[-1:] == ["idle:cancelled"])
        await agent.wire.until(lambda: backgrounds(agent.wire, session_id)[-1] == [])
        assert calls(agent.wire, session_id)[call_id]["status"] == "cancelled"

    async def test_its_end_completes_the_call_live_and_in_replay(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        allow(agent.wire)
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Delegate")
        await agent.wire.idle(session_id)
        Path(cwd, "go").touch()
        await agent.wire.until(lambda: "idle:end_turn" in agent.wire.states(session_id)[-1:])
        (call_id,) = calls(agent.wire, session_id)
        await agent.wire.until(lambda: calls(agent.wire, session_id)[call_id]["status"] == "completed")
        await agent.wire.idle(session_id, 2)
        assert backgrounds(agent.wire, session_id)[-1] == []
        await agent.close()
        again = [u for u in await replayed(env, session_id, cwd) if u["sessionUpdate"] == "tool_call_update"]
        assert [u["status"] for u in again if u["toolCallId"] == call_id][-1] == "completed"
