"""Sessions that were never stored: another one is made for their prompts, or it is said why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from client.places import Scripted
from sayagain.client import (
    AgentGarbled,
    Disconnected,
    Moved,
    Outbox,
    OutboxError,
    OutcomeUnknown,
    PromptKept,
    ResumeFailed,
    Retries,
    Session,
    new_key,
    with_retries,
)
from sayagain.connection import PeerError

QUICK = Retries(attempts=4, first=0.001, longest=0.01)


class Forgetful:
    """An agent that knows no session but those that it has made, and does that as ``news`` says; then it refuses."""

    def __init__(self, news: Iterator[Mapping[str, Any]]) -> None:
        self.made: set[object] = set()
        self.asked = 0
        self._news = news

    def __call__(self, asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if "id" not in asked:
            return []
        match asked["method"]:
            case "session/new":
                self.asked += 1
                answer = next(self._news, {"error": {"code": -32603, "message": "not now"}})
                self.made.add(answer.get("result", {}).get("sessionId"))
            case "session/resume" if asked["params"]["sessionId"] not in self.made:
                answer = {"error": {"code": -32002, "message": "unknown session"}}
            case "session/prompt":
                answer = {"result": {"messageId": "m"}}
            case "_die":
                self.made.clear()
                return [None]
            case _:
                answer = {"result": {"protocolVersion": 2}}
        return [{"id": asked["id"], **answer}]


NEW = {"result": {"sessionId": "new"}}


def refusal(code: int) -> Mapping[str, Any]:
    return {"error": {"code": code, "message": "no room"}}


async def lost(outbox: Outbox) -> None:
    """A client made the session, and died with a prompt in it."""
    await outbox.opened("lost", "/")
    await outbox.add("lost", "/", new_key(), [{"type": "text", "text": "one"}])


class TestWhileASessionIsMoved:
    """The application goes on meanwhile; a later client has to find all of it."""

    async def moving(
        self,
        patch: pytest.MonkeyPatch,
        outbox: Outbox,
        method: str,
        do: Callable[[Session], Awaitable[None]],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Do something that calls ``method`` of the outbox under the old id when the session has moved already."""
        agent = Forgetful(iter([{"result": {"sessionId": "first"}}, NEW]))
        call, moved, called = getattr(outbox, method), anyio.Event(), anyio.Event()

        async def late(*args: Any, **named: Any) -> Any:
            if not called.is_set():
                called.set()
                await moved.wait()
            return await call(*args, **named)

        with anyio.fail_after(20):
            async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                session = await client.new_session("/")
                async with anyio.create_task_group() as tasks:
                    patch.setattr(outbox, method, late)
                    tasks.start_soon(do, session)
                    await called.wait()
                    with pytest.raises(OutcomeUnknown):
                        await client.request("_die", {})
                    assert await anext(session) == Disconnected("first")
                    assert isinstance(await anext(session), Moved)
                    then()
                    moved.set()

    async def submit(self, session: Session) -> None:
        assert await session.prompt("one") == "m"

    async def test_a_prompt_that_is_submitted_goes_along(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with Outbox(outbox_path) as outbox:
            await self.moving(monkeypatch, outbox, "add", self.submit)
            assert [row.session_id for row in await outbox.prompts(states=("done",))] == ["new"]
            assert not await outbox.unsettled("new")

    async def test_and_is_sent_though_the_outbox_cannot_move_it(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with Outbox(outbox_path) as outbox:

            async def fail(session_id: str) -> None:
                raise OutboxError(outbox_path, "has a disk I/O error")

            await self.moving(
                monkeypatch, outbox, "add", self.submit, lambda: monkeypatch.setattr(outbox, "follow", fail)
            )
            assert len(await outbox.prompts(states=("done",))) == 1

    async def test_what_is_sent_again_is_all_there_is(self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with Outbox(outbox_path) as outbox:

            async def resend(session: Session) -> None:
                assert list((await session.resend()).inserted) == ["k"]

            await outbox.add("first", "/", "k", [{"type": "text", "text": "one"}])
            await self.moving(monkeypatch, outbox, "take", resend)

    @pytest.mark.parametrize("resends", [False, True])
    async def test_in_the_middle_of_the_move_too(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch, *, resends: bool
    ) -> None:
        """When the outbox has moved it, and the session has its old id still."""
        agent = Forgetful(iter([{"result": {"sessionId": "first"}}, NEW]))
        async with Outbox(outbox_path) as outbox:
            prompts, held, go = outbox.prompts, anyio.Event(), anyio.Event()

            async def late(*args: Any, **named: Any) -> Any:
                rows = await prompts(*args, **named)
                held.set()
                await go.wait()
                return rows

            sent: list[str] = []

            async def do(session: Session) -> None:
                if resends:
                    sent.extend((await session.resend()).inserted.values())
                else:
                    sent.append(await session.prompt("one"))

            if resends:
                await outbox.add("first", "/", "k", [{"type": "text", "text": "one"}])
            with anyio.fail_after(20):
                async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                    session = await client.new_session("/")
                    monkeypatch.setattr(outbox, "prompts", late)
                    with pytest.raises(OutcomeUnknown):
                        await client.request("_die", {})
                    await held.wait()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(do, session)
                        await settle()
                        go.set()
            assert sent == ["m"]
            assert [row.session_id for row in await prompts(states=("done",))] == ["new"]
            assert not await outbox.unsettled("new")


async def settle() -> None:
    for _ in range(20):
        await anyio.to_thread.run_sync(bool)


async def test_a_client_finds_what_was_added_too_late(outbox_path: Path) -> None:
    """Another client had moved the session, and then this one died with a prompt in it."""
    agent = Forgetful(iter([]))
    agent.made.add("new")
    async with Outbox(outbox_path) as outbox:
        for session_id in ("lost", "new"):
            await outbox.opened(session_id, "/")
        await outbox.move("lost", "new")
        await outbox.add("lost", "/", "k", [{"type": "text", "text": "one"}])
    async with Outbox(outbox_path) as outbox:
        with anyio.fail_after(20):
            async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                for session_id, cwd in (await outbox.sessions()).items():
                    session, _ = await client.resume(session_id, cwd)
                    assert session.session_id == "new"
                    assert list((await session.resend()).inserted) == ["k"]
        assert await outbox.sessions() == {}


class TestAnAgentThatUsesItsIdsAgain:
    """It counts, and has forgotten that it did: the id that it gives may be one of a session that it has lost."""

    async def test_for_the_session_that_is_lost(self, outbox_path: Path) -> None:
        agent = Forgetful(iter([{"result": {"sessionId": "lost"}}]))
        async with Outbox(outbox_path) as outbox:
            await lost(outbox)
        async with Outbox(outbox_path) as outbox:
            with anyio.fail_after(20):
                async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                    session, replay = await client.resume("lost", "/", replay=True)
                    assert replay is not None
                    assert (replay.whole, replay.history, session.session_id) == (True, (), "lost")
                    assert len((await session.resend()).inserted) == 1
                    assert (await client.resume("lost", "/"))[0] is session
            assert await outbox.prompts() == []

    async def test_while_its_stream_is_read(self, outbox_path: Path) -> None:
        one = {"result": {"sessionId": "1"}}
        with anyio.fail_after(20):
            async with with_retries(Scripted(Forgetful(iter([one, one]))).open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                with pytest.raises(OutcomeUnknown):
                    await client.request("_die", {})
                assert await anext(session) == Disconnected("1")
                assert await anext(session) == Moved("1", "1", [])
                assert await session.prompt("one") == "m"
                assert not await client.outbox.unsettled("1")

    async def test_for_a_new_session(self, outbox_path: Path) -> None:
        """Who has the old one would wait for ever, if it were another object."""
        one = {"result": {"sessionId": "1"}}
        with anyio.fail_after(20):
            async with with_retries(Scripted(Forgetful(iter([one, one]))).open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                assert await session.prompt("one") == "m"
                again = await client.new_session("/other", mcpServers=[])
                assert again is session
                assert (session.cwd, session.setup) == ("/other", {"mcpServers": []})
                assert await client.outbox.unsettled("1")
                assert await session.prompt("two") == "m"


class TestAnAgentThatMakesNoOther:
    @pytest.mark.parametrize("refusals", [1, 3])
    async def test_for_now(self, outbox_path: Path, refusals: int) -> None:
        agent = Forgetful(iter([refusal(-32603)] * refusals + [NEW]))
        async with Outbox(outbox_path) as outbox:
            await lost(outbox)
            with anyio.fail_after(20):
                async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                    session, replay = await client.resume("lost", "/", replay=True)
                    assert session.session_id == "new"
                    assert replay is not None
                    assert replay.whole
                    assert len((await session.resend()).inserted) == 1

    @pytest.mark.parametrize(("code", "asked"), [(-32603, 4), (-32602, 1), (-32000, 1), (-32601, 1), (-32002, 1)])
    async def test_the_cause_is_told(self, outbox_path: Path, code: int, asked: int) -> None:
        """-32002 would say that all there is to know is that the session is gone."""
        agent = Forgetful(iter([refusal(code)] * 10))
        async with Outbox(outbox_path) as outbox:
            await lost(outbox)
            with anyio.fail_after(20):
                async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                    with pytest.raises(ResumeFailed, match=r"no room.*does not know it, and makes no other") as caught:
                        await client.resume("lost", "/", replay=True)
            assert (caught.value.code, agent.asked, len(await outbox.prompts("lost"))) == (code, asked, 1)
            assert isinstance(caught.value.__cause__, PeerError)
            assert caught.value.__cause__.text == "no room"
            assert caught.value.replay is not None
            assert not caught.value.replay.whole

    async def test_one_without_an_id(self, outbox_path: Path) -> None:
        agent = Forgetful(iter([{"result": {}}]))
        async with Outbox(outbox_path) as outbox:
            await lost(outbox)
            with anyio.fail_after(20):
                async with with_retries(Scripted(agent).open, QUICK, outbox=outbox) as client:
                    with pytest.raises(ResumeFailed, match="without an id") as caught:
                        await client.resume("lost", "/")
            assert isinstance(caught.value.cause, AgentGarbled)

    async def test_after_a_lost_connection(self, outbox_path: Path) -> None:
        """Nobody asks: the trouble is waited out all the same."""
        agent = Forgetful(iter([{"result": {"sessionId": "first"}}, refusal(-32603), refusal(-32800), NEW]))
        with anyio.fail_after(20):
            async with with_retries(Scripted(agent).open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                with pytest.raises(OutcomeUnknown):
                    await client.request("_die", {})
                assert await anext(session) == Disconnected("first")
                assert await anext(session) == Moved("first", "new", [])
                assert await session.prompt("one") == "m"

    async def test_and_then_says_why(self, outbox_path: Path) -> None:
        agent = Forgetful(iter([{"result": {"sessionId": "first"}}, refusal(-32000)]))
        with anyio.fail_after(20):
            async with with_retries(Scripted(agent).open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                with pytest.raises(OutcomeUnknown):
                    await client.request("_die", {})
                assert await anext(session) == Disconnected("first")
                with pytest.raises(ResumeFailed, match="no room") as caught:
                    await anext(session)
                assert caught.value.code == -32000
                with pytest.raises(PromptKept, match="no room"):
                    await session.prompt("one")
