"""One Codex session: a thread that the shared app-server has loaded, and the proof of what it stored.

The thread is loaded when the session is opened, and again when the app-server is gone; the session itself is what is
stored. Who may store is settled twice: our lease keeps other adapters away, Codex's own writer lock every other
process, so that an app-server which outlived its adapter for a moment is waited for before anything is looked up. (The
lease is this process's alone: one app-server serves many sessions and was started before their leases were taken.)
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.errors import (
    HistoryUnreadable,
    InvalidParams,
    PromptRefused,
    RuntimeDied,
    RuntimeFault,
    SayagainError,
    SessionInUse,
    SessionNotFound,
)
from sayagain.fault_points import Point
from sayagain.processes import lease as leases
from sayagain.processes.lease import Lease
from sayagain.runtime import Ask, ChildAnnounced, RuntimeEvent, SessionSetup
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServer, AppServerError, RequestId
from sayagain_codex.asks import Asks
from sayagain_codex.children import Children
from sayagain_codex.command import home, thread_params
from sayagain_codex.commands import Command, parse
from sayagain_codex.listing import title_of
from sayagain_codex.offers import Offers
from sayagain_codex.outbox import Outbox
from sayagain_codex.patience import Patience
from sayagain_codex.server import Servers
from sayagain_codex.terminals import cancel_terminal, ended_silently
from sayagain_codex.threads import is_written_elsewhere, last_items_have, revert_ghost, thread_fault
from sayagain_codex.translate.live import LiveTranslator
from sayagain_codex.translate.prompts import prompt_input
from sayagain_codex.turns import Lost, Turns

__all__ = ["CodexSession"]

logger = logging.getLogger(__name__)

OWNER_PATIENCE: Final = 3.0
"""Seconds to wait for an owner that is ending: a guard ends everything within milliseconds of its adapter's death, and
a closing adapter gives Codex 2 s to store what it has."""

RETRY: Final = 0.05
"""Seconds between two tries at what Codex refuses for a moment."""

Params = Mapping[str, Any]


class CodexSession:
    """Implements ``RuntimeSession``."""

    def __init__(
        self,
        session_id: str,
        setup: SessionSetup,
        *,
        servers: Servers,
        account: Account,
        env: Mapping[str, str],
        patience: Patience,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._session_id = session_id
        self._setup = setup
        self._servers = servers
        self._account = account
        self._env = env
        self._patience = patience
        self._tasks = tasks
        self._lease: Lease | None = None
        self._server: AppServer | None = None
        self._ownership = anyio.Lock()
        self._translator = LiveTranslator(session_id, setup.cwd)
        self._turns = Turns(
            session_id,
            background=lambda: self._translator.background(session_id),
            usage=self._translator.turn_usage,
        )
        self._asks = Asks(self._translator, setup.cwd, setup.client_capabilities)
        self._outbox = Outbox(session_id)
        self._offers = Offers(session_id, self._outbox)
        self._children = Children()
        self._word = anyio.Event()
        self._unloaded = anyio.Event()
        # The submitted message while it is not written; ``None`` again when it is, or is taken back before that.
        self._unwritten: str | None = None
        self._live_only: set[str] = set()
        self._given: Sequence[Params] = ()
        self._background: Sequence[Params] = []
        self._legacy = False
        self._closed = False
        self.thread: Params = {}
        """The thread as Codex last described it whole."""

    @property
    def session_id(self) -> str:
        """The id, which is the thread's."""
        return self._session_id

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def app_server(self) -> AppServer | None:
        """The process that has the thread loaded."""
        return self._server

    @property
    def live_only(self) -> frozenset[str]:
        """Messages that are stored nowhere: local commands (KEY-9)."""
        return frozenset(self._live_only)

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """See the seam."""
        return self._outbox.events()

    def snapshot(self) -> Sequence[Params]:
        """See the seam."""
        return self._outbox.snapshot()

    def options(self) -> Sequence[Params]:
        """See the seam."""
        return self._offers.options()

    # Ownership and loading.

    async def own(self, *, patience: float = OWNER_PATIENCE) -> None:
        """See the seam: the lease of this session, and its thread loaded."""
        async with self._ownership:
            self._check_open()
            taken = self._lease is None
            if self._lease is None:
                self._lease = await leases.acquire(home(self._env), self._session_id, patience=patience)
            try:
                await self._load(patience)
            except BaseException:
                if taken:
                    self._lease.release()
                    self._lease = None
                raise

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeDied("The session was closed")

    async def _load(self, patience: float = OWNER_PATIENCE) -> AppServer:
        """The app-server that has the thread loaded. Call with the ownership lock."""
        server = await self._servers.get()
        if self._server is server:
            return server
        params = {"threadId": self._session_id, "excludeTurns": True, **thread_params(self._setup)}
        deadline = anyio.current_time() + patience
        while True:
            try:
                await server.request(
                    "thread/resume",
                    params,
                    patience=self._patience.long,
                    on_answer=lambda result: self.adopt(server, result),
                )
            except AppServerError as error:
                if not is_written_elsewhere(error) or anyio.current_time() >= deadline:
                    raise thread_fault(error, self._session_id) from error
                await anyio.sleep(RETRY)
            else:
                return server

    def adopt(self, server: AppServer, result: Params) -> None:
        """The answer to what loaded the thread; called by the reader, so that nothing is missed."""
        self.thread = result["thread"]
        self._legacy = self.thread.get("historyMode") == "legacy"
        self._server = server
        self._unloaded = anyio.Event()
        self._servers.route(self._session_id, self)
        self._offers.loaded(result)
        self._describe_title()
        self._turn("thread/status/changed", {"status": self.thread["status"]})
        self._tasks.start_soon(self._offers.describe, server, str(self.thread["cwd"]))

    async def reader(self) -> AppServer:
        """An app-server to read the history from: up to date as long as nobody else owns the session."""
        if self._lease is not None:
            with suppress(SessionInUse):
                await self.own()
        return await self._servers.get()

    async def described(self) -> None:
        """Wait shortly for what the answer that opens the session should have."""
        await self._offers.described()

    async def look(self) -> None:
        """Somebody else has the thread: what can be told of it without loading it."""
        server = await self._servers.get()
        try:
            answer = await server.request("thread/read", {"threadId": self._session_id})
        except AppServerError as error:
            raise thread_fault(error, self._session_id) from error
        self.thread = answer["thread"]
        self._describe_title()

    def _describe_title(self) -> None:
        title = title_of(self.thread)
        if title is not None and not self._outbox.knows(_TITLE):
            self._outbox.remember({"sessionUpdate": _TITLE, "title": title})

    def _name(self, parts: Sequence[Params]) -> None:
        """A session without a title is called by its first prompt, as ``session/list`` will call it."""
        title = title_of({"preview": " ".join(str(part.get("text", "")) for part in parts)})
        if title is not None and not self._outbox.knows(_TITLE):
            update = {"sessionUpdate": _TITLE, "title": title}
            self._outbox.remember(update)
            self._outbox.update(update)

    # What the app-server says. Plain calls, made by its reader.

    def notified(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.server.Thread`."""
        events = self._translator.notification(method, params)
        self._outbox.emit_all(events)
        for event in events:
            if isinstance(event, ChildAnnounced):
                # What waits of its thread comes now: it may have to be interrupted with the work of its root.
                self._servers.route(event.child_id.removeprefix(f"{self._session_id}."), self)
        for request_id, outcome in self._asks.announced():
            self._ask(request_id, outcome)
        if params.get("threadId") == self._session_id:
            self._root(method, params)
        elif self._children.notification(method, params) and self._server is not None:
            self._tasks.start_soon(self._children.interrupt, self._server)
        if method == "turn/completed" and self._server is not None:
            self._tasks.start_soon(self._check_terminals, self._server, str(params["threadId"]))
        background = self._translator.background(self._session_id)
        if background != self._background:
            self._background = background
            if not self._turns.active:
                self._outbox.emit(self._turns.again())
        self._wake()

    async def _check_terminals(self, server: AppServer, thread_id: str) -> None:
        for ended in await ended_silently(server, self._translator, thread_id):
            self.notified("item/completed", ended)

    def _root(self, method: str, params: Params) -> None:
        match method:
            case "thread/settings/updated":
                self._offers.updated(params["threadSettings"])
            case "serverRequest/resolved":
                self._outbox.emit_all(self._asks.resolved(params["requestId"]))
            case "thread/closed" if self._closed:
                self._unloaded.set()
            case "thread/closed":
                # Somebody else's doing. It is loaded again for the next prompt.
                self.died("Codex closed the thread")
            case _:
                pass
        if self._turns.is_proof(method, params):
            if self._legacy:
                # There the projection alone is proof (measured).
                self._turns.confirming()
                self._tasks.start_soon(self._confirm, str(self._turns.submitted))
            else:
                self._proved()
        if method == "turn/completed":
            self._outbox.emit_all(self._asks.over(params["turn"]["id"]))
        self._turn(method, params)

    def _turn(self, method: str, params: Params) -> None:
        self._tell(self._turns.notification(method, params))

    def _tell(self, events: Iterable[RuntimeEvent | Lost]) -> None:
        for event in events:
            if isinstance(event, Lost) and self._server is not None:
                self._unwritten = event.message_id
                self._tasks.start_soon(self._give, self._server, event.message_id, None, self._given)
            elif not isinstance(event, Lost):
                self._outbox.emit(event)

    def _proved(self) -> None:
        self._outbox.emit_all(self._turns.stored())
        self._wake()
        if self._turns.cancelling:
            self._tasks.start_soon(self._interrupt)

    async def _confirm(self, message_id: str) -> None:
        server = self._server
        if server is None:
            return  # what follows the end of its process looks again
        try:
            found = await last_items_have(server, self._session_id, message_id)
        except RuntimeFault as error:
            if self._server is server and self._turns.submitted == message_id:
                # The core reads the history again before it takes a retry.
                fault = HistoryUnreadable(f"Nobody can tell whether the message was stored: {error}")
                self._outbox.emit_all(self._turns.refused(fault))
                self._wake()
            return
        if self._turns.submitted != message_id:
            return
        if found:
            self._proved()
        else:
            self._tell(self._turns.unconfirmed())
            self._wake()

    def asked(self, request_id: RequestId, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.server.Thread`."""
        self._ask(request_id, self._asks.asked(request_id, method, params))

    def _ask(self, request_id: RequestId, outcome: Ask | Params | None) -> None:
        if isinstance(outcome, Ask):
            self._outbox.emit(outcome)
        elif outcome is not None and self._server is not None:
            self._tasks.start_soon(self._server.reply, request_id, outcome)

    def announced(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.server.Thread`."""
        self._outbox.emit_all(self._translator.notification(method, params))
        if method == "skills/changed" and self._server is not None:
            self._tasks.start_soon(self._offers.list_skills, self._server, str(self.thread["cwd"]))

    def died(self, detail: str) -> None:
        """See :class:`~sayagain_codex.server.Thread`. What became of the submitted message is found out at once."""
        fault_points.passing(Point.RUNTIME_GONE)
        self._server = None
        self._children.clear()
        self._unloaded.set()
        self._outbox.emit_all(self._asks.clear())
        self._outbox.emit_all(self._translator.close_calls("cancelled" if self._turns.cancelling else "failed"))
        if self._turns.submitted is None:
            self._outbox.emit_all(self._turns.died(RuntimeDied(detail)))
        else:
            self._tasks.start_soon(self._settle, self._turns.submitted, detail)
        self._wake()

    async def _settle(self, message_id: str, detail: str) -> None:
        """After a death: load the thread again, which alone tells what was stored (measured), and look."""
        found = False
        fault: SayagainError = RuntimeDied(f"{detail} before the message was stored")
        try:
            async with self._ownership:
                self._check_open()
                server = await self._load()
            found = await last_items_have(server, self._session_id, message_id)
        except SessionNotFound:
            pass
        except SayagainError as error:
            # The core reads the history again before it takes a retry.
            fault = HistoryUnreadable(f"{detail}, and nobody can tell whether the message was stored: {error}")
        if self._turns.submitted == message_id and found:
            self._outbox.emit(*self._turns.began(), *self._turns.stored())
        elif self._turns.submitted == message_id:
            self._outbox.emit_all(self._turns.refused(fault))
        self._outbox.emit_all(self._turns.died(RuntimeDied(detail)))
        self._wake()

    def _wake(self) -> None:
        self._word.set()
        self._word = anyio.Event()

    # Prompts.

    async def submit(self, message_id: str, content: Sequence[Params]) -> None:
        """See the seam. The proof is the completed item with our id; without a word Codex is asked whether it lives."""
        command = parse(content)
        parts = [] if command else [*self._offers.skills.mention(content), *prompt_input(content)]
        self._unwritten = message_id
        try:
            server = await self._ready(message_id)
            while self._server is not server and self._unwritten == message_id:
                server = await self._ready(message_id)
        except BaseException:
            self._unwritten = None
            raise
        if self._unwritten == message_id:
            self._turns.submit(message_id)
            self._children.stopped = False
            self._tasks.start_soon(self._give, server, message_id, command, parts)
            self._tasks.start_soon(self._watch, server, message_id)

    async def _ready(self, message_id: str) -> AppServer:
        """Everything that has to be so before the message is written."""
        await self.own()
        while (server := self._server) is None or await self._account.require(server) is not server:
            await self.own()
        while self._turns.active and self._server is server and self._unwritten == message_id:
            # Codex began to work by itself: the message would become a steer.
            await self._word.wait()
        if not self._turns.suspect or self._server is not server or self._unwritten != message_id:
            return server
        try:
            if not self._legacy and await revert_ghost(server, self._session_id):
                logger.info("the ghost of a prompt was reverted")
        except AppServerError as error:
            raise thread_fault(error, self._session_id) from error
        self._turns.suspect = False
        return server

    async def _give(self, server: AppServer, message_id: str, command: Command | None, parts: Sequence[Params]) -> None:
        """Write the submitted message, as soon as Codex takes it."""
        while self._unwritten == message_id and self._turns.submitted == message_id:
            self._unwritten = None
            try:
                if command is None:
                    self._given = parts
                    params = {"threadId": self._session_id, "clientUserMessageId": message_id, "input": parts}
                    fault_points.passing(Point.CODEX_WRITING)
                    await server.request("turn/start", params, on_answer=self._taken)
                    self._name(parts)
                else:
                    params = {"threadId": self._session_id, **command.params}
                    await server.request(command.method, params, on_answer=lambda _: self._done(message_id, command))
            except AppServerError as error:
                if self._turns.submitted != message_id:
                    return
                if "ActiveTurnNotSteerable" not in error.message:
                    self._outbox.emit_all(self._turns.refused(PromptRefused(error.message)))
                    return
                # A compaction or a review runs. Nothing was written, so the message can be taken back.
                self._unwritten = message_id
                with anyio.move_on_after(RETRY):
                    await self._word.wait()
            except RuntimeFault as error:
                # The process is gone, and whatever follows that says what became of the message.
                logger.debug("a prompt was not answered: %s", error)

    def _taken(self, result: Params) -> None:
        self._turns.taken(result)
        fault_points.passing(Point.CODEX_TAKEN)

    def _done(self, message_id: str, command: Command) -> None:
        """A local command was accepted; called by the reader, before anything of its turn."""
        self._live_only.add(message_id)
        self._outbox.emit_all(self._turns.local(works=command.works))

    async def _watch(self, server: AppServer, message_id: str) -> None:
        """A submitted prompt is never left unanswered: an app-server that says nothing and answers nothing is ended."""
        while self._turns.submitted == message_id and self._server is server:
            with anyio.move_on_after(self._patience.answer):
                await self._word.wait()
                continue
            try:
                await server.request("thread/loaded/list", {})
            except RuntimeFault as error:
                logger.debug("asked whether it lives: %s", error)

    async def withdraw(self, message_id: str) -> bool:
        """See the seam: before it is written. What Codex has been given it stores within milliseconds."""
        if self._unwritten != message_id:
            return False
        self._unwritten = None
        self._turns.take_back(message_id)
        self._wake()
        return True

    async def interrupt(self) -> None:
        """See the seam. A message that is being stored is stored first: an interrupt in between leaves a ghost."""
        self._turns.interrupt()
        if self._turns.submitted is None:
            await self._interrupt()
        else:
            self._tasks.start_soon(self._interrupt_later, self._turns.submitted)

    async def _interrupt_later(self, message_id: str) -> None:
        with anyio.move_on_after(self._patience.finish):
            while self._turns.submitted == message_id:
                await self._word.wait()
            return
        await self._interrupt()

    async def _interrupt(self) -> None:
        """In its first milliseconds a turn cannot be interrupted (measured): it is tried again."""
        server = self._server
        while server is not None and self._server is server and self._turns.active and self._turns.cancelling:
            if self._turns.turn_id is not None:
                try:
                    await server.request(
                        "turn/interrupt", {"threadId": self._session_id, "turnId": self._turns.turn_id}
                    )
                except AppServerError as error:
                    logger.debug("an interrupt was refused: %s", error)
                except RuntimeFault:
                    return
                else:
                    await self._children.interrupt(server)
                    return
            with anyio.move_on_after(RETRY):
                await self._word.wait()

    # Asks, options, terminals.

    async def answer(self, ask_id: str, result: Params | None) -> None:
        """See the seam."""
        answered = self._asks.answer(ask_id, result)
        if answered is not None and self._server is not None:
            request_id, response, events = answered
            await self._server.reply(request_id, response)
            self._outbox.emit_all(events)

    async def set_option(self, config_id: str, value: str | bool) -> None:
        """See the seam. Codex keeps it with the thread."""
        await self.own()
        if self._server is None:
            raise RuntimeDied
        await self._offers.choose(self._server, config_id, value)

    async def cancel_tool_call(self, tool_call_id: str) -> None:
        """See the seam: no tool call advertises it, the terminals of commands do."""
        raise InvalidParams("toolCallId", "this tool call cannot be cancelled")

    async def cancel_terminal(self, terminal_id: str) -> None:
        """See the seam."""
        await cancel_terminal(self._server, self._translator, terminal_id)

    # The end.

    async def close(self) -> None:
        """See the seam: work is stopped, what is stored stays, the thread is unloaded, the lease is free."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._works:
                await self._stop()
            async with self._ownership:
                await self._unload()
                self._servers.unroute(self)
                if self._lease is not None:
                    self._lease.release()
                    self._lease = None
            self._outbox.close()

    @property
    def _works(self) -> bool:
        subagents = any(entry["type"] == "subagent" for entry in self._translator.background(self._session_id))
        return self._turns.active or self._turns.submitted is not None or self._children.running or subagents

    async def _stop(self) -> None:
        server = self._server
        with anyio.move_on_after(self._patience.stop):
            await self.interrupt()
            if server is not None:
                await self._children.interrupt(server)
            while self._works:
                await self._word.wait()
            return
        if server is not None:
            logger.warning("Codex does not stop; it is ended")
            await server.kill()

    async def _unload(self) -> None:
        """Codex unloads a thread that nobody listens to, ends its background terminals and frees its writer lock."""
        server, self._server = self._server, None
        if server is None:
            return
        try:
            for thread_id in reversed(self._servers.threads_of(self)):
                with suppress(AppServerError):
                    # One that hangs must not keep an adapter whose client has left.
                    await server.request("thread/unsubscribe", {"threadId": thread_id}, patience=self._patience.finish)
        except RuntimeFault as error:
            logger.debug("a thread was not unloaded: %s", error)
            return
        with anyio.move_on_after(self._patience.finish):
            await self._unloaded.wait()


_TITLE: Final = "session_info_update"
