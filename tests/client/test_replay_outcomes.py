"""Whole history and cut history: the outcome table of the marker's spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from client.places import Place, Scripted, kinds
from sayagain.client import (
    Client,
    GaveUp,
    HistoryStore,
    Outcome,
    Replay,
    ReplayTracker,
    ResumeFailed,
    Retries,
    connect,
    with_retries,
)
from sayagain.errors import HistoryUnreadable

MARKER = {"sessionUpdate": "replay_complete"}


def message(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"sessionUpdate": "agent_message", "messageId": text, "content": content}


def child(session_id: str) -> dict[str, Any]:
    return {"sessionUpdate": "subagent_update", "sessionId": session_id}


STATE = {"sessionUpdate": "state_update", "state": "idle"}


def track(*updates: tuple[str, Mapping[str, Any]], succeeded: bool, active: bool = False) -> Replay:
    tracker = ReplayTracker("root", active=active)
    for session_id, update in updates:
        tracker.take(session_id, update)
    return tracker.finish(succeeded=succeeded)


class TestTable:
    def test_marker_and_success(self) -> None:
        replay = track(("root", message("a")), ("root", MARKER), ("root", STATE), succeeded=True)
        assert (replay.outcome, replay.history, replay.violations) == (Outcome.COMPLETE, (message("a"),), ())

    def test_marker_and_failure(self) -> None:
        replay = track(("root", message("a")), ("root", MARKER), succeeded=False)
        assert (replay.outcome, replay.history) == (Outcome.COMPLETE, (message("a"),))

    def test_no_marker_and_failure(self) -> None:
        replay = track(("root", message("a")), succeeded=False)
        assert (replay.outcome, replay.whole) == (Outcome.TRUNCATED, False)

    def test_no_marker_and_success(self) -> None:
        """A violation; the success certifies. What is never history is left out."""
        replay = track(("root", message("a")), ("root", STATE), succeeded=True)
        assert (replay.outcome, replay.history, replay.whole) == (Outcome.UNCERTIFIED, (message("a"),), True)
        assert "no replay_complete" in replay.violations

    def test_an_empty_history(self) -> None:
        replay = track(("root", MARKER), succeeded=True)
        assert (replay.outcome, replay.history) == (Outcome.COMPLETE, ())

    def test_each_child_has_an_outcome_of_its_own(self) -> None:
        replay = track(
            ("root", child("one")),
            ("one", message("a")),
            ("one", MARKER),
            ("root", child("two")),
            ("two", message("b")),
            ("two", child("three")),
            ("root", MARKER),
            succeeded=False,
        )
        outcomes = {session_id: part.outcome.value for session_id, part in replay.sessions.items()}
        assert outcomes == {"root": "complete", "one": "complete", "two": "truncated", "three": "truncated"}
        assert not replay.whole

    def test_live_updates_after_the_marker_are_no_history(self) -> None:
        replay = track(("root", MARKER), ("root", message("live")), succeeded=True)
        assert replay.history == ()

    @pytest.mark.parametrize(
        ("updates", "said"),
        [
            ([("root", STATE), ("root", MARKER)], "state_update before replay_complete"),
            ([("root", MARKER), ("root", MARKER)], "a second replay_complete"),
            ([("root", MARKER), ("stranger", message("a"))], "an update of a child that was not announced"),
        ],
    )
    def test_violations_are_told(self, updates: list[tuple[str, Mapping[str, Any]]], said: str) -> None:
        replay = track(*updates, succeeded=True)
        assert said in replay.violations
        assert "stranger" not in replay.sessions

    @pytest.mark.parametrize("active", [False, True])
    @pytest.mark.parametrize("succeeded", [False, True])
    def test_what_holds_now_is_never_history(self, active: bool, succeeded: bool) -> None:
        """It may have been on its way before the agent read the request, if the session was active there."""
        replay = track(("root", STATE), ("root", message("a")), ("root", MARKER), succeeded=succeeded, active=active)
        assert (replay.outcome, replay.history) == (Outcome.COMPLETE, (message("a"),))
        assert replay.violations == (() if active else ("state_update before replay_complete",))
        later = track(("root", message("a")), ("root", STATE), ("root", MARKER), succeeded=succeeded, active=active)
        assert later.violations == ("state_update before replay_complete",)

    def test_a_child_of_before_is_no_stranger(self) -> None:
        """On this connection it was announced already; the replay does that again."""
        updates = [("c", message("a")), ("root", child("c")), ("c", MARKER), ("root", MARKER)]
        assert track(*updates, succeeded=True, active=True).violations == ()
        assert track(*updates, succeeded=True).violations == ("an update of a child that was not announced",)

    def test_state_of_a_child_is_historical(self) -> None:
        replay = track(("root", child("c")), ("c", STATE), ("c", MARKER), ("root", MARKER), succeeded=True)
        assert replay.violations == ()


class TestOverTheWire:
    async def stored(self, place: Place, client: Client) -> str:
        session = await client.new_session("/")
        await session.prompt("one")
        fake = place.fake(session)
        kid = fake.spawn("kid")
        fake.end_child(kid)
        return session.session_id

    async def test_updates_come_before_the_response_in_order(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session_id = await self.stored(place, client)
            async with connect(place.open) as client:
                session, replay = await client.resume(session_id, "/", replay=True)
                # Nothing more has to happen for them to be there.
                seen = kinds(list(session.pending_events()))
        assert replay is not None
        assert (
            seen[: seen.index("state_update")]
            == [
                "user_message",
                "agent_message",
                "subagent_update",
                "replay_complete",
                "replay_complete",
            ]
            or seen.count("replay_complete") == 2
        )
        assert {part.outcome for part in replay.sessions.values()} == {Outcome.COMPLETE}
        assert len(replay.sessions) == 2
        assert [update["sessionUpdate"] for update in replay.history][:2] == ["user_message", "agent_message"]

    async def test_without_replay_there_is_none(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session_id = await self.stored(place, client)
                _, replay = await client.resume(session_id, "/")
        assert replay is None

    async def test_a_failed_resume_has_the_replay_as_far_as_it_came(self) -> None:
        place = Place()

        async def fail(index: int) -> None:
            if index == 1:
                place.store.read_error = HistoryUnreadable("gone")

        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session_id = await self.stored(place, client)
            place.store.before_entry = fail
            async with connect(place.open) as client:
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume(session_id, "/", replay=True)
        assert caught.value.code == -32603
        assert caught.value.replay is not None
        assert caught.value.replay.outcome is Outcome.TRUNCATED

    @pytest.mark.parametrize("marked", [True, False])
    async def test_the_connection_ends_during_a_resume(self, marked: bool) -> None:
        agent = Scripted(_resuming(marked=marked))
        with anyio.fail_after(20):
            async with connect(agent.open) as client:
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume("s", "/", replay=True)
        assert caught.value.replay is not None
        assert caught.value.replay.outcome is (Outcome.COMPLETE if marked else Outcome.TRUNCATED)
        assert caught.value.replay.history == (message("a"),)

    async def test_with_retries_it_is_asked_again(self) -> None:
        agent = Scripted(_resuming(marked=False, good_after=2))
        with anyio.fail_after(20):
            async with with_retries(agent.open, Retries(attempts=5, first=0.001)) as client:
                _, replay = await client.resume("s", "/", replay=True)
        assert replay is not None
        assert (replay.outcome, replay.history) == (Outcome.UNCERTIFIED, (message("a"),))

    async def test_what_came_is_told_when_the_agent_is_given_up(self) -> None:
        """Attempts that reached no agent have brought nothing, and take nothing away."""
        agent = Scripted(_resuming(marked=False))
        with anyio.fail_after(20):
            async with with_retries(agent.open, Retries(attempts=3, first=0.001)) as client:
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume("s", "/", replay=True)
        assert isinstance(caught.value.cause, GaveUp)
        assert caught.value.replay is not None
        assert (caught.value.replay.outcome, caught.value.replay.history) == (Outcome.TRUNCATED, (message("a"),))

    async def test_a_replay_that_failed_for_now_is_told_once(self) -> None:
        """The stream and the value are of the attempt that succeeded."""
        agent = Scripted(_resuming(marked=False, good_after=2, ending=_TROUBLE))
        with anyio.fail_after(20):
            async with with_retries(agent.open, Retries(attempts=5, first=0.001)) as client:
                session, replay = await client.resume("s", "/", replay=True)
                seen = kinds(list(session.pending_events()))
        assert replay is not None
        assert (replay.outcome, replay.history) == (Outcome.UNCERTIFIED, (message("a"),))
        assert (seen, agent.connections) == (["agent_message", "state_update"], 1)

    async def test_a_complete_history_stays_complete_when_later_attempts_are_cut(self) -> None:
        replies = iter([[message("a"), MARKER], [message("a")], [message("a")]])
        agent = Scripted(_resuming(marked=False, ending=_TROUBLE, updates=replies))
        with anyio.fail_after(20):
            async with with_retries(agent.open, Retries(attempts=3, first=0.001)) as client:
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume("s", "/", replay=True)
        assert caught.value.replay is not None
        assert (caught.value.replay.outcome, caught.value.replay.history) == (Outcome.COMPLETE, (message("a"),))


class TestPersist:
    async def test_only_whole_histories_replace_a_copy(self, tmp_path: Path) -> None:
        store = HistoryStore(tmp_path / "copies")
        with anyio.fail_after(20):
            good = track(
                ("root", child("c")), ("root", message("old")), ("root", MARKER), ("c", MARKER), succeeded=True
            )
            assert set(await store.persist(good)) == {"root", "c"}
            cut = track(
                ("root", child("c")), ("c", message("new")), ("c", MARKER), ("root", message("x")), succeeded=False
            )
            assert await store.persist(cut) == ["c"]
            assert await store.load("root") == [child("c"), message("old")]
            assert await store.load("c") == [message("new")]
            assert await store.load("never") is None

    async def test_a_session_id_is_no_path(self, tmp_path: Path) -> None:
        store = HistoryStore(tmp_path / "copies")
        tracker = ReplayTracker("../../x\0" + "long" * 3000)
        with anyio.fail_after(20):
            (persisted,) = await store.persist(tracker.finish(succeeded=True))
            assert await store.load(persisted) == []
        assert [path.name for path in tmp_path.iterdir()] == ["copies"]

    async def test_a_failing_disk_leaves_the_old_copy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = HistoryStore(tmp_path)
        with anyio.fail_after(20):
            await store.persist(track(("root", message("old")), succeeded=True))

            def full(descriptor: int) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr("os.fsync", full)
            with pytest.raises(OSError, match="No space"):
                await store.persist(track(("root", message("new")), succeeded=True))
            assert await store.load("root") == [message("old")]
        assert len(list(tmp_path.iterdir())) == 1


_TROUBLE: Mapping[str, Any] = {"error": {"code": -32603, "message": "trouble"}}


def _resuming(
    *,
    marked: bool,
    good_after: int | None = None,
    ending: Mapping[str, Any] | None = None,
    updates: Iterator[list[Any]] | None = None,
) -> Any:
    """An agent whose resumes end with the connection, or as ``ending`` says, until some are good."""
    resumes = 0

    def answer(asked: dict[str, Any]) -> list[Any]:
        nonlocal resumes
        if asked["method"] == "initialize":
            return [{"id": asked["id"], "result": {"protocolVersion": 2, "info": {"name": "x", "version": "1"}}}]
        resumes += 1

        def update(value: Mapping[str, Any]) -> dict[str, Any]:
            return {"method": "session/update", "params": {"sessionId": "s", "update": value}}

        told = next(updates) if updates is not None else [message("a")] + ([MARKER] if marked else [])
        lines: list[Any] = [update(value) for value in told]
        if good_after is not None and resumes > good_after:
            return [*lines, update(STATE), {"id": asked["id"], "result": {}}]
        return [*lines, None if ending is None else {"id": asked["id"], **ending}]

    return answer
