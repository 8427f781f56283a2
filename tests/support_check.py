"""Our agent over the fake runtime, as an agent under check: in this process, and with faults on its wire."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from sayagain.agent import Agent
from sayagain.check.model import Feature
from sayagain.check.profiles import STREAMED, Texts, asked_for, reported
from sayagain.errors import HistoryUnreadable
from sayagain.runtime.events import Foreground, Update
from sayagain.runtime.history import HistoryUpdate
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession, FakeStore, text
from sayagain.transports import Transport
from sayagain.transports.memory import memory_transports

__all__ = ["Fault", "Message", "PlayedLauncher", "Prompt", "Stage", "update_of"]

Message = dict[str, Any]


class Stage(Texts):
    """The profile: what the played runtime does is decided here."""

    name = "played"
    env: Mapping[str, str] = {}
    cwd = Path("/project")

    def __init__(self, features: Iterable[Feature] = Feature, patience: float = 5.0) -> None:
        self.features = frozenset(features)
        self.patience = patience
        self.store = FakeStore()
        self.counts: Counter[str] = Counter()
        self.released: set[str] = set()
        self.steps: Counter[str] = Counter()
        self.waiting: dict[str, Callable[[], None]] = {}
        self._started: dict[str, anyio.Event] = {}

    def _event(self, token: str) -> anyio.Event:
        return self._started.setdefault(token, anyio.Event())

    def start(self, token: str) -> None:
        self.counts[token] += 1
        self._event(token).set()

    async def asked(self, token: str) -> None:
        await self._event(token).wait()

    def release(self, token: str) -> None:
        self.released.add(token)
        self._go_on(token)

    def step(self, token: str, steps: int) -> None:
        self.steps[token] += steps
        self._go_on(token)

    def _go_on(self, token: str) -> None:
        if (go_on := self.waiting.get(token)) is not None:
            go_on()

    def count(self, token: str) -> int:
        return self.counts[token]

    @contextmanager
    def spoiled(self, session_id: str) -> Iterator[None]:
        async def before(index: int) -> None:
            if index == 2:
                self.store.read_error = HistoryUnreadable()

        self.store.before_entry = before
        try:
            yield
        finally:
            self.store.before_entry = self.store.read_error = None


class PlayedSession(FakeSession):
    stage: Stage

    async def submit(self, message_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        self.manual = True
        before = len(self.submitted)
        await super().submit(message_id, content)
        if len(self.submitted) == before:
            return
        said = " ".join(str(block.get("text")) for block in content)
        wish, token = asked_for(said)
        self.stage.start(token or said.rstrip(".").split()[-1])
        self.run()
        self.store(message_id)
        self._work = message_id
        match wish:
            case "hold":
                self.stage.waiting[token] = lambda: self._release(message_id)
                if token in self.stage.released:
                    self._release(message_id)
            case "stream":
                self._sent = 0
                self.stage.waiting[token] = lambda: self._stream(message_id, token)
                self._stream(message_id, token)
            case "delegate":
                self._delegate(token)
                self._end_with("The subagent is done.")
            case "ask":
                self.emit(Foreground(self.session_id, "requires_action"))
                self.ask(token)
            case _:
                self._end_with("Done.")

    async def answer(self, ask_id: str, result: Mapping[str, Any] | None) -> None:
        await super().answer(ask_id, result)
        self.run()
        self._end_with("Allowed.")

    async def interrupt(self) -> None:
        await super().interrupt()
        self._work = None
        self.finish("cancelled")

    def _end_with(self, content: str) -> None:
        self.say(content)
        self._work = None
        self.finish()

    def _release(self, message_id: str) -> None:
        if self._work == message_id:
            self._end_with("Worked.")

    def _stream(self, message_id: str, token: str) -> None:
        answer = f"answer-{message_id}"
        while self._work == message_id and self._sent < min(self.stage.steps[token], len(STREAMED)):
            self.say(STREAMED[self._sent], message_id=answer, stored=False)
            self._sent += 1
            if self._sent == len(STREAMED):
                whole = {"sessionUpdate": "agent_message", "messageId": answer, "content": [text("".join(STREAMED))]}
                self.persist(HistoryUpdate(self.session_id, whole))
                self._work = None
                self.finish()

    def _delegate(self, token: str) -> None:
        child = self.spawn(f"child-{token}")
        for kind, content in (("user", reported(token)), ("agent", "The subagent did it.")):
            update = {"sessionUpdate": f"{kind}_message", "messageId": f"{child}-{kind}", "content": [text(content)]}
            self.emit(Update(child, update))
            self.persist(HistoryUpdate(child, update))
        self.end_child(child)


class PlayedRuntime(FakeRuntime):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.store)
        self._stage = stage

    def _session(self, session_id: str, setup: SessionSetup) -> FakeSession:
        session = self.sessions[session_id] = PlayedSession(self, session_id, setup)
        session.stage = self._stage
        return session


@dataclass
class Prompt:
    """A prompt that was sent, as far as faults look at it."""

    request_id: Any
    process: int
    key: Any
    text: str
    unknown_block: bool
    answer: Message | None = None
    over: bool = False
    barrier: bool = False
    """A barrier came after it."""


def update_of(session_id: str, kind: str, **fields: Any) -> Message:
    params = {"sessionId": session_id, "update": {"sessionUpdate": kind, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


class Fault:
    """Nothing broken. A subclass changes what passes, and sees what has passed before."""

    overstays = False
    """Whether the agent does not end with its input."""

    def __init__(self) -> None:
        self.stage: Stage
        self.process = 0
        self.dead = False
        """Set by a subclass: the process has ended, and nothing more comes of it."""
        self.killed = False
        """How the last process ended."""
        self.requests: dict[Any, Message] = {}
        self.created: dict[str, int] = {}
        self.forks: set[str] = set()
        self.children: set[str] = set()
        self.prompts: dict[str, list[Prompt]] = {}
        self.running: set[str] = set()
        self.closed: set[str] = set()
        self.cancelled: set[str] = set()
        self.replaying: dict[str, Any] = {}
        self.replays: Counter[str] = Counter()
        """Of this process, the one that is under way included."""
        self.told = 0
        """Messages in the replay that is under way."""
        self.last: Message = {}
        """What the client sent before."""

    # What subclasses change.

    def client(self, m: Message) -> Iterable[Message]:
        """From the client to the agent."""
        return [m]

    def agent(self, m: Message) -> Iterable[Message | str]:
        """From the agent to the client."""
        return [m]

    # What they look at.

    def begin(self, *, killed: bool) -> None:
        self.process += 1
        self.dead = False
        self.killed = killed
        self.requests.clear()
        self.running.clear()
        self.closed.clear()
        self.replaying.clear()
        self.replays.clear()

    def asked(self, m: Message) -> Message:
        """The request that a message answers; empty for what is no answer."""
        return self.requests.get(m.get("id"), {}) if "method" not in m else {}

    def before(self, m: Message) -> list[Prompt]:
        """What was prompted in the session of a prompt before."""
        return self.prompts.get(m["params"]["sessionId"], [])

    def key(self, m: Message) -> Any:
        return m["params"].get("idempotencyKey")

    def resumed(self, session_id: str) -> bool:
        """Whether an earlier process made it."""
        return self.created.get(session_id, self.process) != self.process

    def from_client(self, m: Message) -> list[Message]:
        passed = list(self.client(m))
        method, params = m.get("method"), m.get("params", {})
        session_id = params.get("sessionId")
        if "id" in m and method is not None:
            self.requests[m["id"]] = m
        if method == "session/prompt":
            blocks = params["prompt"]
            said = " ".join(str(block.get("text", "")) for block in blocks)
            unknown = any(block["type"] != "text" for block in blocks)
            prompt = Prompt(m["id"], self.process, self.key(m), said, unknown)
            self.prompts.setdefault(session_id, []).append(prompt)
        elif method == "session/resume" and params.get("replayFrom") is not None:
            self.replaying[session_id] = m["id"]
            self.replays[session_id] += 1
            self.told = 0
        elif method == "session/close":
            self.closed.add(session_id)
        elif method == "session/cancel":
            self.cancelled.add(session_id)
        elif method == "_sayagain/barrier":
            for prompts in self.prompts.values():
                prompts[-1].barrier = True
        self.last = m
        return passed

    def from_agent(self, m: Message) -> list[Message | str]:
        params = m.get("params", {})
        session_id, update = params.get("sessionId"), params.get("update", {})
        kind = update.get("sessionUpdate")
        asked = self.asked(m)
        if kind == "state_update":
            if update["state"] == "running":
                self.running.add(session_id)
            elif update["state"] == "idle":
                self.running.discard(session_id)
                for prompt in self.prompts.get(session_id, []):
                    prompt.over = prompt.over or prompt.answer is not None
        elif kind == "subagent_update":
            self.children.add(update["sessionId"])
        if asked.get("method") in ("session/new", "session/fork") and "result" in m:
            self.created[m["result"]["sessionId"]] = self.process
            if asked["method"] == "session/fork":
                self.forks.add(m["result"]["sessionId"])
        for prompt in self.prompts.get(asked.get("params", {}).get("sessionId"), []):
            if prompt.request_id == m.get("id") and prompt.process == self.process and asked:
                prompt.answer = m
        passed = list(self.agent(m))
        if kind in ("user_message", "agent_message") and session_id in self.replaying:
            self.told += 1
        if asked.get("method") == "session/resume":
            self.replaying.pop(asked["params"]["sessionId"], None)
        return passed


class _Faulty:
    """The client's end of a transport, with the fault in between."""

    def __init__(self, inner: Transport, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault
        self._rest = b""

    async def receive(self) -> bytes:
        while not self._fault.dead and (data := await self._inner.receive()):
            *lines, self._rest = (self._rest + data).split(b"\n")
            passed = [item for line in lines for item in self._fault.from_agent(json.loads(line))]
            if passed and not self._fault.dead:
                return "".join(f"{item if isinstance(item, str) else json.dumps(item)}\n" for item in passed).encode()
        return b""

    async def send(self, data: bytes) -> None:
        sent = b""
        for line in data.splitlines():
            try:
                message = json.loads(line)
            except ValueError:
                sent += line + b"\n"
                continue
            sent += b"".join(json.dumps(item).encode() + b"\n" for item in self._fault.from_client(message))
        if sent:
            await self._inner.send(sent)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Running:
    def __init__(self, transport: Transport, overstays: bool) -> None:
        self.transport = transport
        self.overstays = overstays
        self.killed = False
        self.scope = anyio.CancelScope()
        self.gone = anyio.Event()

    async def end(self, grace: float) -> bool:
        if self.overstays:
            await self.kill()
            return False
        await self.transport.aclose()
        await self.gone.wait()
        return True

    async def kill(self) -> None:
        self.killed = True
        self.scope.cancel()
        await self.gone.wait()

    def last_words(self) -> str:
        return ""


class PlayedLauncher:
    """Each start is a process: the stage's store is what is left of the one before."""

    def __init__(self, stage: Stage, fault: Fault | None = None) -> None:
        self._stage = stage
        self._fault = fault or Fault()
        self._fault.stage = stage
        self._last: _Running | None = None

    async def start(self, tasks: anyio.abc.TaskGroup) -> _Running:
        ours, theirs = memory_transports()
        self._fault.begin(killed=self._last is not None and self._last.killed)
        running = self._last = _Running(_Faulty(ours, self._fault), self._fault.overstays)
        tasks.start_soon(self._serve, theirs, running)
        return running

    async def _serve(self, transport: Any, running: _Running) -> None:
        try:
            with running.scope:
                async with PlayedRuntime(self._stage) as runtime, Agent(runtime) as agent:
                    await agent.serve(transport)
        finally:
            running.gone.set()
            with anyio.CancelScope(shield=True):
                await transport.aclose()
