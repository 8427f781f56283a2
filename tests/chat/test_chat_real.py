"""The chat in a pipe, in front of our agent and the real Claude Code."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import psutil
import pytest

from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_script import Hold, Script, Step, Text
from support_claude import claude_environment

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_work_that_is_lost_with_the_agent_is_told(tmp_path: Path) -> None:
    script = Script([Step("Held work", [[Text("I begin "), Hold("work"), Text("and end.")]])])
    async with serve_messages(script) as service:
        env = claude_environment(tmp_path, service)
        agent = [sys.executable, "-m", "sayagain", "claude"]
        chat = [sys.executable, "-m", "sayagain", "chat", "--outbox", str(tmp_path / "outbox"), "--", *agent]
        with anyio.fail_after(60):
            async with await anyio.open_process(chat, env=env, cwd=tmp_path / "project") as process:
                assert process.stdin is not None
                assert process.stdout is not None
                await process.stdin.send(b"Held work\nMore\n")
                await process.stdin.aclose()
                said = b""
                while b"I begin" not in said:
                    said += await process.stdout.receive()
                (agent_process,) = psutil.Process(process.pid).children()
                agent_process.kill()
                async for data in process.stdout:
                    said += data
                assert await process.wait() == 1
    lines = said.decode().splitlines()
    # What Claude Code keeps of an answer that was cut is its own affair.
    assert lines[1:5] == [
        "> Held work",
        "I begin ",
        "The agent was lost.",
        "The work that was under way ended with it.",
    ]
    assert "> More" in lines[5:]
