"""Agents that can be broken at exact points, and the evidence of all that passed.

A :class:`Rig` is one config folder with one stand-in model service; agent processes are started in it one after another
or side by side. Every line of every connection is kept for the checker. In place of ``claude`` runs ``held_claude.py``,
which stops the real one at the frames that a test asks for.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import psutil

from sayagain.testing.claude_process import find_claude
from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_request import Asked
from sayagain.testing.messages_script import Hold, Reply, ScriptLike, Text, ToolUse
from sayagain.testing.stand_in import StandIn, serve_connections
from support_checker import Connection, Evidence, Line, Stored, Violation, check, read_transcript
from support_claude import claude_environment
from support_wire import Wire, prompt_params

__all__ = ["PATIENCE", "Agent", "Rig", "rig", "user_settings"]

PATIENCE = 30.0
"""Seconds for anything that a test waits for: what takes longer hangs."""

ARMED = Path(__file__).with_name("armed.py")

PIPE = 4096
"""The smallest pipe: a client that does not read is felt at once."""


class Pipes:
    """The client's ends of an agent's standard input and output; everything that passes is written down."""

    def __init__(self, write_fd: int, read_fd: int, connection: Connection) -> None:
        self.connection = connection
        self._write_fd = write_fd
        self._read_fd = read_fd
        self._out = b""
        self._in = b""
        self._reads = anyio.Event()
        self._reads.set()
        self._parked = anyio.Event()
        self._waiting = anyio.CancelScope()
        for fd in (write_fd, read_fd):
            os.set_blocking(fd, False)

    async def send(self, data: bytes) -> None:
        *lines, self._out = (self._out + data).split(b"\n")
        for line in lines:
            self._note("sent", line)
        try:
            while data:
                if self._write_fd < 0:
                    raise anyio.ClosedResourceError
                await anyio.wait_writable(self._write_fd)
                with suppress(BlockingIOError):
                    data = data[os.write(self._write_fd, data) :]
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def receive(self) -> bytes:
        data: bytes | None = None
        while data is None:
            if not self._reads.is_set():
                self._parked.set()
                await self._reads.wait()
            if self._read_fd < 0:
                return b""
            # Left when nobody is to read any more.
            with anyio.CancelScope() as self._waiting:
                await anyio.wait_readable(self._read_fd)
            if self._reads.is_set() and self._read_fd >= 0:
                with suppress(BlockingIOError):
                    data = os.read(self._read_fd, 65536)
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            self._note("got", line)
        self.connection.torn = self._in.decode(errors="replace")
        return data

    async def stop_reading(self) -> None:
        self._reads, self._parked = anyio.Event(), anyio.Event()
        self._waiting.cancel()
        await self._parked.wait()

    def read_on(self) -> None:
        self._reads.set()

    async def readable(self) -> None:
        """Wait until the agent has written something that is not read."""
        await anyio.wait_readable(self._read_fd)

    def close_write(self) -> None:
        if self._write_fd >= 0:
            anyio.notify_closing(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = -1

    def close_read(self) -> None:
        if self._read_fd >= 0:
            anyio.notify_closing(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1
            self._reads.set()

    def _note(self, direction: Any, line: bytes) -> None:
        self.connection.lines.append(Line(time.time(), direction, line.decode(errors="replace")))


class _Place:
    """A frame at which the runtime is stopped; ``message_id`` says which one of its kind."""

    def __init__(self, message_id: str | None) -> None:
        self.message_id = message_id
        self.reached = anyio.Event()
        self.released = anyio.Event()


class Agent:
    """One ``sayagain claude``, its connection, and the runtimes that it started."""

    def __init__(self, process: anyio.abc.Process, pipes: Pipes, wire: Wire) -> None:
        self.process = process
        self.pipes = pipes
        self.wire = wire
        self.name = pipes.connection.name
        self.runtimes: list[tuple[int, int]] = []
        """Pids of wrapper and ``claude``, in the order of their start."""
        self.started = anyio.Event()
        self._places: dict[str, _Place] = {}

    # Holding the runtime.

    def hold(self, name: str, message_id: str | None = None) -> None:
        """Stop the runtime when it comes to the frame."""
        self._places[name] = _Place(message_id)

    async def held(self, name: str) -> None:
        with anyio.fail_after(PATIENCE):
            await self._places[name].reached.wait()

    def release(self, name: str) -> None:
        if (place := self._places.pop(name, None)) is not None:
            place.released.set()

    def release_all(self) -> None:
        for name in list(self._places):
            self.release(name)

    async def at(self, name: str, ids: Sequence[str]) -> None:
        """The runtime has come to a frame: returns when it may go on."""
        place = self._places.get(name)
        if place is not None and (place.message_id is None or place.message_id in ids):
            place.reached.set()
            await place.released.wait()

    # Faults.

    async def kill(self) -> None:
        """SIGKILL of the adapter."""
        self.pipes.connection.cut = True
        self.signal(signal.SIGKILL)
        await self.process.wait()

    def signal(self, number: int) -> None:
        """Not by the process's own method: that would collect it, and its status be lost."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def kill_runtime(self) -> None:
        """SIGKILL of the runtime alone. What it has stored and not told is never told."""
        self._signal_runtime(signal.SIGKILL)

    def stop_runtime(self) -> None:
        """SIGSTOP of the runtime: it lives and does nothing."""
        self._signal_runtime(signal.SIGSTOP)

    def _signal_runtime(self, number: int) -> None:
        ours = {process.pid for process in _below(self.process.pid)}
        for wrapper, claude in self.runtimes[-1:]:
            # It may have ended long ago: then its pid is somebody else's.
            for pid in ours & {claude, wrapper}:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def freeze(self) -> None:
        """SIGSTOP of the adapter: what is written to it waits in the pipe."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    async def close_input(self) -> int:
        """Close its standard input, as an editor does; the exit status."""
        self.pipes.connection.cut = True
        self.pipes.close_write()
        return await self.ended()

    async def ended(self) -> int:
        with anyio.fail_after(PATIENCE):
            return await self.process.wait()

    # Everyday use.

    async def read_all(self) -> None:
        """Wait until the agent has read everything that was sent: it answers in the order of the wire."""
        await self.wire.request("session/list", {})

    async def begin_prompt(self, session_id: str, text: str, key: str | None) -> int:
        return await self.wire.begin("session/prompt", prompt_params(session_id, text, key))

    async def outcome(self, request_id: int) -> str | int:
        """The message id, or the error code."""
        with anyio.fail_after(PATIENCE):
            await self.wire.until(lambda: self.wire.answered(request_id))
        answer = self.wire._answers[request_id]
        return str(answer["result"]["messageId"]) if "result" in answer else int(answer["error"]["code"])

    async def closed_in_order(self) -> None:
        """Every request is answered: the connection is held to that from here on, and ended."""
        await self.read_all()
        self.pipes.close_write()
        assert await self.ended() == 0
        await self.wire.until_closed()


class Rig:
    """Where the agents of one run live. What is particular to Claude Code is in what a subclass may replace."""

    runtime = "claude"
    home = "CLAUDE_CONFIG_DIR"
    """The variable by which every process of a rig is known: its value is the rig's alone."""
    agents: type[Agent] = Agent

    def __init__(self, folder: Path, service: StandIn[Any]) -> None:
        self.folder = folder
        self.service = service
        self.cwd = str(folder / "project")
        self.keys: set[str] = set()
        self.texts: set[str] = set()
        self.probes: list[tuple[str, Any]] = []
        self.same_bytes: list[list[tuple[str, Any]]] = []
        self.connections: list[Connection] = []
        self.log = folder / "log"
        self.gate = folder / "gate"
        self._record = folder / "record"
        os.mkfifo(folder / "tool")
        self._tool = os.open(folder / "tool", os.O_RDWR | os.O_NONBLOCK)
        self.control = folder / "control"
        self.config = folder / "config"
        self.env = self.environment()
        self._agents: dict[int, Agent] = {}

    def environment(self, **extra: str) -> dict[str, str]:
        """What an agent is started with."""
        executable = self.folder / "claude"
        words = (sys.executable, "-I", "-S", Path(__file__).with_name("held_claude.py"), self.control, find_claude())
        executable.write_text(
            "#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n', encoding="utf-8"
        )
        executable.chmod(0o755)
        return claude_environment(self.folder, self.service, CLAUDE_CODE_EXECUTABLE=str(executable), **extra)

    # Agents.

    @asynccontextmanager
    async def agent(
        self, *, small_pipe: bool = False, initialize: bool = True, armed: str | None = None, **env: str
    ) -> AsyncIterator[Agent]:
        """Start an agent; whatever is left of it at the end is killed. ``armed`` are strikes of ``armed.py``."""
        connection = Connection(f"connection {len(self.connections) + 1}")
        self.connections.append(connection)
        their_read, our_write = os.pipe()
        our_read, their_write = os.pipe()
        if small_pipe:
            fcntl.fcntl(our_read, fcntl.F_SETPIPE_SZ, PIPE)
        pipes = Pipes(our_write, our_read, connection)
        program = ["-m", "sayagain"] if armed is None else [str(ARMED), str(self._record), armed, "--"]
        with self.log.open("ab") as log:
            process = await anyio.open_process(
                [sys.executable, *program, self.runtime, "--log-level", "debug"],
                stdin=their_read,
                stdout=their_write,
                stderr=log,
                env={**self.env, **env},
            )
        os.close(their_read)
        os.close(their_write)
        wire = Wire(pipes)
        agent = self._agents[process.pid] = self.agents(process, pipes, wire)
        async with process, anyio.create_task_group() as readers:
            readers.start_soon(wire.run)
            try:
                if initialize:
                    await wire.initialize()
                yield agent
            finally:
                connection.cut = connection.cut or process.returncode is None
                agent.signal(signal.SIGKILL)
                agent.release_all()
                readers.cancel_scope.cancel()
                pipes.close_write()
                pipes.close_read()
                del self._agents[process.pid]

    async def listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Serve the wrappers' control lines."""
        async with await anyio.create_unix_listener(self.control) as listener:
            task_status.started()
            await serve_connections(listener, self._wrapper)

    async def _wrapper(self, stream: anyio.abc.SocketStream) -> None:
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        pid = _peer(raw)
        agent: Agent | None = None
        buffer = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with stream:
                while True:
                    # AnyIO's own wait fails when it is cancelled at the moment the wrapper dies.
                    await anyio.wait_readable(raw)
                    buffer += await stream.receive()
                    *lines, buffer = buffer.split(b"\n")
                    for line in lines:
                        message = json.loads(line)
                        agent = agent or self._agent_of(pid)
                        if "claude" in message and agent is not None:
                            agent.runtimes.append((message["wrapper"], message["claude"]))
                            agent.started.set()
                        elif "at" in message:
                            if agent is not None:
                                await agent.at(message["at"], message["ids"])
                            await stream.send(b"go\n")

    def _agent_of(self, pid: int) -> Agent | None:
        """The agent whose descendant the wrapper is."""
        with suppress(psutil.Error):
            for parent in psutil.Process(pid).parents():
                if (agent := self._agents.get(parent.pid)) is not None:
                    return agent
        return None

    async def tool_runs(self) -> None:
        """Wait until the shell command of a ``tool`` prompt runs, with its child."""
        with anyio.fail_after(PATIENCE):
            await anyio.wait_readable(self._tool)
        os.read(self._tool, 4096)

    def close(self) -> None:
        os.close(self._tool)

    # What happened in armed agents.

    def passed(self) -> Counter[str]:
        """How often each point was passed."""
        return Counter(line.split(" ")[0] for line in self._record_lines())

    def struck(self) -> list[str]:
        """The strikes that fell, in order."""
        return [line.split(" ")[1] for line in self._record_lines() if " " in line]

    def _record_lines(self) -> list[str]:
        return self._record.read_text(encoding="utf-8").splitlines() if self._record.exists() else []

    # What was stored, and what is left.

    def transcript(self, session_id: str) -> Path | None:
        return next(iter(self.config.glob(f"projects/*/{session_id}.jsonl")), None)

    def left_running(self) -> list[psutil.Process]:
        """Every process that works in this rig's config folder."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get(self.home) == self.env[self.home]:
                    found.append(process)
        return found

    async def nothing_left(self) -> list[psutil.Process]:
        """Wait until no process is left; what is left after all patience."""
        left: list[psutil.Process] = []
        with anyio.move_on_after(10):
            while left := self.left_running():
                await _gone(left)
        return left

    def note(self, text: str, key: str | None) -> None:
        """A prompt that the checker is to look at."""
        self.texts.add(text)
        if key is not None:
            self.keys.add(key)

    def stored(self) -> dict[str, list[Stored]]:
        """The user messages in the runtime's own record, by session."""
        return {path.stem: read_transcript(path) for path in self.config.glob("projects/*/*.jsonl")}

    def evidence(self) -> Evidence:
        asked = [
            line for asked in self.service.requests if asked.kind == "turn" for line in asked.newest_text.splitlines()
        ]
        calls = {text: asked.count(text) for text in self.texts}
        return Evidence(
            connections=self.connections,
            calls={text: count for text, count in calls.items() if count},
            stored=self.stored(),
            keys=sorted(self.keys),
            logs=self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else "",
            probes=self.probes,
            same_bytes=self.same_bytes,
        )

    def violations(self) -> list[Violation]:
        return check(self.evidence())


