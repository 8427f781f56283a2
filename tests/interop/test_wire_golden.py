"""Canonical exchanges, byte for byte: a diff is a decision.

Over the in-memory transport with the fake runtime; ids and the version are made constant. Each line of a file is
``{"client": line}`` or ``{"agent": line}``, with the line as it was written (a string when it is no JSON).
``SAYAGAIN_GOLDEN=write pytest tests/interop/test_wire_golden.py`` writes the files anew.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sayagain.errors import PromptRefused
from sayagain.testing.fake_runtime import FakeStore
from support_agent import Client, World, serving, settle
from support_wire import prompt_params

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "wire"
WRITE = os.environ.get("SAYAGAIN_GOLDEN") == "write"


class Tape:
    """A client's pipe that keeps every line that passes."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._rest = {"client": b"", "agent": b""}
        self.text = b""

    async def receive(self) -> bytes:
        data: bytes = await self._pipe.receive()
        self._keep("agent", data)
        return data

    async def send(self, data: bytes) -> None:
        self._keep("client", data)
        await self._pipe.send(data)

    def _keep(self, side: str, data: bytes) -> None:
        *lines, self._rest[side] = (self._rest[side] + data).split(b"\n")
        for line in lines:
            try:
                json.loads(line)
            except ValueError:
                line = json.dumps(line.decode()).encode()
            self.text += b'{"' + side.encode() + b'":' + line + b"}\n"


class Play:
    """One connection on tape. Every step is over when nothing more can happen by itself."""

    def __init__(self, world: World, client: Client, tape: Tape) -> None:
        self.world = world
        self.client = client
        self.tape = tape

    async def ask(self, method: str, **params: Any) -> int:
        request = await self.client.begin(method, params)
        await settle()
        return request

    async def tell(self, method: str, **params: Any) -> None:
        await self.client.notify(method, params)
        await settle()

    async def initialize(self) -> None:
        await self.ask("initialize", protocolVersion=2, info={"name": "client", "version": "1"}, capabilities={})

    async def begin(self) -> str:
        """Initialize, and a new session."""
        await self.initialize()
        await self.ask("session/new", cwd="/project")
        return next(iter(self.world.runtime.sessions))

    async def prompt(self, session_id: str, content: str, key: str | None = None) -> int:
        return await self.ask("session/prompt", **prompt_params(session_id, content, key))


async def keyed_prompt(play: Play) -> None:
    """Sent twice it lands once; another prompt under the key is refused, and so is a key that is none."""
    session_id = await play.begin()
    await play.prompt(session_id, "hello", "key-1")
    await play.prompt(session_id, "hello", "key-1")
    await play.prompt(session_id, "something else", "key-1")
    await play.ask("session/prompt", sessionId=session_id, prompt=[], idempotencyKey="")


async def restart(play: Play) -> None:
    """Another process with the same store: a whole replay, then the retry of a prompt that was stored."""
    session_id = await play.begin()
    fake = play.world.fake(session_id)
    fake.manual = True
    await play.prompt(session_id, "delegate", "key-1")
    fake.run()
    fake.store(fake.submitted[0])
    child_id = fake.spawn("helper")
    fake.say("It is done.")
    fake.end_child(child_id)
    play.world.runtime.gap(session_id, "1 damaged line")
    fake.finish()
    await settle()
    await play.ask("session/close", sessionId=session_id)
    async with serving(play.world.store) as world:
        client = await world.connect(initialize=False)
        client._pipe = Tape(client._pipe)
        again = Play(world, client, client._pipe)
        await again.initialize()
        await again.ask("session/resume", sessionId=session_id, cwd="/project", replayFrom={"type": "start"})
        await again.prompt(session_id, "delegate", "key-1")
        play.tape.text += again.tape.text


