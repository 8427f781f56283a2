"""Replays that were given up: what still comes of them is never part of the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from client.places import Place, Scripted, kinds
from sayagain.client import AgentSilent, Client, Outcome, Replay, ResumeFailed, Retries, Update, connect, with_retries

QUICK = Retries(attempts=4, first=0.001, longest=0.01)

MARKER = {"sessionUpdate": "replay_complete"}

CANCELLED = {"error": {"code": -32800, "message": "cancelled"}}


def told(update: Mapping[str, Any], session_id: str = "s") -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": session_id, "update": update}}


def said(text: str) -> dict[str, Any]:
    return told({"sessionUpdate": "agent_message", "messageId": text, "content": [{"type": "text", "text": text}]})


def texts(replay: Replay | None) -> list[str]:
    assert replay is not None
    return [update["messageId"] for update in replay.history]


class Halting:
    """An agent whose first replay halts after ``a``. On ``_go``, or at once when it is cancelled, it goes on with
    ``rest``, and answers.
    """

    def __init__(
        self, ending: Mapping[str, Any], rest: Sequence[Mapping[str, Any]], *, at_once: bool = False, halts: int = 1
    ) -> None:
        self.halted: int | None = None
        self.resumes = 0
        self.cancelled: list[int] = []
        self.silent = anyio.Event()
        self._at_once = at_once
        self._halts = halts
        self._rest = [*rest, ending]

    def __call__(self, asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        match asked["method"]:
            case "session/resume":
                self.resumes += 1
                if self.resumes <= self._halts:
                    self.halted = asked["id"]
                    self.silent.set()
                    return [said("a")]
                # Whatever it has begun comes first: one connection, one order.
                whole = [said("a"), said("b"), told(MARKER)] if asked["params"].get("replayFrom") else []
                return [*self.go(), *whole, {"id": asked["id"], "result": {}}]
            case "$/cancel_request":
                self.cancelled.append(asked["params"]["requestId"])
                return self.go() if self._at_once else []
            case "_go":
                return [*self.go(), {"id": asked["id"], "result": {}}]
            case _ if "id" in asked:
                return [{"id": asked["id"], "result": {"protocolVersion": 2, "sessionId": "s"}}]
            case _:
                return []

    def go(self) -> list[Mapping[str, Any] | bytes | None]:
        halted, self.halted = self.halted, None
        return (
            [] if halted is None else [{"id": halted, **line} if "method" not in line else line for line in self._rest]
        )


async def give_up(client: Client, agent: Halting, *, replay: bool = True) -> None:
    """Ask for a replay, and no longer want it when the agent has halted."""
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def ask() -> None:
            with scope:
                await client.resume("s", "/", replay=replay)

        tasks.start_soon(ask)
        await agent.silent.wait()
        await anyio.wait_all_tasks_blocked()
        scope.cancel()


@pytest.fixture(params=["connect", "with_retries"])
def way(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return connect if request.param == "connect" else lambda agent, **more: with_retries(agent, QUICK, **more)


class TestTheNextReplay:
    @pytest.mark.parametrize("at_once", [True, False], ids=["at once", "some time later"])
    @pytest.mark.parametrize("ending", [CANCELLED, {"result": {}}], ids=["cancelled", "all the same"])
    @pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
    async def test_has_nothing_of_it(
        self, way: Callable[..., Any], ending: Mapping[str, Any], *, at_once: bool, known: bool
    ) -> None:
        agent = Halting(ending, [said("b"), told(MARKER)], at_once=at_once)
        scripted = Scripted(agent)
        with anyio.fail_after(20):
            async with way(scripted.open) as client:
                if known:
                    (await client.new_session("/")).pending_events()
                await give_up(client, agent)
                got: list[Replay | None] = []

                async def ask() -> None:
                    got.append((await client.resume("s", "/", replay=True))[1])

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    assert agent.resumes == (2 if at_once else 1)
                    await client.request("_go", {})
                (replay,) = got
                assert replay is not None
                assert (replay.outcome, texts(replay), replay.violations) == (Outcome.COMPLETE, ["a", "b"], ())
        (resume, _) = (asked["id"] for asked in scripted.asked if asked["method"] == "session/resume")
        assert agent.cancelled == [resume]

    async def test_is_as_good_as_its_own_end(self, way: Callable[..., Any]) -> None:
        """The first replay's marker and success do not certify the second one."""
        agent = Halting({"result": {}}, [said("b"), told(MARKER)])
        scripted = Scripted(_cut_later(agent))
        with anyio.fail_after(20):
            async with way(scripted.open) as client:
                await give_up(client, agent)
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume("s", "/", replay=True)
        assert caught.value.replay is not None
        assert (caught.value.replay.outcome, texts(caught.value.replay)) == (Outcome.TRUNCATED, ["x"])

    async def test_the_stream_of_a_new_session_has_one_replay(self) -> None:
        agent = Halting(CANCELLED, [said("b")], at_once=True)
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                await give_up(client, agent)
                session, _ = await client.resume("s", "/", replay=True)
                assert kinds(list(session.pending_events())) == ["agent_message", "agent_message", "replay_complete"]

    @pytest.mark.parametrize("replay", [True, False])
    async def test_waits_for_any_resume(self, *, replay: bool) -> None:
        """One without a replay brings what is no history."""
        agent = Halting({"result": {}}, [told({"sessionUpdate": "state_update", "state": "idle"})], at_once=True)
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                await give_up(client, agent, replay=replay)
                _, got = await client.resume("s", "/", replay=True)
                assert got is not None
                assert (texts(got), got.violations) == (["a", "b"], ())

    async def test_waits_for_one_that_the_application_asks_for_itself(self) -> None:
        agent = Halting({"result": {}}, [said("b"), told(MARKER)])
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client, anyio.create_task_group() as tasks:
                raw = {"sessionId": "s", "cwd": "/", "replayFrom": {"type": "start"}}
                tasks.start_soon(client.request, "session/resume", raw)
                await agent.silent.wait()
                got: list[Replay | None] = []

                async def ask() -> None:
                    got.append((await client.resume("s", "/", replay=True))[1])

                async with anyio.create_task_group() as inner:
                    inner.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    await client.request("_go", {})
                assert (texts(got[0]), agent.cancelled) == (["a", "b"], [])

    async def test_waits_for_that_of_a_session_that_was_closed_meanwhile(self) -> None:
        """Then it is another object, and knows nothing of the first replay."""
        agent = Halting({"result": {}}, [said("b"), told(MARKER)])
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client, anyio.create_task_group() as tasks:
                session = await client.new_session("/")
                tasks.start_soon(client.resume, "s", "/")
                await agent.silent.wait()
                await session.close()
                got: list[Replay | None] = []

                async def ask() -> None:
                    other, replay = await client.resume("s", "/", replay=True)
                    assert other is not session
                    got.append(replay)

                async with anyio.create_task_group() as inner:
                    inner.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    await client.request("_go", {})
                assert (texts(got[0]), got[0] and got[0].outcome) == (["a", "b"], Outcome.COMPLETE)

    async def test_another_session_does_not_wait(self) -> None:
        agent = Halting(CANCELLED, [])
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                await give_up(client, agent)
                await client.resume("other", "/")
                assert agent.halted is None

    @pytest.mark.parametrize("times", [1, 3])
    @pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
    @pytest.mark.parametrize("record", range(6))
    async def test_our_agent(self, record: int, times: int, *, known: bool) -> None:
        """Given up at any record, more than once."""
        place = Place()
        halted, halts = anyio.Event(), times
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session = await client.new_session("/")
                session_id = session.session_id
                for text in ("one", "two", "three"):
                    await session.prompt(text)
                session.pending_events()
                _, whole = await client.resume(session_id, "/", replay=True)
                assert whole is not None
                assert len(whole.history) == 6

                async def halt(index: int) -> None:
                    nonlocal halts
                    if index == record and halts:
                        halts -= 1
                        halted.set()
                        await anyio.sleep_forever()

                place.store.before_entry = halt
                async with AsyncExitStack() as stack:
                    if not known:
                        await session.close()
                        client = await stack.enter_async_context(connect(place.open))
                    for _ in range(times):
                        halted = anyio.Event()
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(_replaying, client, session_id)
                            await halted.wait()
                            tasks.cancel_scope.cancel()
                    session, replay = await client.resume(session_id, "/", replay=True)
                    assert replay is not None
                    assert (replay.outcome, replay.history, replay.violations) == (Outcome.COMPLETE, whole.history, ())
                    await session.prompt("four")


