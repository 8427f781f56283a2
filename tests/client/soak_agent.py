"""Our agent over the fake runtime with a store on disk: one process for each connection to a socket.

The store is what a real runtime has: one file for each session, appended to; a lock that one process at a time holds to
work on a session, as the adapters' leases do; nothing of a session before its first message.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import anyio

from client.soak_death import Fate, MortalTransport
from sayagain.agent import Agent
from sayagain.errors import SessionInUse
from sayagain.runtime.events import Foreground
from sayagain.runtime.history import HistoryEntry, HistoryUpdate, UserTurn
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession
from sayagain.transports.stdio import StdioTransport

__all__ = ["serve_agents", "stored_prompts"]

LEASE = 5.0
"""Seconds that an agent waits for another one to let go of a session."""


def stored_prompts(folder: Path) -> list[tuple[str, str, str]]:
    """Every stored user message, repeats included: session, message id, text."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for row in _rows(path):
            if row["kind"] == "user":
                text = "".join(block["text"] for block in row["update"]["content"])
                found.append((path.stem, row["id"], text))
    return found


def serve_agents(listener: socket.socket, store: Path, seed: int, mortals: int, deaths: Path) -> None:
    """Never returns. The first ``mortals`` agents die of something; later ones live."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    life = 0
    while True:
        connection, _ = listener.accept()
        # The lock of the client's owner: an agent that is a child would have inherited it.
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
        life += 1
        if os.fork() == 0:
            listener.close()
            chance = random.Random(f"agent {seed} {life}")
            last = chance.randrange(1, 80) if life <= mortals and chance.random() < 0.8 else None
            fate = Fate(last, chance, deaths)
            fate.at_points()
            anyio.run(_serve, connection, store, fate)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.close()


async def _serve(connection: socket.socket, store: Path, fate: Fate) -> None:
    connection.setblocking(False)
    transport = StdioTransport(os.dup(connection.fileno()), os.dup(connection.fileno()))
    connection.close()
    async with _DiskRuntime(store, fate) as runtime, Agent(runtime) as agent:
        await agent.serve(_Slow(transport, fate))


class _Slow(MortalTransport):
    """Notices a while later that its client is gone, as an orphan does."""

    async def receive(self) -> bytes:
        data = await super().receive()
        if not data:
            await anyio.sleep(self._fate.chance.random() * 0.4)
        return data


class _DiskRuntime(FakeRuntime):
    def __init__(self, folder: Path, fate: Fate) -> None:
        super().__init__()
        self.folder = folder
        self.fate = fate

    def load(self, session_id: str) -> None:
        path = self.folder / f"{session_id}.jsonl"
        if path.exists():
            self.store.sessions[session_id] = [_entry(session_id, row) for row in _rows(path)]
            self.store.directories.setdefault(session_id, "/")

    async def resume(self, session_id: str, setup: SessionSetup) -> FakeSession:
        self.load(session_id)
        return await super().resume(session_id, setup)

    async def stored(self, session_id: str) -> bool:
        self.load(session_id)
        return await super().stored(session_id)

    async def history(self, session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        self.load(session_id)
        async for entry in super().history(session_id, live=live):
            yield entry

    async def message_ids(self, session_id: str) -> Set[str]:
        self.load(session_id)
        self.fate.step()
        return await super().message_ids(session_id)

    def _session(self, session_id: str, setup: SessionSetup) -> FakeSession:
        session = self.sessions[session_id] = _DiskSession(self, session_id, setup)
        return session


class _DiskSession(FakeSession):
    def __init__(self, runtime: _DiskRuntime, session_id: str, setup: SessionSetup) -> None:
        super().__init__(runtime, session_id, setup)
        self._folder = runtime.folder
        self._fate = runtime.fate
        self._lease: int | None = None

    async def own(self, *, patience: float = LEASE) -> None:
        await super().own(patience=patience)
        if self._lease is None:
            lease = os.open(self._folder / f"{self.session_id}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            with anyio.move_on_after(patience):
                while True:
                    try:
                        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        await anyio.sleep(0.01)
                    else:
                        self._lease = lease
                        return
            os.close(lease)
            raise SessionInUse

    async def submit(self, message_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        self.submitted.append(message_id)
        self.contents[message_id] = content
        self.emit(Foreground(self.session_id, "running"))
        # Seldom long: the agent of a killed client is then found at work by the next one.
        await anyio.sleep(self._fate.chance.random() * (0.4 if self._fate.chance.random() < 0.3 else 0.01))
        self.store(message_id)
        await anyio.sleep(self._fate.chance.random() * 0.01)
        self.say("answer")
        self.finish()

    async def close(self) -> None:
        await super().close()
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None

    def persist(self, entry: HistoryEntry) -> None:
        assert isinstance(entry, UserTurn | HistoryUpdate)
        row: dict[str, Any] = {"kind": "agent", "update": entry.update}
        if isinstance(entry, UserTurn):
            row = {"kind": "user", "id": entry.message_ids[0], "update": entry.update}
        self._fate.step()
        with (self._folder / f"{self.session_id}.jsonl").open("ab", buffering=0) as file:
            # A line that a death tore is not glued to this one.
            line = b"\n" + json.dumps(row).encode() + b"\n"
            if self._fate.next_is_last:
                file.write(line[:-2])
                self._fate.step()
            file.write(line)
        self._fate.step()
        super().persist(entry)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_bytes().split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            # Torn by a death: it was never stored.
            continue
    return rows


def _entry(session_id: str, row: Mapping[str, Any]) -> HistoryEntry:
    if row["kind"] == "user":
        return UserTurn(session_id, (row["id"],), row["update"])
    return HistoryUpdate(session_id, row["update"])
