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
    Moved,
    Outcome,
    Replay,
    ResumeFailed,
    Retries,
    Session,
    connect,
    with_retries,
)

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