class TestAgentsThatNeverAnswer:
    async def test_the_connection_is_given_up(self) -> None:
        agent = Halting(CANCELLED, [])
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                await give_up(client, agent)
                _first(client).heard -= 1000
                with pytest.raises(ResumeFailed, match=r"a cancelled session/resume was not answered within") as caught:
                    await client.resume("s", "/", replay=True)
                assert isinstance(caught.value.cause, AgentSilent)
                assert caught.value.replay is not None
                assert caught.value.replay.outcome is Outcome.TRUNCATED
        assert agent.resumes == 1

    async def test_with_retries_there_is_another(self) -> None:
        agent = Halting(CANCELLED, [])
        scripted = Scripted(agent)
        with anyio.fail_after(20):
            async with with_retries(scripted.open, QUICK) as client:
                await give_up(client, agent)
                _first(client).heard -= 1000
                # Of the first connection; the second one owes nothing.
                agent.go()
                _, replay = await client.resume("s", "/", replay=True)
                assert texts(replay) == ["a", "b"]
        assert scripted.connections == 2

    async def test_what_is_said_of_the_session_counts_as_a_sign_of_life(self) -> None:
        """A long replay may take its time to the end, if the agent cannot stop it."""
        agent = Halting(CANCELLED, [])
        scripted = Scripted(lambda asked: [said("b")] if asked["method"] == "_tell" else agent(asked))
        with anyio.fail_after(20):
            async with connect(scripted.open) as client:
                await give_up(client, agent)
                _first(client).heard -= 1000
                assert client._reach.link is not None
                client._reach.link.notify("_tell", {})
                await anyio.wait_all_tasks_blocked()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.resume, "s", "/")
                    await anyio.wait_all_tasks_blocked()
                    await client.request("_go", {})

    @pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
    @pytest.mark.parametrize("child", ["s.a", "s.a.b"])
    async def test_so_does_what_is_said_of_a_child(self, child: str, *, known: bool) -> None:
        """The history of one may be as long as its session's, also of one that a child has announced."""
        announced = [
            told({"sessionUpdate": "subagent_update", "sessionId": "s.a"}),
            told({"sessionUpdate": "subagent_update", "sessionId": "s.a.b"}, "s.a"),
        ]
        said_of_it = told({"sessionUpdate": "user_message", "messageId": "b", "content": []}, child)
        lines = {"_announce": announced, "_tell": [said_of_it]}
        agent = Halting(CANCELLED, [])

        def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
            if asked["method"] in lines:
                return [*lines[asked["method"]], {"id": asked["id"], "result": {}}]
            return agent(asked)

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client:
                if known:
                    await client.new_session("/")
                await give_up(client, agent)
                await client.request("_announce", {})
                _first(client).heard -= 1000
                await client.request("_tell", {})
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.resume, "s", "/")
                    await anyio.wait_all_tasks_blocked()
                    await client.request("_go", {})

    async def test_a_child_of_another_session_is_no_sign_of_life(self) -> None:
        agent = Halting(CANCELLED, [])
        other = told({"sessionUpdate": "subagent_update", "sessionId": "t.a"}, "t")
        lines = [other, told({"sessionUpdate": "user_message", "messageId": "b", "content": []}, "t.a")]

        def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
            return [*lines, {"id": asked["id"], "result": {}}] if asked["method"] == "_tell" else agent(asked)

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client:
                await give_up(client, agent)
                _first(client).heard -= 1000
                await client.request("_tell", {})
                with pytest.raises(ResumeFailed, match=r"a cancelled session/resume was not answered within"):
                    await client.resume("s", "/")

    async def test_a_lost_connection_owes_no_answer(self) -> None:
        agent = Halting(CANCELLED, [])
        place = Scripted(lambda asked: [None] if asked["method"] == "_die" else agent(asked))
        with anyio.fail_after(20):
            async with with_retries(place.open, QUICK) as client:
                await give_up(client, agent)
                agent.go()
                async with anyio.create_task_group() as tasks:

                    async def ask() -> None:
                        _, replay = await client.resume("s", "/", replay=True)
                        assert texts(replay) == ["a", "b"]

                    tasks.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    link = client._reach.link
                    assert link is not None
                    link.notify("_die", {})
        assert place.connections == 2


