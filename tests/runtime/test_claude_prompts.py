"""Keyed prompts in front of the real Claude Code."""

from __future__ import annotations

from pathlib import Path

import pytest

from sayagain.identity import derive_message_id
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_script import Script
from support_claude import agent_process, claude_environment, stored_ids
from support_wire import entities

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_prompt_sent_again_after_a_crash_lands_once(tmp_path: Path) -> None:
    async with serve_messages(Script()) as service:
        env = claude_environment(tmp_path, service)
        cwd = str(tmp_path / "project")
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            session_id = await agent.wire.new(cwd)
            message_id = await agent.wire.prompt(session_id, "Say hello", key="key-1")
            await agent.wire.idle(session_id)
            await agent.kill()
        assert message_id == derive_message_id(session_id, "key-1")
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            await agent.wire.resume(session_id, cwd, replay=True)
            assert agent.wire.updates(session_id, "replay_complete") == [{"sessionUpdate": "replay_complete"}]
            assert list(entities(agent.wire.updates(session_id)).values()) == ["Say hello", "Done."]
            assert await agent.wire.prompt(session_id, "Say hello", key="key-1") == message_id
            assert await agent.close() == 0
        assert stored_ids(env, session_id) == [message_id]
        assert service.count("Say hello") == 1
