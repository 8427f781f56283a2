"""Prompts of the client: keys, order, errors, and what is sent again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from client.places import Place, Scripted, kinds, until
from sayagain.client import (
    Moved,
    Outbox,
    OutboxError,
    PromptFailed,
    PromptKept,
    PromptWithdrawn,
    Reconnected,
    ResumeFailed,
    Retries,
    connect,
    with_retries,
)
from sayagain.errors import InvalidParams, PromptRefused, RuntimeDied
from sayagain.identity import derive_message_id
from sayagain.runtime.events import Rejected
from sayagain.runtime.history import UserTurn
from sayagain.testing.fake_runtime import FakeRuntime

QUICK = Retries(attempts=4, first=0.001, longest=0.01)


async def test_every_prompt_gets_a_key_and_is_confirmed() -> None:
    place = Place()
    with anyio.fail_after(20):
        async with Outbox() as outbox, connect(place.open, outbox=outbox) as client:
            session = await client.new_session("/")
            message_id = await session.prompt("hello")
            (row,) = await outbox.prompts(states=("done",))
            assert message_id == row.message_id == derive_message_id(session.session_id, row.key)
            assert kinds(await until(session, "state_update", state="idle"))[-1] == "state_update"


async def test_prompts_are_inserted_in_the_order_of_their_submission() -> None:
    place = Place()
    with anyio.fail_after(20):
        async with connect(place.open) as client:
            session = await client.new_session("/")
            prompts = [await session.submit(f"number {number}") for number in range(20)]
            ids = [await prompt.inserted() for prompt in prompts]
    assert place.store.ids(session.session_id) == ids


async def test_a_prompt_is_in_the_outbox_before_it_is_sent(outbox_path: Path) -> None:
    place = Place()
    with anyio.fail_after(20):
        async with Outbox(outbox_path) as outbox, connect(place.open, outbox=outbox) as client:
            session = await client.new_session("/")
            outbox._open._connection.execute("PRAGMA query_only = 1")
            with pytest.raises(OutboxError):
                await session.submit("never sent")
    assert place.store.sessions == {}


class TestErrors:
    async def refused(self, error: Any, *, retries: Retries | None = None) -> Any:
        """The outcome of a prompt that the runtime turns away, every time; and its row."""
        place = Place()
        place.prepare = _refusing(error)
        way = connect(place.open) if retries is None else with_retries(place.open, retries)
        async with way as client:
            session = await client.new_session("/")
            prompt = await session.submit("x")
            with pytest.raises((PromptFailed, PromptKept)) as caught:
                await prompt.inserted()
            (row,) = await client.outbox.prompts(states=("pending", "failed"))
        return caught.value, row, sum(len(fake.submitted) for fake in place.runtime.sessions.values())

    async def test_for_good(self) -> None:
        with anyio.fail_after(20):
            error, row, count = await self.refused(PromptRefused("a hook blocks it"), retries=QUICK)
        assert isinstance(error, PromptFailed)
        assert (row.state, row.reason, count) == ("failed", "a hook blocks it", 1)

    async def test_for_now(self) -> None:
        with anyio.fail_after(20):
            error, row, count = await self.refused(RuntimeDied())
        assert isinstance(error, PromptKept)
        assert (row.state, row.code, count) == ("pending", -32603, 1)

    async def test_for_now_with_retries_has_a_limit(self) -> None:
        with anyio.fail_after(20):
            error, row, count = await self.refused(RuntimeDied(), retries=QUICK)
        assert isinstance(error, PromptKept)
        assert (row.state, count) == ("pending", QUICK.attempts)

    async def test_bad_params(self) -> None:
        with anyio.fail_after(20):
            error, row, _ = await self.refused(InvalidParams("prompt", "is not wanted"), retries=QUICK)
        assert (type(error), error.code, row.state) == (PromptFailed, -32602, "failed")

    async def test_taken_without_an_id_is_not_sent_again(self) -> None:
        agent = Scripted(_plain_agent(prompt={}))
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                session = await client.new_session("/")
                with pytest.raises(PromptFailed):
                    await session.prompt("x")
        assert [m["method"] for m in agent.asked].count("session/prompt") == 1


class TestTakenBack:
    async def test_a_held_prompt_is_withdrawn(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session = await client.new_session("/")
                place.fake(session).manual = True
                first = await session.submit("works")
                await place.fake(session).until(lambda: len(place.fake(session).submitted) == 1)
                second = await session.submit("held")
                await anyio.wait_all_tasks_blocked()
                await session.withdraw(second)
                with pytest.raises(PromptWithdrawn) as caught:
                    await second.inserted()
                assert not caught.value.uncertain
                place.fake(session).store(place.fake(session).submitted[0])
                await first.inserted()
                (row,) = await client.outbox.prompts(states=("withdrawn",))
                assert row.key == second.key

    async def test_cancel_withdraws_what_is_not_inserted(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK) as client:
                session = await client.new_session("/")
                place.fake(session).manual = True
                prompt = await session.submit("works")
                await place.fake(session).until(lambda: len(place.fake(session).submitted) == 1)
                await session.cancel()
                with pytest.raises(PromptWithdrawn):
                    await prompt.inserted()
                assert await client.outbox.prompts() == []

    async def test_giving_up_the_wait_does_not_withdraw(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session = await client.new_session("/")
                place.fake(session).manual = True
                prompt = await session.submit("works")
                with anyio.move_on_after(0.01):
                    await prompt.inserted()
                fake = place.fake(session)
                await fake.until(lambda: len(fake.submitted) == 1)
                fake.store(fake.submitted[0])
                await prompt.inserted()


class TestLost:
    async def test_without_retries_the_prompt_is_kept(self, outbox_path: Path) -> None:
        place = Place()
        place.prepare = _manual
        with anyio.fail_after(20):
            async with connect(place.open, outbox=outbox_path) as client:
                session = await client.new_session("/")
                prompt = await session.submit("x")
                await place.fake(session).until(lambda: len(place.fake(session).submitted) == 1)
                place.kill()
                with pytest.raises(PromptKept):
                    await prompt.inserted()
            async with Outbox(outbox_path) as outbox:
                assert [row.key for row in await outbox.prompts()] == [prompt.key]

    async def test_it_is_sent_again_to_a_new_agent_and_lands_once(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK) as client:
                session = await client.new_session("/")
                await session.prompt("first")
                fake = place.fake(session)
                fake.manual = True
                prompt = await session.submit("stored, and the answer is lost")
                await fake.until(lambda: len(fake.submitted) == 2)
                place.kill()
                # What a runtime does that stores at the last moment.
                fake._store.sessions[session.session_id] += _stored(session.session_id, fake.submitted[1])
                message_id = await prompt.inserted()
                assert place.store.ids(session.session_id).count(message_id) == 1
                assert Reconnected(session.session_id) in session.pending_events()
                assert len(place.runtimes) == 2
                assert place.fake(session).submitted == []

    async def test_a_session_that_was_never_stored_is_replaced_and_the_application_told(self) -> None:
        place = Place()
        place.prepare = _manual
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK) as client:
                session = await client.new_session("/")
                old = session.session_id
                prompts = [await session.submit("one"), await session.submit("two")]
                await place.fake(session).until(lambda: len(place.fake(session).submitted) == 1)
                place.prepare = lambda runtime: None
                place.kill()
                ids = [await prompt.inserted() for prompt in prompts]
                assert session.session_id != old
                moved = [event for event in session.pending_events() if isinstance(event, Moved)]
                assert moved == [Moved(old, session.session_id, [prompt.key for prompt in prompts])]
        assert place.store.ids(session.session_id) == ids
        assert old not in place.store.sessions

    async def test_a_session_with_a_confirmed_prompt_is_never_replaced(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK) as client:
                session = await client.new_session("/")
                await session.prompt("one")
                del place.store.sessions[session.session_id]
                place.kill()
                with pytest.raises(PromptKept):
                    await session.prompt("two")
                with pytest.raises(ResumeFailed) as caught:
                    await until(session, "nothing")
                assert caught.value.code == -32002


class TestResend:
    async def left(self, path: Path, *texts: str) -> tuple[Place, str]:
        """An outbox with prompts of a client that is gone, in a session that is stored."""
        place = Place()
        async with connect(place.open, outbox=path) as client:
            session = await client.new_session("/")
            await session.prompt("begin")
            place.fake(session).manual = True
            for text in texts:
                await session.submit(text)
        return place, session.session_id

    async def test_after_a_restart_each_lands_once_in_order(self, outbox_path: Path) -> None:
        with anyio.fail_after(20):
            place, session_id = await self.left(outbox_path, "one", "two")
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                session, _ = await client.resume(session_id, "/")
                resent = await session.resend()
                assert place.store.ids(session_id)[1:] == list(resent.inserted.values())
                assert len(resent.inserted) == 2
                assert await client.outbox.prompts() == []
                assert await session.resend() == type(resent)({}, (), (), 0)

    async def test_old_ones_are_offered_not_sent(self, outbox_path: Path) -> None:
        with anyio.fail_after(20):
            place, session_id = await self.left(outbox_path, "old")
            async with connect(place.open, outbox=outbox_path) as client:
                session, _ = await client.resume(session_id, "/")
                resent = await session.resend(before=time.time() + 60)
                assert (len(resent.offered), resent.inserted) == (1, {})
                assert len(place.store.ids(session_id)) == 1
                resent = await session.resend(before=time.time() + 60, old=True)
                assert len(resent.inserted) == 1

    async def test_yesterdays_is_old(self, outbox_path: Path) -> None:
        with anyio.fail_after(20):
            place, session_id = await self.left(outbox_path, "old")
            async with Outbox(outbox_path) as outbox, connect(place.open, outbox=outbox) as client:
                outbox._open._connection.execute("UPDATE prompts SET submitted = submitted - 86400")
                session, _ = await client.resume(session_id, "/")
                assert len((await session.resend()).offered) == 1

    async def test_the_first_prompt_of_a_lost_session_moves(self, outbox_path: Path) -> None:
        place = Place()
        place.prepare = _manual
        with anyio.fail_after(20):
            async with connect(place.open, outbox=outbox_path) as client:
                lost = (await client.new_session("/")).session_id
                await client._inbox.sessions[lost].submit("first")
            place.prepare = lambda runtime: None
            async with connect(place.open, outbox=outbox_path) as client:
                with pytest.raises(ResumeFailed):
                    await client.resume(lost, "/")
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                session, _ = await client.resume(lost, "/")
                assert session.session_id != lost
                resent = await session.resend()
                assert place.store.ids(session.session_id) == list(resent.inserted.values())
                assert len(resent.inserted) == 1

    async def test_a_session_that_another_client_moved_is_found_and_told(self, outbox_path: Path) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                other = await client.new_session("/")
                await other.prompt("there")
            async with Outbox(outbox_path) as outbox:
                await outbox.opened("lost", "/")
                assert await outbox.move("lost", other.session_id) == other.session_id
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                session, replay = await client.resume("lost", "/", replay=True)
                told = session.pending_events()
        assert session.session_id == other.session_id
        assert replay is not None
        assert replay.session_id == other.session_id
        assert [event for event in told if isinstance(event, Moved)] == [Moved("lost", other.session_id, [])]
        assert kinds(list(told)).count("replay_complete") == 1


def _manual(runtime: FakeRuntime) -> None:
    runtime.manual = True


def _refusing(error: Any) -> Any:
    def prepare(runtime: FakeRuntime) -> None:
        make = runtime._session

        def session(session_id: str, setup: Any) -> Any:
            fake = make(session_id, setup)

            async def submit(message_id: str, content: Any) -> None:
                fake.submitted.append(message_id)
                fake.emit(Rejected(message_id, error))
                fake.finish()

            fake.submit = submit
            return fake

        runtime._session = session  # type: ignore[method-assign]

    return prepare


def _stored(session_id: str, message_id: str) -> list[Any]:
    update = {"sessionUpdate": "user_message", "messageId": message_id, "content": []}
    return [UserTurn(session_id, (message_id,), update)]


def _plain_agent(**answers: Any) -> Any:
    results = {
        "initialize": {"protocolVersion": 2, "info": {"name": "scripted", "version": "1"}},
        "session/new": {"sessionId": "s"},
        "session/prompt": answers.get("prompt"),
    }
    return lambda message: [{"id": message["id"], "result": results[message["method"]]}]
