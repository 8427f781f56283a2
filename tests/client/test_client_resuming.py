"""Resuming by the client: who asks at once, and what becomes of sessions that cannot be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from client.places import Place, Scripted, until
from sayagain.client import (
    Client,
    Disconnected,
    Moved,
    OutboxError,
    Outcome,
    OutcomeUnknown,
    PromptKept,
    Reconnected,
    Replay,
    ResumeFailed,
    Retries,
    Session,
    connect,
    new_key,
    with_retries,
)
from sayagain.testing.fake_runtime import FakeRuntime

QUICK = Retries(attempts=4, first=0.001, longest=0.01)


class TestAtOnce:
    async def both(self, client: Client, first: str, second: str) -> list[tuple[Session, Replay | None] | ResumeFailed]:
        """What two calls at once give, in the order in which they are answered."""
        got: list[tuple[Session, Replay | None] | ResumeFailed] = []

        async def ask(session_id: str) -> None:
            try:
                got.append(await client.resume(session_id, "/", replay=True))
            except ResumeFailed as error:
                got.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, first)
            tasks.start_soon(ask, second)
        return got

    async def test_both_get_the_session_that_lives(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session_id = (await client.new_session("/")).session_id
                await client._inbox.sessions[session_id].prompt("one")
            async with connect(place.open) as client:
                one, two = await self.both(client, session_id, session_id)
                assert isinstance(one, tuple)
                assert isinstance(two, tuple)
                assert one[0] is two[0]
                assert [replay and replay.outcome for _, replay in (one, two)] == [Outcome.COMPLETE] * 2
                one[0].pending_events()
                await one[0].prompt("two")
                await until(one[0], "state_update", state="idle")

    @pytest.mark.parametrize("good", [0, 1, 2])
    async def test_each_hears_what_became_of_its_own(self, good: int) -> None:
        """The agent refuses the first so many."""
        agent = Scripted(_refusing(good))
        with anyio.fail_after(20):
            async with connect(agent.open) as client:
                got = await self.both(client, "s", "s")
                assert [isinstance(each, ResumeFailed) for each in got] == [place < good for place in range(2)]
                sessions = [each[0] for each in got if isinstance(each, tuple)]
                assert list(client._inbox.sessions.values()) == sessions[:1]
                assert len(set(sessions)) <= 1

    async def test_one_that_gives_up_does_not_take_the_session_along(self) -> None:
        asked, answered = anyio.Event(), anyio.Event()
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session_id = (await client.new_session("/")).session_id
                await client._inbox.sessions[session_id].prompt("one")

            async def hold(index: int) -> None:
                asked.set()
                await answered.wait()

            place.store.before_entry = hold
            async with connect(place.open) as client, anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()

                async def give_up() -> None:
                    with scope:
                        await client.resume(session_id, "/", replay=True)

                tasks.start_soon(give_up)
                await asked.wait()
                sessions = set(client._inbox.sessions.values())

                async def ask() -> None:
                    session, _ = await client.resume(session_id, "/", replay=True)
                    assert {session} == sessions == set(client._inbox.sessions.values())

                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                answered.set()

    async def test_the_old_id_of_a_moved_session_is_the_session(self, outbox_path: Path) -> None:
        """Under one name or the other, here or by another client: a session is one object."""
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                await session.prompt("one")
                await client.outbox.opened("lost", "/")
                await client.outbox.move("lost", session.session_id)
                assert (await client.resume("lost", "/"))[0] is session
                assert (await client.resume("lost", "/"))[0] is session
                assert not [event for event in session.pending_events() if isinstance(event, Moved)]
                await session.prompt("two")


class TestOutboxThatCannotBeRead:
    """Only the session suffers; the application hears of it by a typed error, and its block lives on."""

    FAILING = ("unsettled", "take", "follow", "opened", "move", "prompts")

    @pytest.mark.parametrize("failing", FAILING)
    async def test_after_a_lost_connection(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        place = Place()
        place.prepare = _manual
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                old = session.session_id
                prompt = await session.submit("one")
                await place.fake(session).until(lambda: bool(place.fake(session).submitted))
                place.prepare = lambda runtime: None
                _break(monkeypatch, client, failing)
                place.kill()
                with pytest.raises(ResumeFailed, match="disk I/O error; its prompts are kept") as caught:
                    await until(session, "nothing")
                assert isinstance(caught.value.cause, OutboxError)
                assert (caught.value.code, session.session_id) == (None, old)
                with pytest.raises(PromptKept):
                    await prompt.inserted()
                # The disk works again.
                monkeypatch.undo()
                assert (await client.resume(old, "/"))[0] is session
                assert len((await session.resend()).inserted) == 1

    @pytest.mark.parametrize("failing", FAILING)
    async def test_when_the_application_asks(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                await client.outbox.opened("lost", "/")
                await client.outbox.add("lost", "/", new_key(), [{"type": "text", "text": "one"}])
                _break(monkeypatch, client, failing)
                with pytest.raises(ResumeFailed, match="disk I/O error; its prompts are kept") as caught:
                    await client.resume("lost", "/", replay=True)
                assert caught.value.replay is not None
                assert caught.value.session_id == "lost"
                monkeypatch.undo()
                session, _ = await client.resume("lost", "/")
                assert len((await session.resend()).inserted) == 1


async def test_one_look_after_trouble_proves_nothing(outbox_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of a killed client is waited for, whatever the agent answered before."""
    errors = iter([-32603, -32002])
    waited: list[str] = []

    def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if asked["method"] == "session/prompt":
            return [None]
        if asked["method"] == "session/resume" and (code := next(errors, None)) is not None:
            return [{"id": asked["id"], "error": {"code": code, "message": "no"}}]
        return [{"id": asked["id"], "result": {"protocolVersion": 2, "sessionId": "s"}}]

    agent = Scripted(answer)
    with anyio.fail_after(20):
        async with with_retries(agent.open, QUICK, outbox=outbox_path) as client:
            take = client.outbox.take

            async def watched(session_id: str, *, patience: float = 0.0) -> Any:
                waited.append(session_id)
                return await take(session_id, patience=patience)

            monkeypatch.setattr(client.outbox, "take", watched)
            session = await client.new_session("/")
            await session.submit("one")
            async for event in session:
                if event == Reconnected("s"):
                    break
                assert event == Disconnected("s")
    assert waited == ["s"]


