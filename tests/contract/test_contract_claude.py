"""The real Claude Code keeps the promises of the seam, in this process, without our agent."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil
import pytest

from sayagain.runtime.seam import Runtime, RuntimeSession
from sayagain.testing.contract import CHECKS, Behaviour, Check
from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import Hold, Script, Step, Text, ToolUse
from sayagain_claude.runtime import ClaudeRuntime
from sayagain_claude.session import ClaudeSession
from support_claude import claude_environment, stored_ids, transcript

pytestmark = pytest.mark.real

HELD = "held"
CHILD = "Child, look around."


def script() -> Script:
    tool = ToolUse("Bash", {"command": "touch new.txt", "description": "Touch it"})
    child = {
        "description": "Look around",
        "prompt": CHILD,
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    return Script(
        [
            Step(CHILD, [[Text("I looked.")]]),
            Step(Behaviour.HOLD.value, [[Text("I begin "), Hold(HELD)]]),
            Step(Behaviour.ASK.value, [[tool], [Text("Touched.")]]),
            Step(Behaviour.DELEGATE.value, [[ToolUse("Task", child)], [Text("It is done.")]]),
        ],
        (Text("The answer."),),
    )


class ClaudeDriver:
    def __init__(self, folder: Path, service: MessagesService) -> None:
        self.cwd = str(folder / "project")
        self.other_cwd = str(folder / "home")
        self._service = service
        self._env = claude_environment(folder, service)
        refuse = f"if grep -qF {shlex.quote(Behaviour.REFUSE.value)}; then echo not this >&2; exit 2; fi"
        hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": refuse}]}]}
        (folder / "config" / "settings.json").write_text(json.dumps({"hooks": hooks}), encoding="utf-8")

    def runtime(self) -> Runtime:
        return ClaudeRuntime(self._env)

    def stored(self, session_id: str) -> Sequence[str]:
        # The CLI stores notes of its own as user messages, with random ids; ours are derived or sorted by time.
        return [found for found in stored_ids(self._env, session_id) if uuid.UUID(found).version != 4]

    async def held(self) -> None:
        await self._service.held(HELD)
        self._service.hold(HELD)

    async def freeze(self, session: RuntimeSession) -> None:
        (await self._process(session)).suspend()

    async def kill(self, session: RuntimeSession) -> None:
        (await self._process(session)).kill()

    def damage(self, session_id: str) -> None:
        path = transcript(self._env, session_id)
        path.rename(path.with_suffix(".saved"))
        path.mkdir()

    async def _process(self, session: RuntimeSession) -> psutil.Process:
        """The CLI itself, which runs below the guard."""
        assert isinstance(session, ClaudeSession)
        (found,) = (
            process
            for process in psutil.Process().children(recursive=True)
            if any(argument.endswith(f"={session.session_id}") for argument in process.cmdline())
            and "--session-mirror" in process.cmdline()
            and process.name().startswith("claude")
        )
        return found


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[ClaudeDriver]:
    async with serve_messages(script()) as service:
        yield ClaudeDriver(tmp_path, service)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_claude_code(check: Check, driver: ClaudeDriver) -> None:
    await check(driver)