def _below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


async def _gone(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            try:
                await anyio.wait_readable(handle)
            finally:
                anyio.notify_closing(handle)
                os.close(handle)


def _peer(raw: socket.socket) -> int:
    pid, _, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def model(folder: Path) -> ScriptLike:
    """What the model says, by the kind of prompt, its first word: ``slow`` stops in the middle of its answer at a gate
    that has the prompt's name, ``tool`` runs a shell command with a child until the file ``gate`` exists and says so in
    the FIFO ``tool``, ``echo`` runs a short one."""
    told, gate = folder / "tool", folder / "gate"
    command = f"tail -f /dev/null & echo runs > {told}; until [ -e {gate} ]; do sleep 0.05; done; kill $!"

    def reply(asked: Asked) -> Reply | None:
        text = asked.newest_text.splitlines()[-1] if asked.newest_text else ""
        if asked.kind == "side" or asked.round > 0:
            return None
        match text.partition(" ")[0]:
            case "slow":
                return [Text("I begin "), Hold(text), Text("and end.")]
            case "tool":
                return [ToolUse("Bash", {"command": command, "description": "Stay"})]
            case "echo":
                return [Text("I look. "), ToolUse("Bash", {"command": "echo stand-in", "description": "Say it"})]
            case _:
                return None

    return reply


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """A rig in a folder of its own (with a short name: socket paths are limited)."""
    folder = Path(tempfile.mkdtemp(prefix="sayagain-"))
    try:
        async with serve_messages(model(folder)) as service, anyio.create_task_group() as tasks:
            rig = Rig(folder, service)
            await tasks.start(rig.listen)
            try:
                yield rig
            finally:
                rig.close()
            tasks.cancel_scope.cancel()
    finally:
        if "SAYAGAIN_KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def user_settings(env: Mapping[str, str], **settings: Any) -> None:
    """Write the user's settings: hooks, or what may run without asking."""
    Path(env["CLAUDE_CONFIG_DIR"], "settings.json").write_text(json.dumps(settings), encoding="utf-8")
