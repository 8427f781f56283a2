"""The mortal client of a soak: it sends again what earlier lives left, takes new prompts, and waits for them."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from client.soak_death import Fate, MortalTransport, before_and_after
from faults.armed import arm
from sayagain.client import Client, ClientError, Outbox, OutboxError, OutcomeUnknown, Retries, with_retries
from sayagain.client.outbox_file import OutboxFile
from sayagain.client.session import Session
from sayagain.transports import Transport
from sayagain.transports.stdio import StdioTransport

__all__ = ["live"]


def live(
    place: Path, seed: int, number: int, *, mortal: bool, sabotage: str | None, strikes: Sequence[str] | None = None
) -> None:
    """One life, in this process. The last one is immortal and takes no new prompts.

    ``strikes`` are those of ``faults/armed.py``, in place of a death by seed.
    """
    chance = random.Random(f"client {seed} {number}")
    dies = mortal and strikes is None and chance.random() < 0.85
    fate = Fate(chance.randrange(1, 55) if dies else None, chance, place / "deaths")
    if strikes is None:
        fate.at_points()
    else:
        arm(str(place / "record"), strikes)
    before_and_after(fate, OutboxFile, "add", "settle", "move", "opened", "take", "note")
    anyio.run(_Life(place, seed, number, fate, mortal=mortal, sabotage=sabotage).run)


class _Life:
    def __init__(self, place: Path, seed: int, number: int, fate: Fate, *, mortal: bool, sabotage: str | None) -> None:
        self.place = place
        self.number = number
        self.name = f"{seed}-{number}"
        self.fate = fate
        self.chance = fate.chance
        self.mortal = mortal
        self.sabotage = sabotage

    async def run(self) -> None:
        async with Outbox(self.place / "outbox.db") as outbox:
            retries = Retries(attempts=30, first=0.005, longest=0.05)
            async with with_retries(partial(self.connect, outbox), retries, outbox=outbox, patience=10) as client:
                sessions: list[Session] = []
                for session_id, cwd in (await outbox.sessions()).items():
                    if self.sabotage == "new keys":
                        await _forget_keys(outbox)
                    try:
                        session, _ = await client.resume(session_id, cwd, replay=self.chance.random() < 0.5)
                        sessions.append(session)
                        if session.session_id != session_id:
                            self.log("moved", session.session_id)
                        resent = await session.resend()
                    except ClientError as error:
                        self.log("trouble", f"{type(error).__name__}: {error}")
                    else:
                        for lost in resent.errors:
                            self.log("trouble", str(lost))
                if self.mortal:
                    await self.work(client, sessions)

    async def work(self, client: Client, sessions: list[Session]) -> None:
        for part in range(self.chance.randrange(1, 3)):
            if not sessions or self.chance.random() < 0.5:
                sessions.append(await self.new(client))
            session = self.chance.choice(sessions)
            prompts = []
            for count in range(self.chance.randrange(1, 4)):
                text = f"{self.name}-{part}-{count}"
                try:
                    prompts.append(await session.submit(text))
                except OutboxError as error:
                    # It was not taken: the user still has it.
                    self.log("trouble", str(error))
                else:
                    self.log("submitted", text)
            for prompt in prompts:
                try:
                    await prompt.inserted()
                except ClientError as error:
                    self.log("trouble", str(error))

    async def new(self, client: Client) -> Session:
        while True:
            try:
                return await client.new_session("/")
            except (OutcomeUnknown, OutboxError):
                # The application decides: an unused session may be left, which costs nothing.
                continue

    @asynccontextmanager
    async def connect(self, outbox: Outbox) -> AsyncIterator[Transport]:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.place / "agent.sock"))
        # A child would inherit it.
        owner = outbox.owner_descriptors if self.sabotage != "no owner" else (0,)
        socket.send_fds(connection, [b"x"], list(owner))
        connection.setblocking(False)
        transport = StdioTransport(os.dup(connection.fileno()), os.dup(connection.fileno()))
        connection.close()
        try:
            yield MortalTransport(transport, self.fate)
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()

    def log(self, name: str, text: str) -> None:
        with (self.place / name).open("ab", buffering=0) as file:
            file.write(text.encode() + b"\n")


async def _forget_keys(outbox: Outbox) -> None:
    """What a client does that makes a new key for each attempt (xorbitsai/xagent#2365)."""
    for row in await outbox.prompts():
        await outbox.discard(row.key)
        await outbox.add(row.session_id, row.cwd, row.key + "x", row.content)
