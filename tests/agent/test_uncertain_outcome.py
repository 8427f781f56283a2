"""A runtime that died over a store which cannot be read: nobody can tell whether the message landed."""

from __future__ import annotations

import pytest

from sayagain.errors import HistoryUnreadable
from sayagain.runtime import Foreground, Rejected, UserTurn
from support_agent import serving
from support_wire import WireError


async def test_a_retry_looks_again_before_it_is_submitted() -> None:
    async with serving() as world:
        client = await world.connect()
        session_id = await client.new()
        backend = world.runtime.sessions[session_id]
        backend.manual = True
        request = await client.begin(
            "session/prompt",
            {"sessionId": session_id, "prompt": [{"type": "text", "text": "Hello"}], "idempotencyKey": "k"},
        )
        await backend.until(lambda: bool(backend.submitted))
        (message_id,) = backend.submitted
        # It is stored, but the runtime dies before anybody sees that, and the store cannot be read at that moment.
        backend.persist(UserTurn(session_id, (message_id,), None))
        backend.emit(Rejected(message_id, HistoryUnreadable()))
        backend.emit(Foreground(session_id, "idle"))
        with pytest.raises(WireError) as caught:
            await client.answer(request)
        assert caught.value.data == {"reason": "history_unreadable"}
        assert await client.prompt(session_id, "Hello", key="k") == message_id
        assert backend.submitted == [message_id]
