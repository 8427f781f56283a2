"""Every line of real runs, both ways, against the published schema and the Python SDK's models."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import Hold, Step, Text, ToolUse
from sayagain.testing.recorder import in_project
from sayagain.testing.scenarios import SCENARIOS, Scenario
from support_claude import claude_environment
from support_process import start_agent
from support_schema import WireChecker, WireFault, needs_oracles
from support_wire import Wire, WireError, prompt_params, text

pytestmark = pytest.mark.real

MODELS = Path(__file__).with_name("clients") / "models.py"
SDK_FAULT = "session/update subagent_update: the models fail: unhashable type: 'dict'"
"""This kind of update is newer than the models, and they take its ``state``, an object, for a tag."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="

Line = tuple[str, dict[str, Any]]


class Run:
    """One agent process, and a client that does what a test says."""

    def __init__(self, wire: Wire, service: MessagesService, cwd: Path) -> None:
        self.wire = wire
        self.service = service
        self.cwd = str(cwd)
        self.session_id = ""

    async def ask(self, prompt: str, *, turns: int = 1) -> None:
        """Prompt, and wait until the work has ended, ``turns`` pieces of it."""
        await self.ask_blocks([text(prompt)], turns=turns)

    async def ask_blocks(self, blocks: list[dict[str, Any]], *, turns: int = 1) -> None:
        ended = sum(state.startswith("idle") for state in self.wire.states(self.session_id))
        params = {"sessionId": self.session_id, "prompt": blocks, "idempotencyKey": f"key-{len(self.wire.lines)}"}
        try:
            await self.wire.request("session/prompt", params)
        except WireError:
            return
        await self.wire.idle(self.session_id, ended + turns)

    async def replay(self) -> None:
        """Close the session and have it replayed."""
        await self.wire.request("session/close", {"sessionId": self.session_id})
        await self.wire.resume(self.session_id, self.cwd, replay=True)


Play = Callable[[Run], Awaitable[None]]


def asking(*prompts: str, turns: int = 1) -> Play:
    """The prompts one after the other, of which each takes so many turns."""

    async def play(run: Run) -> None:
        for prompt in prompts:
            await run.ask(prompt, turns=turns)

    return play


async def _background_child(run: Run) -> None:
    run.service.release("child")
    await run.ask("Delegate.", turns=2)


async def _cancelled_permission(run: Run) -> None:
    run.wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "cancelled"}})
    await run.ask("Touch it.")


async def _rejected(run: Run) -> None:
    run.wire.handle("session/request_permission", choose("reject_once"))
    await run.ask("Touch it.")


PLAYS: dict[str, Play] = {
    "plain": asking("Say hello.", "Say it again."),
    "thinking": asking("Think first.", "Think and do."),
    "refusal": asking("Do evil."),
    "max_tokens": asking("Write a lot."),
    "api_error_400": asking("Fail."),
    "bash": asking("Run it."),
    "background_bash": asking("Run it behind.", turns=2),
    "read": asking("Read it."),
    "edit": asking("Edit it."),
    "notebook": asking("Edit the notebook."),
    "parallel_tools": asking("Do three."),
    "todos": asking("Plan it."),
    "tasks": asking("Plan it."),
    "questions": asking("Ask me."),
    "permission_allow": asking("Touch it."),
    "permission_reject": _rejected,
    "cancel_permission": _cancelled_permission,
    "hook_blocks": asking("Forbidden.", "Fine."),
    "subagent_foreground": asking("Delegate."),
    "subagent_background": _background_child,
    "subagent_nested": asking("Delegate."),
    "subagents_parallel": asking("Delegate twice."),
    "compaction": asking("Run one.", "/compact", "Say two."),
    "compaction_auto": asking("Fill it.", "Go on."),
    "slash_commands": asking("Say hello.", "/context", "/cost", "/model", "/status", "/nosuch thing"),
}
"""How a client plays the scenarios that the recorder has scripts for."""


def choose(option_id: str) -> Callable[[Any], dict[str, Any]]:
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option_id}}


def allow(params: Any) -> dict[str, Any]:
    option = next((o for o in params["options"] if o["kind"] == "allow_once"), params["options"][0])
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def running(folder: Path, scenario: Scenario, models: Models) -> AsyncIterator[Run]:
    """The scenario's agent with a new session; every line of it is checked at the end."""
    cwd = folder / "project"
    async with serve_messages(in_project(scenario.script(), cwd)) as service:
        env = claude_environment(folder, service, **scenario.environment)
        for name, content in scenario.files.items():
            (cwd / name).write_text(content, encoding="utf-8")
        if scenario.settings is not None:
            (folder / "config" / "settings.json").write_text(json.dumps(scenario.settings), encoding="utf-8")
        async with start_agent("claude", env) as agent:
            run = Run(agent.wire, service, cwd)
            agent.wire.handle("session/request_permission", allow)
            await agent.wire.initialize()
            run.session_id = await agent.wire.new(run.cwd)
            yield run
    lines = [(side, json.loads(line)) for side, line in agent.passed]
    check_schema(lines)
    assert models.complaints(lines) == []


