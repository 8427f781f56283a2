"""Another live process owns the session: what is stored is still known to be stored."""

from __future__ import annotations

import pytest
from pytest_mock import MockerFixture

from sayagain.identity import derive_message_id
from sayagain.testing.fake_runtime import FakeStore
from support_agent import serving
from support_rules import rule
from support_wire import WireError


async def test_a_stored_key_is_answered_and_an_absent_one_is_an_error() -> None:
    store = FakeStore()
    async with serving(store) as first, serving(store) as second:
        owner = await first.connect()
        session_id = await owner.new()
        message_id = await owner.prompt(session_id, "Hello", key="stored")
        other = await second.connect()
        await other.resume(session_id)
        assert await other.prompt(session_id, "Hello", key="stored") == message_id
        with pytest.raises(WireError) as caught:
            await other.prompt(session_id, "Hello", key="absent")
        assert caught.value.data == {"reason": "session_in_use"}
        # What the owner stores meanwhile is found, and nothing was taken for absent for good.
        late = await owner.prompt(session_id, "Hello", key="absent")
        assert late == derive_message_id(session_id, "absent")
        assert await other.prompt(session_id, "Hello", key="absent") == late
    assert store.ids(session_id) == [message_id, late]


@rule("RPL-5")
async def test_a_tool_call_that_runs_elsewhere_is_not_told_as_ended() -> None:
    store = FakeStore()
    async with serving(store) as first, serving(store) as second:
        owner = await first.connect()
        session_id, fake = await first.work(owner)
        fake.call("t")
        other = await second.connect()
        await other.resume(session_id, replay=True)
        (call,) = other.updates(session_id, "tool_call_update")
        assert call["status"] == "in_progress"
    async with serving(store) as third:
        client = await third.connect()
        await client.resume(session_id, replay=True)
        (call,) = client.updates(session_id, "tool_call_update")
        assert call["status"] == "failed", "nobody works on it any more"


async def test_a_key_that_a_replay_showed_is_answered_without_waiting_for_the_owner(mocker: MockerFixture) -> None:
    store = FakeStore()
    async with serving(store) as first, serving(store) as second:
        owner = await first.connect()
        session_id = await owner.new()
        message_id = await owner.prompt(session_id, "Hello", key="stored")
        other = await second.connect()
        await other.resume(session_id, replay=True)
        waited = mocker.spy(second.runtime.sessions[session_id], "own")
        assert await other.prompt(session_id, "Hello", key="stored") == message_id
        assert waited.call_count == 0
        with pytest.raises(WireError):
            await other.prompt(session_id, "Hello", key="absent")
        assert waited.call_count == 1
        late = await owner.prompt(session_id, "Hello", key="late")
        for _ in range(2):
            assert await other.prompt(session_id, "Hello", key="late") == late
        assert waited.call_count == 2, "what was found once is known"


async def test_who_sees_the_session_of_another_process_is_told() -> None:
    store = FakeStore()
    async with serving(store) as first, serving(store) as second:
        owner = await first.connect()
        session_id = await owner.new()
        await owner.prompt(session_id, "Hello")
        other = await second.connect()
        await other.resume(session_id, replay=True)
        kinds = [update["sessionUpdate"] for update in other.updates(session_id)]
        assert kinds.index("notice") > kinds.index("replay_complete")
        (notice,) = other.updates(session_id, "notice")
        assert notice["title"] == "Another process works on this session"
        await owner.resume(session_id, replay=True)
        assert owner.updates(session_id, "notice") == []


@rule("ARC-1", "DEL-1")
@pytest.mark.parametrize("method", ["session/archive", "session/delete"])
async def test_what_the_owner_forbids_is_refused_before_anything_is_closed(method: str) -> None:
    store = FakeStore()
    async with serving(store) as first, serving(store) as second:
        owner = await first.connect()
        session_id = await owner.new()
        message_id = await owner.prompt(session_id, "Hello", key="stored")
        other = await second.connect()
        await other.resume(session_id)
        with pytest.raises(WireError) as caught:
            await other.request(method, {"sessionId": session_id})
        assert caught.value.data == {"reason": "session_in_use"}
        assert not second.fake(session_id).closed
        assert await other.prompt(session_id, "Hello", key="stored") == message_id
        await owner.request("session/close", {"sessionId": session_id})
        assert await other.request(method, {"sessionId": session_id}) == {}
        assert (await other.request("session/list", {}))["sessions"] == []