async def held_prompts(play: Play) -> None:
    """Prompts wait while a turn runs: one is withdrawn by ``$/cancel_request``, one by ``session/cancel``."""
    session_id = await play.begin()
    fake = play.world.fake(session_id)
    fake.manual = True
    await play.prompt(session_id, "work")
    fake.run()
    fake.store(fake.submitted[0])
    await settle()
    second = await play.prompt(session_id, "second", "key-2")
    await play.prompt(session_id, "third", "key-3")
    await play.tell("$/cancel_request", requestId=second)
    await play.tell("session/cancel", sessionId=session_id)
    fake.finish("cancelled")
    await settle()


async def permission(play: Play) -> None:
    """Answered by the client; then one that the runtime withdraws."""
    session_id = await play.begin()
    fake = play.world.fake(session_id)
    fake.manual = True
    await play.prompt(session_id, "use a tool")
    fake.run()
    fake.store(fake.submitted[0])
    fake.ask("touch")
    await settle()
    outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
    await play.client.post({"jsonrpc": "2.0", "id": play.client.asked[0]["id"], "result": outcome})
    await settle()
    fake.ask("remove")
    await settle()
    fake.withdraw_ask("remove")
    fake.finish()
    await settle()


async def refused_prompt(play: Play) -> None:
    """Turned away by the runtime: an error, and the key is free."""
    session_id = await play.begin()
    fake = play.world.fake(session_id)
    fake.manual = True
    await play.prompt(session_id, "no", "key-1")
    fake.refuse(fake.submitted[0], PromptRefused("a hook said no"))
    await settle()
    fake.manual = False
    await play.prompt(session_id, "no", "key-1")


async def sessions(play: Play) -> None:
    """List, fork, close, delete."""
    session_id = await play.begin()
    await play.prompt(session_id, "hello")
    await play.ask("session/list")
    await play.ask("session/fork", sessionId=session_id, cwd="/project")
    await play.ask("session/close", sessionId=session_id)
    await play.prompt(session_id, "too late")
    await play.ask("session/delete", sessionId=session_id)
    await play.ask("session/resume", sessionId=session_id, cwd="/project")


async def broken_lines(play: Play) -> None:
    """What is no JSON, no message, no method, no batch; the connection lives on."""
    for line in (b"{broken}", b"{}", b'{"jsonrpc":"2.0","id":"early","method":"session/list"}', b"[]"):
        await play.client.raw(line + b"\n")
        await settle()
    await play.initialize()
    await play.ask("made/up")
    await play.ask("session/new", cwd="relative")
    await play.client.batch(
        play.client.request_message("session/list", {}), play.client.request_message("session/list", {"cursor": "x"})
    )
    await settle()


PLAYS: tuple[Callable[[Play], Awaitable[None]], ...] = (
    keyed_prompt,
    restart,
    held_prompts,
    permission,
    refused_prompt,
    sessions,
    broken_lines,
)


@pytest.fixture(autouse=True)
def constants(monkeypatch: pytest.MonkeyPatch) -> None:
    def ids(version: int) -> Iterator[str]:
        return (str(uuid.UUID(int=number, version=version)) for number in count(1))

    session_ids, message_ids = ids(4), ids(5)
    monkeypatch.setattr("sayagain.testing.fake_runtime.new_session_id", lambda: next(session_ids))
    monkeypatch.setattr("sayagain.agent.methods.fresh_message_id", lambda: next(message_ids))
    monkeypatch.setattr("sayagain.agent.agent.__version__", "0")


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
async def test_an_exchange_is_as_decided(play: Callable[[Play], Awaitable[None]]) -> None:
    async with serving(FakeStore()) as world:
        client = await world.connect(initialize=False)
        client._pipe = Tape(client._pipe)
        await play(Play(world, client, client._pipe))
        path = FOLDER / f"{play.__name__}.jsonl"
        if WRITE:
            path.write_bytes(client._pipe.text)
        assert client._pipe.text.decode() == path.read_text(encoding="utf-8")


def test_every_golden_exchange_is_played() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == {play.__name__ for play in PLAYS}