class TestSessionsThatGoOnElsewhere:
    """Another client that shares the outbox was quicker to make a session for their prompts."""

    async def test_the_history_of_the_other_is_told(self, outbox_path: Path) -> None:
        """Being active under the old id says nothing of the new one: an empty replay would be taken for its history."""
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                other = await client.new_session("/")
                await other.prompt("one")
                session = await client.new_session("/")
                await client.outbox.move(session.session_id, other.session_id)
                await other.close()
                await client.request("session/delete", {"sessionId": session.session_id})
                assert session.attached is not None
                found, replay = await client.resume(session.session_id, "/", replay=True)
                assert (found, session.session_id) == (session, other.session_id)
                assert replay is not None
                assert [update["sessionUpdate"] for update in replay.history][:1] == ["user_message"]
                await session.prompt("two")
                assert place.fake(session).session_id == other.session_id

    async def test_one_that_the_application_has_twice_ends(self, outbox_path: Path) -> None:
        """Who holds the session of the old id hears where its prompts are, and does not wait for ever."""
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                other, session = await client.new_session("/"), await client.new_session("/")
                await client.outbox.move(session.session_id, other.session_id)
                await client.request("session/delete", {"sessionId": session.session_id})
                assert (await client.resume(session.session_id, "/"))[0] is other
                with pytest.raises(PromptKept, match=f"its prompts are in session {other.session_id}"):
                    await session.prompt("one")
                session.pending_events()
                with pytest.raises(ResumeFailed) as caught:
                    await anext(session)
                assert caught.value.code == -32002
                await other.prompt("two")

    async def test_circles_end(self, outbox_path: Path) -> None:
        """An agent that uses its ids twice can make the outbox point back."""
        place = Place()
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK, outbox=outbox_path) as client:
                for session_id in ("one", "two"):
                    await client.outbox.opened(session_id, "/")
                await client.outbox.move("one", "two")
                await client.outbox.add("two", "/", new_key(), [{"type": "text", "text": "x"}])
                await client.outbox.move("two", "one")
                with anyio.fail_after(10), pytest.raises(ResumeFailed) as caught:
                    await client.resume("one", "/", replay=True)
                assert caught.value.code == -32002
                assert len(await client.outbox.prompts()) == 1


async def test_a_closed_session_is_not_resumed_again() -> None:
    """The application closes it while the agent is asked to resume it on a new connection, and then refuses for now."""
    resumes: list[int] = []
    resuming = anyio.Event()

    def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if "id" not in asked:
            return []
        good = {"id": asked["id"], "result": {"protocolVersion": 2, "sessionId": "s"}}
        match asked["method"]:
            case "_die":
                return [None]
            case "session/resume":
                resumes.append(asked["id"])
                resuming.set()
                return []
            case "_refuse":
                return [{"id": resumes[0], "error": {"code": -32603, "message": "not yet"}}, good]
            case _:
                return [good]

    agent = Scripted(answer)
    with anyio.fail_after(20):
        async with with_retries(agent.open, QUICK) as client:
            session = await client.new_session("/")
            with pytest.raises(OutcomeUnknown):
                await client.request("_die", {})
            await resuming.wait()
            await session.close()
            await client.request("_refuse", {})
            # Whoever would resume the session waits for the one who does it now.
            async with session.resuming:
                assert len(resumes) == 1


async def test_failed_resumes_leave_nothing_unread() -> None:
    """Nobody can read the stream of a session that the application never got: it does not count as unread."""
    updates = [{"sessionUpdate": "agent_message", "messageId": "m", "content": []}] * 3

    def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if asked["method"] == "initialize":
            return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
        told = [{"method": "session/update", "params": {"sessionId": "s", "update": update}} for update in updates]
        return [*told, {"id": asked["id"], "error": {"code": -32602, "message": "no"}}]

    agent = Scripted(answer)
    with anyio.fail_after(20):
        async with connect(agent.open, max_unread=2000) as client:
            for _ in range(20):
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume("s", "/", replay=True)
                assert caught.value.code == -32602


def _manual(runtime: FakeRuntime) -> None:
    runtime.manual = True


def _break(monkeypatch: pytest.MonkeyPatch, client: Client, method: str) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise OutboxError(client.outbox.path, "has a disk I/O error")

    monkeypatch.setattr(client.outbox, method, fail)


def _refusing(good: int) -> Any:
    resumes = 0

    def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        nonlocal resumes
        if asked["method"] == "initialize":
            return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
        resumes += 1
        if resumes <= good:
            return [{"id": asked["id"], "error": {"code": -32602, "message": "no"}}]
        return [{"id": asked["id"], "result": {}}]

    return answer
