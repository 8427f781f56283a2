"""The client and our agent in front of the real Claude Code: killed, and the prompt lands once."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest

from sayagain.client import Disconnected, Outbox, Outcome, Reconnected, Update, with_retries
from sayagain.identity import derive_message_id
from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import Hold, Script, Step, Text
from support_claude import claude_environment, stored_ids

pytestmark = pytest.mark.real

COMMAND = [sys.executable, "-m", "sayagain", "claude"]
SUBMIT = Path(__file__).parent / "programs" / "submit.py"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def service() -> AsyncIterator[MessagesService]:
    script = Script([Step("Held work", [[Text("I begin "), Hold("work"), Text("and end.")]])])
    async with serve_messages(script) as service:
        yield service


@pytest.fixture
def env(tmp_path: Path, service: MessagesService) -> dict[str, str]:
    return claude_environment(tmp_path, service)


@pytest.mark.parametrize("moment", ["submitted", "asked", "inserted"])
async def test_client_and_agent_are_killed_and_the_prompt_lands_once(
    tmp_path: Path, service: MessagesService, env: dict[str, str], outbox_path: Path, moment: str
) -> None:
    cwd = str(tmp_path / "project")
    first = [sys.executable, str(SUBMIT), str(outbox_path), cwd, "Held work", "--", *COMMAND]
    with anyio.fail_after(60):
        async with await anyio.open_process(first, env=env, stderr=None) as process:
            assert process.stdout is not None
            said = b""
            while (b"submitted" if moment == "asked" else moment.encode()) not in said:
                said += await process.stdout.receive()
            if moment == "asked":
                await service.held("work")
            (agent,) = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGKILL)
            agent.kill()
        old_id = said.split()[0].decode()
        service.release("work")
        async with Outbox(outbox_path) as outbox, with_retries(COMMAND, outbox=outbox, env=env) as client:
            (pending,) = await outbox.prompts(states=("pending", "done"))
            session, replay = await client.resume(old_id, cwd, replay=True)
            assert replay is not None
            assert replay.outcome is Outcome.COMPLETE
            resent = await session.resend()
            (stored,) = await outbox.prompts(states=("pending", "done"))
    expected = derive_message_id(session.session_id, pending.key)
    if pending.state == "pending":
        assert resent.inserted == {pending.key: expected}
    assert (stored.state, stored.message_id) == ("done", expected)
    # What is interrupted at the end leaves a row of its own.
    assert stored_ids(env, session.session_id).count(expected) == 1
    assert _copies(env, "Held work") == 1
    if session.session_id != old_id:
        assert not list(Path(env["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{old_id}.jsonl"))


async def test_the_agent_is_killed_and_the_client_goes_on(
    tmp_path: Path, service: MessagesService, env: dict[str, str]
) -> None:
    cwd = str(tmp_path / "project")
    with anyio.fail_after(60):
        async with with_retries(COMMAND, env=env) as client:
            session = await client.new_session(cwd)
            first = await session.prompt("One")
            async for event in session:
                if isinstance(event, Update) and event.update.get("state") == "idle":
                    break
            (agent,) = psutil.Process().children()
            agent.kill()
            second = await session.prompt("Two")
            events = session.pending_events()
            assert [type(event) for event in events if not isinstance(event, Update)] == [Disconnected, Reconnected]
    assert stored_ids(env, session.session_id)[:2] == [first, second]


def _copies(env: dict[str, str], text: str) -> int:
    """Stored user messages of this text, over all sessions."""
    rows = [
        json.loads(line)
        for path in Path(env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return sum(row["type"] == "user" and text in json.dumps(row["message"]) for row in rows)