async def test_what_comes_after_the_answer_is_no_history() -> None:
    """Though it is read with the answer, before the task that waits for it runs."""

    def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        from sayagain.protocol.jsonrpc import encode_notification, encode_result

        if asked["method"] == "initialize":
            return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
        lines = [
            encode_notification("session/update", said("a")["params"]),
            encode_result(asked["id"], {}),
            encode_notification("session/update", said("live")["params"]),
        ]
        return [b"".join(lines).removesuffix(b"\n")]

    with anyio.fail_after(20):
        async with connect(Scripted(answer).open) as client:
            session, replay = await client.resume("s", "/", replay=True)
            assert (texts(replay), replay and replay.outcome) == (["a"], Outcome.UNCERTIFIED)
            events = [await anext(session), await anext(session)]
            assert [event.update["messageId"] for event in events if isinstance(event, Update)] == ["a", "live"]


async def _replaying(client: Client, session_id: str) -> None:
    await client.resume(session_id, "/", replay=True)


def _first(client: Client) -> Any:
    """The replay that was given up, at its client."""
    link = client._reach.link
    assert link is not None
    return link._resumes["s"]


def _cut_later(agent: Halting) -> Callable[[dict[str, Any]], list[Mapping[str, Any] | bytes | None]]:
    """Its second replay is cut after ``x``."""

    def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if asked["method"] == "session/resume" and agent.resumes == 1:
            agent.resumes += 1
            return [*agent.go(), said("x"), {"id": asked["id"], "error": {"code": -32602, "message": "no"}}]
        if asked["method"] == "$/cancel_request":
            return agent.go()
        return agent(asked)

    return answer
