"""The real Codex keeps the promises of the seam, in this process, without our agent."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil
import pytest

from sayagain.errors import HistoryUnreadable
from sayagain.identity import fresh_message_id
from sayagain.runtime.events import Foreground
from sayagain.runtime.history import UserTurn
from sayagain.runtime.seam import Runtime, RuntimeSession, SessionSetup
from sayagain.testing.contract import CHECKS, Behaviour, Check
from sayagain.testing.responses_api import ResponsesService, serve_responses
from sayagain.testing.responses_script import Hold, Script, Step, Text, exec_command, spawn_agent
from sayagain_codex.runtime import CodexRuntime
from sayagain_codex.session import CodexSession
from support_codex import codex_environment, rollout, stored_ids, trust_hook

pytestmark = pytest.mark.real

HELD = "held"
CHILD = "Child, look around."


def script() -> Script:
    return Script(
        [
            Step(CHILD, [[Text("I looked.")]]),
            Step(Behaviour.HOLD.value, [[Text("I begin "), Hold(HELD)]]),
            Step(
                Behaviour.ASK.value,
                [[exec_command("touch new.txt", sandbox_permissions="require_escalated")], [Text("Touched.")]],
            ),
            Step(Behaviour.DELEGATE.value, [[spawn_agent(CHILD)], [Text("It is done.")]]),
        ],
        (Text("The answer."),),
    )


class CodexDriver:
    def __init__(self, folder: Path, service: ResponsesService) -> None:
        self.cwd = str(folder / "project")
        self.other_cwd = str(folder / "other")
        self._service = service
        self._env = codex_environment(folder, service)
        refuse = f"if grep -qF {shlex.quote(Behaviour.REFUSE.value)}; then echo not this >&2; exit 2; fi"
        trust_hook(self._env, "UserPromptSubmit", refuse)

    def runtime(self) -> Runtime:
        return CodexRuntime(self._env)

    def stored(self, session_id: str) -> Sequence[str]:
        return stored_ids(self._env, session_id)

    async def held(self) -> None:
        await self._service.held(HELD)
        self._service.hold(HELD)

    async def freeze(self, session: RuntimeSession) -> None:
        self._process(session).suspend()

    async def kill(self, session: RuntimeSession) -> None:
        self._process(session).kill()

    def damage(self, session_id: str) -> None:
        path = rollout(self._env, session_id)
        path.rename(path.with_suffix(".saved"))
        path.mkdir()

    def _process(self, session: RuntimeSession) -> psutil.Process:
        assert isinstance(session, CodexSession)
        assert session._host.server is not None
        return psutil.Process(session._host.server.runtime_pid)


@pytest.fixture
async def driver(folder: Path) -> AsyncIterator[CodexDriver]:
    async with serve_responses(script()) as service:
        yield CodexDriver(folder, service)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_codex(check: Check, driver: CodexDriver) -> None:
    await check(driver)


async def test_ids_that_were_read_beside_another_owner_prove_nothing(driver: CodexDriver) -> None:
    """What Codex lists of a thread that it has not loaded may be stale, without any error."""
    async with driver.runtime() as owner, driver.runtime() as other:
        session = await owner.new(SessionSetup(driver.cwd))
        message_id = fresh_message_id()
        await session.submit(message_id, [{"type": "text", "text": "Hello"}])
        async for event in session.events():
            if isinstance(event, Foreground) and event.state == "idle" and event.stop_reason:
                break
        with pytest.raises(HistoryUnreadable):
            await other.message_ids(session.session_id)
        entries = [entry async for entry in other.history(session.session_id, live=False)]
        assert any(isinstance(entry, UserTurn) and message_id in entry.message_ids for entry in entries)
        await session.close()
        assert await other.message_ids(session.session_id) == {message_id}
