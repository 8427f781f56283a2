"""What is refused leaves a session as it was, in front of each real runtime."""

from __future__ import annotations

import pytest

from runtimes.conftest import RealRuntime
from support_process import AgentProcess
from support_wire import WireError

pytestmark = pytest.mark.real


async def test_a_session_that_another_process_works_on_is_not_ended(
    runtime: RealRuntime, agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    message_id = await agent.wire.prompt(session_id, "Hello", key="1")
    await agent.wire.idle(session_id)
    methods = ["session/delete"] if runtime.name == "claude" else ["session/archive", "session/delete"]
    async with runtime.agent(env) as other:
        await other.wire.initialize()
        await other.wire.resume(session_id, cwd)
        for method in methods:
            with pytest.raises(WireError) as refused:
                await other.wire.request(method, {"sessionId": session_id})
            assert refused.value.data == {"reason": "session_in_use"}
            status = await other.wire.request("session/status", {"sessionId": session_id})
            assert status["status"] == "open"
            assert await other.wire.prompt(session_id, "Hello", key="1") == message_id
        assert await agent.close() == 0
        for method in methods:
            assert await other.wire.request(method, {"sessionId": session_id}) == {}
        assert await other.wire.request("session/list", {}) == {"sessions": []}
