"""What a check works with: the agent under check, and what is asked of it, or else the check is not judged."""

from __future__ import annotations

from typing import Any, Final

import anyio
import anyio.abc

from sayagain.check.launch import Agent, Launcher
from sayagain.check.model import Failed, Feature, NotJudged
from sayagain.check.profiles import Profile
from sayagain.check.sessions import Replay, Session
from sayagain.check.trace import Event, Message, Trace, as_mapping
from sayagain.check.wire import AgentError, AgentWire, Call, Gone, Silent, text
from sayagain.legible import clean, excerpt
from sayagain.protocol.versions import PROTOCOL_VERSION

__all__ = ["Bench", "NoAgent", "NotStarted", "key_of", "signed_in"]

AUTH_REQUIRED: Final = -32000

GRACE: Final = 10.0
"""Seconds that an agent has to end once its input is closed."""

SHORT_GRACE: Final = 1.0
"""Seconds that it has when it did not keep to :data:`GRACE` once."""

LAST_WORDS: Final = 600
"""Characters of what the agent wrote on standard error that a reason repeats: the last ones tell the most."""

MOST_MEANWHILE: Final = 6
"""Lines that are shown of what came in place of an answer."""


class NoAgent(Exception):
    """There is no agent of which anything could be judged; ``events`` may show it."""

    def __init__(self, reason: str, *events: Event) -> None:
        super().__init__(reason)
        self.events = events


class NotStarted(NoAgent):
    """This process of it does not answer ``initialize``; the next one may."""


def signed_in(error: AgentError) -> None:
    """Raises :class:`NoAgent` for an error that asks for a sign-in."""
    if error.code == AUTH_REQUIRED:
        raise NoAgent("the agent wants somebody to sign in first, or --runtime with a service of its own") from error


def key_of(token: str) -> str:
    """A key with as much chance in it as a UUID: tokens are made of random words of the run."""
    return f"key-of-{token}"


