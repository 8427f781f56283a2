"""What comes for a session before the answer that says its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import anyio
import pytest

from client.places import Scripted
from sayagain.client import (
    Client,
    Moved,
    Outbox,
    Outcome,
    PeerError,
    Replay,
    Retries,
    Session,
    Update,
    connect,
    new_key,
    with_retries,
)

MARKER = {"sessionUpdate": "replay_complete"}


def said(text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message", "messageId": text, "content": []}


def child(session_id: str) -> dict[str, Any]:
    return {"sessionUpdate": "subagent_update", "sessionId": session_id}


def told(update: Mapping[str, Any], session_id: str) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": session_id, "update": update}}


class Telling:
    """An agent that answers requests for sessions when it is told to, and sends what it is told to."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        """Ids of requests that are not answered, by session; a new one is called as its directory."""
        self._changed = anyio.Event()

    def __call__(self, asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        match asked["method"]:
            case "session/new" | "session/resume":
                params = asked["params"]
                self.asked[params.get("sessionId") or params["cwd"].removeprefix("/")] = asked["id"]
                self._changed.set()
                self._changed = anyio.Event()
                return []
            case "_tell":
                params = asked["params"]
                return [*params["lines"], *self._answers(params["answer"]), {"id": asked["id"], "result": {}}]
            case _ if "id" in asked:
                return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
            case _:
                return []

    def _answers(self, answers: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [
            {"id": self.asked.pop(name), **(answer or {"result": {"sessionId": name}})}
            for name, answer in answers.items()
        ]

    async def until_asked(self, name: str) -> None:
        while name not in self.asked:
            await self._changed.wait()


async def tell(client: Client, *lines: Mapping[str, Any], **answer: Mapping[str, Any]) -> None:
    """On return the client has all that."""
    await client.request("_tell", {"lines": lines, "answer": answer})


def updates(session: Session) -> Sequence[tuple[str, Mapping[str, Any]]]:
    return [(event.session_id, event.update) for event in session.pending_events() if isinstance(event, Update)]


class Making:
    """Sessions that are made in the background, by their ids."""

    def __init__(self, client: Client, agent: Telling, tasks: Any) -> None:
        self.made: dict[str, Session] = {}
        self._client = client
        self._agent = agent
        self._tasks = tasks

    async def begin(self, name: str) -> None:
        self._tasks.start_soon(self._make, name)
        await self._agent.until_asked(name)

    async def _make(self, name: str) -> None:
        self.made[name] = await self._client.new_session(f"/{name}")


class TestComesToIt:
    async def test_with_that_of_its_children(self) -> None:
        agent = Telling()
        early = [("a", said("1")), ("a", child("a.c")), ("a.c", child("a.c.d")), ("a.c.d", said("2")), ("a", said("3"))]
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                async with anyio.create_task_group() as tasks:
                    making = Making(client, agent, tasks)
                    await making.begin("a")
                    await tell(client, *(told(update, session_id) for session_id, update in early), a={})
                await tell(client, told(said("4"), "a.c"))
                assert updates(making.made["a"]) == [*early, ("a.c", said("4"))]

    async def test_if_several_are_made(self) -> None:
        agent = Telling()
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                async with anyio.create_task_group() as tasks:
                    making = Making(client, agent, tasks)
                    await making.begin("a")
                    await making.begin("b")
                    await tell(client, told(said("1"), "b"), told(said("2"), "a"), a={})
                    await tell(client, told(said("3"), "b"), b={})
                assert updates(making.made["a"]) == [("a", said("2"))]
                assert updates(making.made["b"]) == [("b", said("1")), ("b", said("3"))]

    async def test_if_the_prompts_of_another_are_moved_there(self) -> None:
        agent = Telling()
        unknown = {"error": {"code": -32002, "message": "unknown session"}}
        got: list[Session] = []

        async def resume(client: Client) -> None:
            got.append((await client.resume("old", "/new"))[0])

        with anyio.fail_after(20):
            async with Outbox() as outbox:
                await outbox.opened("old", "/new")
                await outbox.add("old", "/new", new_key(), [{"type": "text", "text": "one"}])
                quick = Retries(attempts=4, first=0.001, longest=0.01)
                async with with_retries(Scripted(agent).open, quick, outbox=outbox) as client:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(resume, client)
                        for _ in range(2):
                            await agent.until_asked("old")
                            await tell(client, old=unknown)
                        await agent.until_asked("new")
                        await tell(client, told(child("new.c"), "new"), told(said("1"), "new.c"), new={})
                    moved, *rest = got[0].pending_events()
                    assert isinstance(moved, Moved)
                    assert rest == [Update("new", child("new.c")), Update("new.c", said("1"))]


class TestIsOfNoOther:
    async def test_what_was_there_before_it_was_asked_for(self) -> None:
        """Of another, that had the id before."""
        agent = Telling()
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                await tell(client, told(said("0"), "b"))
                async with anyio.create_task_group() as tasks:
                    making = Making(client, agent, tasks)
                    await making.begin("a")
                    await tell(client, told(said("1"), "b"), a={})
                async with anyio.create_task_group() as tasks:
                    making = Making(client, agent, tasks)
                    await making.begin("b")
                    await tell(client, told(said("2"), "b"), b={})
                assert updates(making.made["b"]) == [("b", said("2"))]

    @pytest.mark.parametrize("answer", [{}, {"error": {"code": -32603, "message": "not now"}}])
    async def test_and_is_not_kept(self, answer: Mapping[str, Any]) -> None:
        agent = Telling()

        async def end(client: Client) -> None:
            await agent.until_asked("a")
            await tell(client, told(said("1"), "x"))
            assert len(client._inbox._stray) == 1
            await tell(client, a=answer)

        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                await tell(client, told(said("0"), "x"))
                assert not client._inbox._stray
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(end, client)
                    with pytest.raises(PeerError) if answer else nullcontext():
                        await client.new_session("/a")
                assert not client._inbox._stray

    @pytest.mark.parametrize("early", ["s", "s.c"])
    async def test_of_a_replay_that_runs_meanwhile(self, early: str) -> None:
        """It came before that was asked for, and is neither a part of it nor missing."""
        agent = Telling()
        got: list[tuple[Session, Replay | None]] = []

        async def resume(client: Client) -> None:
            got.append(await client.resume("s", "/", replay=True))

        history = [("s", said("1")), ("s", child("s.c")), ("s.c", said("2")), ("s.c", MARKER), ("s", MARKER)]
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                async with anyio.create_task_group() as tasks:
                    making = Making(client, agent, tasks)
                    await making.begin("a")
                    await tell(client, told(said("0"), early))
                    tasks.start_soon(resume, client)
                    await agent.until_asked("s")
                    await tell(client, told(said("1"), "s"), a={})
                    await tell(client, *(told(update, session_id) for session_id, update in history[1:]), s={})
                ((session, replay),) = got
                assert replay is not None
                assert ([each.outcome for each in replay.sessions.values()], replay.violations) == (
                    [Outcome.COMPLETE, Outcome.COMPLETE],
                    (),
                )
                assert replay.history == (said("1"), child("s.c"))
                assert updates(session) == history
                assert updates(making.made["a"]) == []
