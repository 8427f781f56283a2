"""The real Claude Code, in the middle of a Bash tool, when its adapter dies."""

from __future__ import annotations

import json
import sys
import uuid

import pytest

from sayagain.testing.claude_process import find_claude
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import claude_environment

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watches processes by pidfd"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_running_tool_dies_with_the_adapter(adapter, watch, tmp_path):
    command = f"setsid sleep 1000 & echo daemon $! > {watch.fifo}; echo tool $$ > {watch.fifo}; sleep 1000; true"
    call = ToolUse("Bash", {"command": command, "description": "Stay"})
    prompt = {
        "type": "user",
        "uuid": str(uuid.uuid4()),
        "session_id": "",
        "parent_tool_use_id": None,
        "message": {"role": "user", "content": "go"},
    }
    async with serve_messages(Script([Step(None, [[call], [Text("Ran it.")]])])) as service:
        running = adapter(
            "plain",
            *(str(find_claude()), "--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
            *("--permission-mode", "bypassPermissions"),
            stdin=json.dumps(prompt).encode() + b"\n",
            env=claude_environment(tmp_path, service),
            cwd=tmp_path,
        )
        await watch.told("adapter", "guard", "runtime", "tool", "daemon")
        running.sigkill()
        await watch.gone("guard")
        assert all(watch.is_gone(name) for name in ("runtime", "tool", "daemon"))