class Bench:
    """One agent after the other, one at a time; a check may leave it running for the next."""

    def __init__(
        self, launcher: Launcher, profile: Profile, trace: Trace, tasks: anyio.abc.TaskGroup, run: str
    ) -> None:
        self.launcher = launcher
        self.profile = profile
        self.trace = trace
        self._tasks = tasks
        self._run = run
        self._agent: Agent | None = None
        self._wire: AgentWire | None = None
        self._connections = 0
        self._tokens = 0
        self._sessions: dict[str, Session] = {}
        self._held: list[str] = []
        self.keys: list[str] = []
        """Every key that was sent."""
        self.info: dict[str, Any] = {}
        """What the agent says of itself."""
        self.unsound = False
        """Something was not as it should be, so that the next check had better have another process."""
        self.silent = ""
        """What had to come and did not come in time."""
        self.met = False
        """Whether any process of the agent has answered ``initialize``."""
        self.failed_starts = 0
        """Processes in a row that did not."""
        self.ended = 0
        """Connections that were closed in order."""
        self.overstayed: Event | None = None
        """The note of the first process that did not end with its input."""

    # Processes.

    async def wire(self) -> AgentWire:
        """An initialized connection: the one that is there, or a new one."""
        if self._wire is None or self._wire.closed or not self._wire.initialized:
            wire = await self.connect()
            try:
                await self.initialize(wire)
            except AgentError as error:
                raise NoAgent(self.describe(error), error.call.sent) from error
            except (Silent, Gone) as error:
                raise NotStarted(self.describe(error), *self.shown(error)) from error
            version = wire.initialized.get("protocolVersion")
            if version != PROTOCOL_VERSION:
                said = f"protocolVersion {excerpt(repr(version))}"
                raise NoAgent(f"the agent answers initialize with {said}; this is about version {PROTOCOL_VERSION}")
            self.info = as_mapping(wire.initialized.get("info"))
        assert self._wire is not None
        return self._wire

    async def connect(self) -> AgentWire:
        """A new process, in place of the one that was there; nothing is written to it yet."""
        await self.end()
        try:
            self._agent = await self.launcher.start(self._tasks)
        except OSError as error:
            raise NoAgent(f"the agent cannot be started: {error.strerror or error}") from error
        self._connections += 1
        self.note("the agent is started")
        wire = AgentWire(self._agent.transport, self.trace, self._connections, self.profile.patience)
        self._wire = wire
        self._tasks.start_soon(wire.read)
        return wire

    async def initialize(self, wire: AgentWire, version: int = PROTOCOL_VERSION) -> Call:
        """Initialize the connection, and remember whether the agent does that; raises as :meth:`AgentWire.initialize`.

        An error is an answer too.
        """
        try:
            call = await wire.initialize(version)
        except (Silent, Gone):
            self.failed_starts += 1
            raise
        except AgentError:
            self._started()
            raise
        self._started()
        return call

    def _started(self) -> None:
        self.met = True
        self.failed_starts = 0

    async def end(self) -> None:
        """Close the connection in order, if there is one."""
        if self._agent is not None:
            self.note("the client closes the agent's input and waits for its end")
            grace = GRACE if self.overstayed is None else SHORT_GRACE
            self.ended += 1
            if not await self._agent.end(grace):
                note = self.note(f"the agent does not end within {grace:g} s, and is killed")
                self.overstayed = self.overstayed or note
        await self._gone()

    async def kill(self) -> None:
        """Kill the agent, if there is one."""
        if self._agent is not None:
            self.note("the agent and all that it started are killed")
            await self._agent.kill()
        await self._gone()

    async def _gone(self) -> None:
        if self._wire is not None:
            await self._wire.aclose()
        self._wire = self._agent = None
        self._sessions.clear()

    def note(self, what: str) -> Event:
        """Record what happened beside the wire."""
        return self.trace.add(self._connections, "note", what)

    def describe(self, error: Exception) -> str:
        """The error, and what the agent says of it on standard error."""
        words = self._agent.last_words() if self._agent is not None else ""
        words = " ".join(clean(words).split())
        if len(words) > LAST_WORDS:
            words = f"…{words[-LAST_WORDS:]}"
        return f"{error}; it wrote on standard error: {words}" if words else str(error)

    def shown(self, error: Silent | Gone) -> list[Event]:
        """What was asked, and what the agent wrote instead of an answer."""
        if error.event is None:
            return []
        connection = error.event.connection
        written = [e for e in self.trace.between(error.event) if e.side == "agent" and e.connection == connection]
        return [error.event, *written[-MOST_MEANWHILE:]]

    async def tidy(self) -> None:
        """After a check: let all work end, close its sessions; another process if that is not possible."""
        for token in self._held:
            self.profile.release(token)
        self._held.clear()
        wire, unsound = self._wire, self.unsound
        self.unsound = False
        if wire is None:
            return
        wire.hold_asks = False
        if unsound or wire.closed:
            await self.kill()
            return
        try:
            await wire.answer_asks()
            for session_id in list(self._sessions):
                await (await wire.begin("session/close", {"sessionId": session_id})).settled()
        except (Silent, Gone) as error:
            self.silent = self.silent or (str(error) if isinstance(error, Silent) else "")
            await self.kill()
        self._sessions.clear()

    # Features.

    def need(self, feature: Feature) -> None:
        """Not judged without this feature of the profile."""
        if feature not in self.profile.features:
            raise NotJudged(f"the profile {self.profile.name} has no way {feature.value}")

    def offers(self, wire: AgentWire, capability: str) -> bool:
        """Whether the agent advertises this of ``capabilities.session``."""
        session = as_mapping(as_mapping(wire.initialized.get("capabilities")).get("session"))
        return session.get(capability) is not None

    # Sessions.

    @property
    def cwd(self) -> str:
        """The directory of sessions."""
        return str(self.profile.cwd)

    async def new(self, wire: AgentWire) -> Session:
        """A new session; not judged without one."""
        call = await wire.begin("session/new", {"cwd": self.cwd, "mcpServers": []})
        try:
            session_id = (await call.result()).get("sessionId")
        except (AgentError, Silent, Gone) as error:
            if isinstance(error, AgentError):
                signed_in(error)
            raise NotJudged(f"there is no session to try it in: {error}", call.sent, call.answer) from error
        if not isinstance(session_id, str):
            raise NotJudged("session/new was answered without a sessionId", call.sent, call.answer)
        session = self._sessions[session_id] = Session(session_id)
        return session

    async def resumed(self, wire: AgentWire, session: Session) -> Session:
        """The session, resumed without replay; not judged if that fails."""
        call = await wire.begin("session/resume", self.resume_params(session))
        try:
            await call.result()
        except (AgentError, Silent, Gone) as error:
            raise NotJudged(f"the session cannot be resumed: {error}", call.sent, call.answer) from error
        self._sessions[session.session_id] = session
        return session

    def adopt(self, session: Session) -> None:
        """Close that session too at the end of the check."""
        self._sessions[session.session_id] = session

    def resume_params(self, session: Session, **more: Any) -> dict[str, Any]:
        """The params of ``session/resume``; more of them as named."""
        return {"sessionId": session.session_id, "cwd": self.cwd, "mcpServers": [], **more}

    async def begin_replay(self, wire: AgentWire, session: Session) -> Call:
        """Ask for a replay of everything."""
        params = self.resume_params(session, replayFrom={"type": "start"})
        return await wire.begin("session/resume", params)

    async def replay(self, wire: AgentWire, session: Session) -> Replay:
        """Replay everything; not judged if that fails."""
        return await self.replayed(session, await self.begin_replay(wire, session))

    async def replayed(self, session: Session, call: Call) -> Replay:
        """What came of a replay that was begun."""
        try:
            await call.result()
        except (AgentError, Silent, Gone) as error:
            raise NotJudged(f"the session cannot be replayed: {error}", call.sent, call.answer) from error
        assert call.answer is not None
        self._sessions[session.session_id] = session
        everything = [event for event in self.trace.between(call.sent, call.answer) if event.side == "agent"]
        updates = [event for event in everything if event.kind and event.session_id == session.session_id]
        return Replay(session, call, call.answer, updates, everything)

    # Prompts.

    def token(self) -> str:
        """A word that nothing else has."""
        self._tokens += 1
        return f"{self._run}-{self._tokens}"

    def key(self, token: str) -> str:
        """A key for the prompt of that token, remembered as one."""
        key = key_of(token)
        if key not in self.keys:
            self.keys.append(key)
        return key

    def prompt_params(self, session: Session, content: str, key: Any = None) -> dict[str, Any]:
        """The params of ``session/prompt``."""
        params: dict[str, Any] = {"sessionId": session.session_id, "prompt": [text(content)]}
        if key is not None:
            params["idempotencyKey"] = key
        return params

    async def prompt(
        self, wire: AgentWire, session: Session, content: str | None = None, *, key: Any = None, token: str = ""
    ) -> tuple[str, Call]:
        """Prompt and wait until it is inserted: its id; not judged if that fails."""
        token = token or self.token()
        call = await wire.begin(
            "session/prompt", self.prompt_params(session, content or self.profile.plain(token), key)
        )
        return await self.inserted(call), call

    async def inserted(self, call: Call) -> str:
        """The id of the message of a prompt that has to succeed; not judged if it does not."""
        try:
            message_id = (await call.result()).get("messageId")
        except (AgentError, Silent, Gone) as error:
            if isinstance(error, AgentError):
                signed_in(error)
            raise NotJudged(f"the first prompt was not inserted: {error}", call.sent, call.answer) from error
        if not isinstance(message_id, str):
            raise NotJudged("the prompt was answered without a messageId", call.sent, call.answer)
        return message_id

    async def talk(
        self, wire: AgentWire, session: Session, content: str | None = None, *, key: Any = None, token: str = ""
    ) -> str:
        """Prompt, and wait until the work has ended: the message's id; not judged if that fails."""
        message_id, call = await self.prompt(wire, session, content, key=key, token=token)
        await self.idle(wire, session, call)
        return message_id

    async def idle(self, wire: AgentWire, session: Session, call: Call) -> Event:
        """Wait for the end of a prompt's work; not judged if it does not end."""
        try:
            return await wire.idle(session.session_id, call.sent)
        except (Silent, Gone) as error:
            raise NotJudged(f"the prompt's work does not end: {error}", call.sent, call.answer) from error

    async def hold(self, wire: AgentWire, session: Session, *, key: Any = None) -> tuple[str, str, Call]:
        """Give the session work that goes on until :meth:`release`: token, message id, request."""
        self.need(Feature.HOLD)
        token = self.token()
        self._held.append(token)
        message_id, call = await self.prompt(wire, session, self.profile.holding(token), key=key, token=token)
        try:
            with anyio.fail_after(self.profile.patience):
                await self.profile.asked(token)
        except TimeoutError as error:
            raise NotJudged("the agent does not work on the prompt that it has inserted", call.sent) from error
        return token, message_id, call

    def release(self, token: str) -> None:
        """Let the work of a holding prompt end."""
        self.note("the model goes on")
        self.profile.release(token)

    # Verdicts.

    async def copies(self, wire: AgentWire, session: Session, token: str) -> list[Message]:
        """The user messages with that token that a replay shows."""
        replay = await self.replay(wire, session)
        return [message for message in replay.messages() if message.role == "user_message" and token in message.text]

    async def once(self, wire: AgentWire, session: Session, token: str, *shown: Event | None) -> None:
        """Fail unless the history has exactly one message with that token."""
        found = await self.copies(wire, session, token)
        if len(found) != 1:
            events = [message.events[-1] for message in found]
            many = "is not in the history" if not found else f"is in the history {len(found)} times"
            raise Failed(f"the message {many}", *shown, *events)

    async def never(self, wire: AgentWire, session: Session, token: str, *shown: Event | None) -> None:
        """Fail if the history has a message with that token."""
        if found := await self.copies(wire, session, token):
            raise Failed("the message is in the history all the same", *shown, found[0].events[-1])

    async def same(self, first: Call, again: Call, message_id: str) -> None:
        """Fail unless the second attempt is answered with the first one's message."""
        try:
            answered = (await again.result()).get("messageId")
        except AgentError as error:
            raise Failed(f"the retry was not answered with the messageId: {error}", first.sent, *_of(again)) from error
        if answered != message_id:
            raise Failed(
                f"the retry was answered with another messageId: {excerpt(repr(answered))}, not {message_id!r}",
                first.sent,
                first.answer,
                *_of(again),
            )


def _of(call: Call) -> tuple[Event, Event | None]:
    return call.sent, call.answer