def check_schema(lines: list[Line]) -> None:
    checker = WireChecker()
    for side, line in lines:
        (checker.agent_sent if side == "agent" else checker.client_sent)(line)


class Models:
    """The Python SDK's models, in an interpreter that has them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def complaints(self, lines: list[Line]) -> list[str]:
        """What they have against a connection."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(lines) + "\n")
        self._process.stdin.flush()
        found: list[str] = json.loads(self._process.stdout.readline())
        return [complaint for complaint in found if complaint != SDK_FAULT]


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    """One interpreter for all: the models take a second to build."""
    python = Path(os.environ["SAYAGAIN_ORACLES"], "python-v2", "bin", "python")
    with subprocess.Popen([python, MODELS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Models(process)


@needs_oracles
@pytest.mark.parametrize("name", PLAYS)
async def test_every_line_of_a_run_is_valid(name: str, tmp_path: Path, models: Models) -> None:
    async with running(tmp_path, SCENARIOS[name], models) as run:
        await PLAYS[name](run)
        await run.replay()


def own(*steps: Step) -> Scenario:
    return replace(SCENARIOS["plain"], steps=steps)


@needs_oracles
async def test_every_line_of_prompts_with_all_kinds_of_content_is_valid(tmp_path: Path, models: Models) -> None:
    async with running(tmp_path, own(), models) as run:
        await run.ask_blocks(
            [
                text("Look at these"),
                {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                {"type": "resource_link", "name": "notes", "uri": "file:///notes.txt"},
                {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "t", "mimeType": "text/plain"}},
            ]
        )
        await run.replay()


@needs_oracles
async def test_every_line_of_cancelled_and_refused_requests_is_valid(tmp_path: Path, models: Models) -> None:
    work = Step("Long work", [[Text("I begin "), Hold("work"), Text("and end.")]])
    tool = Step("Write", [[ToolUse("Write", {"file_path": "@/new.txt", "content": "one\n"})], [Text("Written.")]])
    async with running(tmp_path, own(work, tool), models) as run:
        wire, session_id = run.wire, run.session_id
        await wire.prompt(session_id, "Long work", key="1")
        await run.service.held("work")
        held = await wire.begin("session/prompt", prompt_params(session_id, "Held", "2"))
        await wire.cancel(held)
        with pytest.raises(WireError):
            await wire.answer(held)
        # A replay in the middle of the work, then the end of it.
        await wire.resume(session_id, run.cwd, replay=True)
        await wire.notify("session/cancel", {"sessionId": session_id})
        await wire.idle(session_id)
        # A question that a cancel withdraws.
        wire.handle("session/request_permission", None)
        await wire.prompt(session_id, "Write")
        await wire.until(lambda: wire.asked)
        await wire.notify("session/cancel", {"sessionId": session_id})
        await wire.idle(session_id, 2)
        refused = [
            ("session/prompt", prompt_params(session_id, "Other words", "1")),
            ("session/prompt", prompt_params("00000000-0000-4000-8000-000000000000", "Nobody")),
            ("session/resume", {"sessionId": "00000000-0000-4000-8000-000000000000", "cwd": run.cwd}),
            ("session/resume", {"sessionId": session_id, "cwd": run.cwd, "replayFrom": {"type": "later"}}),
            ("session/list", {"cursor": "made-up"}),
            ("session/new", {"cwd": str(Path(run.cwd, "missing"))}),
            ("auth/login", {"methodId": "made-up"}),
            ("session/set_config_option", {"sessionId": session_id, "configId": "x", "type": "id", "value": "y"}),
        ]
        for method, params in refused:
            with pytest.raises(WireError):
                await wire.request(method, params)
        await run.replay()


@needs_oracles
async def test_every_line_about_the_list_and_copies_of_sessions_is_valid(tmp_path: Path, models: Models) -> None:
    async with running(tmp_path, SCENARIOS["plain"], models) as run:
        wire, cwd = run.wire, run.cwd
        await run.ask("Say hello.")
        fork = await wire.request("session/fork", {"sessionId": run.session_id, "cwd": cwd})
        await wire.request("session/list", {"cwd": cwd})
        await wire.request("session/list", {})
        await wire.prompt(fork["sessionId"], "Say it again.")
        await wire.idle(fork["sessionId"])
        await wire.request("session/close", {"sessionId": fork["sessionId"]})
        await wire.request("session/delete", {"sessionId": fork["sessionId"]})
        await wire.resume(run.session_id, cwd)


@needs_oracles
@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text"}},
        {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [{"type": "command", "name": "n", "description": "d", "input": {"type": "text"}}],
        },
        {"sessionUpdate": "state_update", "state": "idle", "stopReason": 3},
    ],
    ids=lambda update: update["sessionUpdate"],
)
def test_a_line_that_is_not_valid_is_found(update: dict[str, Any], models: Models) -> None:
    params = {"sessionId": "s", "update": update}
    lines: list[Line] = [("agent", {"jsonrpc": "2.0", "method": "session/update", "params": params})]
    with pytest.raises(WireFault):
        check_schema(lines)
    assert models.complaints(lines)
