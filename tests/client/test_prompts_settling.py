"""Prompts while the outbox is told what became of them, or asked for them: nothing that happens meanwhile is missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import pytest

from client.places import Scripted
from sayagain.client import (
    Client,
    Outbox,
    OutcomeUnknown,
    PromptKept,
    PromptWithdrawn,
    Reconnected,
    Resent,
    Retries,
    Session,
    connect,
    with_retries,
)

QUICK = Retries(attempts=4, first=0.001, longest=0.01)


class Halting(Outbox):
    """The first call of one method halts until ``released``: reading has read by then, writing has not written."""

    def __init__(self, halts: str) -> None:
        super().__init__()
        self._halts = halts
        self.reached, self.released = anyio.Event(), anyio.Event()

    async def take(self, *args: Any, **more: Any) -> Any:
        taken = await super().take(*args, **more)
        await self._halt("take")
        return taken

    async def note(self, *args: Any) -> None:
        await self._halt("note")
        await super().note(*args)

    async def withdrawn(self, *args: Any) -> None:
        await self._halt("withdrawn")
        await super().withdrawn(*args)

    async def _halt(self, name: str) -> None:
        if name == self._halts:
            self.reached.set()
            # The client is not cancelled in this: a test that fails would hang.
            with anyio.fail_after(10):
                await self.released.wait()

    async def state_of(self, key: str) -> str:
        rows = await self.prompts(states=("pending", "done", "failed", "withdrawn"))
        return next(row.state for row in rows if row.key == key)


class Moody:
    """An agent that answers resumes as ``mood`` says (``None``: not before ``_go``), and prompts as ``prompt`` (empty:
    it dies instead).
    """

    def __init__(self, mood: Mapping[str, Any] | None, prompt: Mapping[str, Any] | None = None) -> None:
        self.mood = mood
        self.resumed = anyio.Event()
        self._prompt = {"result": {"messageId": "m"}} if prompt is None else prompt
        self._waiting: list[Any] = []

    def __call__(self, asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if asked["method"] == "session/resume":
            self.resumed.set()
        match asked["method"]:
            case "session/resume" if self.mood is None:
                self._waiting.append(asked["id"])
                return []
            case "session/resume":
                return [{"id": asked["id"], **self.mood}]
            case "session/prompt":
                return [{"id": asked["id"], **self._prompt} if self._prompt else None]
            case "_go":
                return [*({"id": each, "result": {}} for each in self._waiting), {"id": asked["id"], "result": {}}]
            case "_die":
                return [None]
            case _ if "id" in asked:
                return [{"id": asked["id"], "result": {"protocolVersion": 2, "sessionId": "s"}}]
            case _:
                return []


REFUSED = {"error": {"code": -32602, "message": "not this one"}}

GOOD = {"result": {}}


def prompts_of(agent: Scripted) -> list[Any]:
    return [asked["params"]["idempotencyKey"] for asked in agent.asked if asked["method"] == "session/prompt"]


async def lost(client: Client, agent: Moody) -> Session:
    """A session that waits to be resumed on the second connection, or cannot be."""
    session = await client.new_session("/")
    with suppress(OutcomeUnknown):
        await client.request("_die", {})
    await agent.resumed.wait()
    return session


async def resumed(session: Session) -> None:
    async for event in session:
        if isinstance(event, Reconnected):
            return


async def withdraw(session: Session, prompt: Any) -> None:
    await session.withdraw(prompt)


async def cancel(session: Session, prompt: Any) -> None:
    await session.cancel()


async def test_a_fault_that_is_over_keeps_no_prompt() -> None:
    """It is kept one by one, and each time it is asked anew whether there is a reason."""
    moody = Moody(REFUSED)
    agent = Scripted(moody)
    with anyio.fail_after(20):
        async with Halting("note") as outbox, with_retries(agent.open, QUICK, outbox=outbox) as client:
            session = await lost(client, moody)
            first = await session.submit("one")
            await outbox.reached.wait()
            moody.mood = GOOD
            await client.resume("s", "/")
            second = await session.submit("two")
            outbox.released.set()
            assert await second.inserted() == "m"
            with pytest.raises(PromptKept):
                await first.inserted()
    assert prompts_of(agent) == [second.key]


@pytest.mark.parametrize("take_back", [withdraw, cancel])
class TestTakenBackWhileItIsKept:
    """Who takes back a prompt that is not settled learns that it is withdrawn, and so it is."""

    async def taken_back(
        self, session: Session, outbox: Halting, take_back: Callable[..., Awaitable[None]]
    ) -> PromptWithdrawn:
        prompt = await session.submit("one")
        await outbox.reached.wait()
        await take_back(session, prompt)
        outbox.released.set()
        with pytest.raises(PromptWithdrawn) as caught:
            await prompt.inserted()
        assert await outbox.state_of(prompt.key) == "withdrawn"
        assert session.open_keys == []
        return caught.value

    async def test_for_a_session_that_cannot_be_resumed(self, take_back: Callable[..., Awaitable[None]]) -> None:
        moody = Moody(REFUSED)
        agent = Scripted(moody)
        with anyio.fail_after(20):
            async with Halting("note") as outbox, with_retries(agent.open, QUICK, outbox=outbox) as client:
                error = await self.taken_back(await lost(client, moody), outbox, take_back)
        assert not error.uncertain

    async def test_for_an_agent_that_is_lost(self, take_back: Callable[..., Awaitable[None]]) -> None:
        agent = Scripted(Moody(GOOD, prompt={}))
        with anyio.fail_after(20):
            async with Halting("note") as outbox, connect(agent.open, outbox=outbox) as client:
                error = await self.taken_back(await client.new_session("/"), outbox, take_back)
        # It had been sent.
        assert error.uncertain

    async def test_for_an_error(self, take_back: Callable[..., Awaitable[None]]) -> None:
        """It says that nothing was inserted (KEY-4)."""
        agent = Scripted(Moody(GOOD, prompt={"error": {"code": -32000, "message": "sign in"}}))
        with anyio.fail_after(20):
            async with Halting("note") as outbox, connect(agent.open, outbox=outbox) as client:
                error = await self.taken_back(await client.new_session("/"), outbox, take_back)
        assert not error.uncertain


class TestResendMeanwhile:
    async def test_one_that_is_being_kept_is_sent(self) -> None:
        """It is pending in a moment, and nobody else would send it."""
        moody = Moody(REFUSED)
        agent = Scripted(moody)
        got: list[Resent] = []
        with anyio.fail_after(20):
            async with Halting("note") as outbox, with_retries(agent.open, QUICK, outbox=outbox) as client:
                session = await lost(client, moody)
                prompt = await session.submit("one")
                await outbox.reached.wait()
                moody.mood = GOOD
                await client.resume("s", "/")

                async def resend() -> None:
                    got.append(await session.resend())

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(resend)
                    await anyio.wait_all_tasks_blocked()
                    outbox.released.set()
                with pytest.raises(PromptKept):
                    await prompt.inserted()
        assert [resent.inserted for resent in got] == [{prompt.key: "m"}]

    async def test_one_that_is_withdrawn_is_not_sent(self) -> None:
        """The outbox called it pending when it was asked."""
        moody = Moody(None)
        agent = Scripted(moody)
        got: list[Resent] = []
        with anyio.fail_after(20):
            async with Halting("take") as outbox, with_retries(agent.open, QUICK, outbox=outbox) as client:
                session = await lost(client, moody)
                prompt = await session.submit("one")

                async def resend() -> None:
                    got.append(await session.resend())

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(resend)
                    await outbox.reached.wait()
                    await session.withdraw(prompt)
                    outbox.released.set()
                    await client.request("_go", {})
                assert await outbox.state_of(prompt.key) == "withdrawn"
        assert (got, prompts_of(agent)) == ([Resent({}, (), (), 0)], [])


async def test_what_is_cancelled_is_not_sent_while_another_is_noted() -> None:
    moody = Moody(None)
    agent = Scripted(moody)
    with anyio.fail_after(20):
        async with Halting("withdrawn") as outbox, with_retries(agent.open, QUICK, outbox=outbox) as client:
            session = await lost(client, moody)
            prompts = [await session.submit("one"), await session.submit("two")]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.cancel)
                await outbox.reached.wait()
                await client.request("_go", {})
                await resumed(session)
                await anyio.wait_all_tasks_blocked()
                outbox.released.set()
            for prompt in prompts:
                with pytest.raises(PromptWithdrawn) as caught:
                    await prompt.inserted()
                assert not caught.value.uncertain
    assert prompts_of(agent) == []
