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
from sayagain.processes import lease as leases
from sayagain.processes.lease import Lease
from sayagain.runtime import Ask, AskWithdrawn, RuntimeEvent, SessionSetup, Update
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServer, AppServerError, RequestId
from sayagain_codex.asks import Asks
from sayagain_codex.command import thread_params
from sayagain_codex.commands import Command, Skills, parse
from sayagain_codex.listing import title_of
from sayagain_codex.options import Options
from sayagain_codex.patience import Patience
from sayagain_codex.server import Servers
from sayagain_codex.threads import is_written_elsewhere, last_items_have, revert_ghost, thread_fault
from sayagain_codex.translate.live import LiveTranslator
from sayagain_codex.translate.prompts import prompt_input
from sayagain_codex.turns import Lost, Turns

__all__ = ["CodexSession"]

logger = logging.getLogger(__name__)

OWNER_PATIENCE: Final = 3.0
"""Seconds to wait for an owner that is ending: a guard ends everything within milliseconds of its adapter's death, and
a closing adapter gives Codex 2 s to store what it has."""

SETTING_PATIENCE: Final = 2.0
"""Seconds for a setting to be told after its request was answered: it comes with the answer (measured)."""

OFFER_PATIENCE: Final = 0.3
"""Seconds for Codex to list its models, which takes it 2 ms from its cache (measured); later ones come as an event."""

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
        self._options = Options()
        self._skills = Skills()
        self._latest: dict[str, Params] = {}
        self._word = anyio.Event()
        self._offered = anyio.Event()
        self._unloaded = anyio.Event()
        # The submitted message while it is not written; ``None`` again when it is, or is taken back before that.
        self._unwritten: str | None = None
        self._live_only: set[str] = set()
        self._given: Sequence[Params] = ()
        # The running turns of children, by thread.
        self._child_turns: dict[str, str] = {}
        # Since the last prompt's work was interrupted: subagents that show up only now are interrupted as well.
        self._stopped = False
        self._background: Sequence[Params] = []
        self._legacy = False
        self._closed = False
        self._watched = False
        self._send_events, self._receive_events = anyio.create_memory_object_stream[RuntimeEvent](float("inf"))
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

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """The ordered stream of events."""
        self._watched = True
        async with self._receive_events:
            async for event in self._receive_events:
                if isinstance(event, Update) and event.session_id == self._session_id:
                    self._remember(event.update)
                yield event

    def _remember(self, update: Params) -> None:
        kind = update["sessionUpdate"]
        if kind in _SNAPSHOT:
            self._latest[kind] = {**self._latest.get(kind, {}), **update}

    def snapshot(self) -> Sequence[Params]:
        """Title, usage and commands as last reported."""
        return list(self._latest.values())

    def options(self) -> Sequence[Params]:
        """See the seam."""
        return self._options.wire()

    # Ownership and loading.

    async def own(self, *, patience: float = OWNER_PATIENCE) -> None:
        """See the seam: the lease of this session, and its thread loaded."""
        async with self._ownership:
            self._check_open()
            taken = self._lease is None
            if self._lease is None:
                self._lease = await leases.acquire("codex", self._session_id, patience=patience, env=self._env)
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
        self._turns.suspect = True
        self._unloaded = anyio.Event()
        self._servers.route(self._session_id, self)
        before = self._options.wire()
        self._options.loaded(result)
        self._tell_options(before)
        self._describe_title()
        self._turn("thread/status/changed", {"status": self.thread["status"]})
        self._tasks.start_soon(self._describe, server)

    async def reader(self) -> AppServer:
        """An app-server to read the history from: up to date as long as nobody else owns the session."""
        if self._lease is not None:
            with suppress(SessionInUse):
                await self.own()
        return await self._servers.get()

    async def offered(self) -> None:
        """Wait shortly for the models, so that the options are whole in the answer that opens the session."""
        with anyio.move_on_after(OFFER_PATIENCE):
            await self._offered.wait()

    async def look(self) -> None:
        """Somebody else has the thread: what can be told of it without loading it."""
        server = await self._servers.get()
        try:
            answer = await server.request("thread/read", {"threadId": self._session_id})
        except AppServerError as error:
            raise thread_fault(error, self._session_id) from error
        self.thread = answer["thread"]
        self._describe_title()

    async def _describe(self, server: AppServer) -> None:
        """What the thread offers: models and commands. Nothing waits for it."""
        try:
            models = await server.request("model/list", {})
            before = self._options.wire()
            self._options.offered(models["data"])
            self._tell_options(before)
            self._offered.set()
            await self._list_skills(server)
        except RuntimeFault as error:
            logger.warning("Codex did not say what it offers: %s", error)

    async def _list_skills(self, server: AppServer) -> None:
        cwd = str(self.thread["cwd"])
        self._skills.listed(await server.request("skills/list", {"cwds": [cwd]}), cwd)
        commands = self._skills.available_commands()
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        if update != self._latest.get("available_commands_update"):
            self._latest["available_commands_update"] = update
            self._emit([Update(self._session_id, update)])

    def _describe_title(self) -> None:
        title = title_of(self.thread)
        if title is not None:
            self._latest.setdefault("session_info_update", _title(title))

    def _name(self, parts: Sequence[Params]) -> None:
        """A session without a title is called by its first prompt, as ``session/list`` will call it."""
        title = title_of({"preview": " ".join(str(part.get("text", "")) for part in parts)})
        if title is not None and "session_info_update" not in self._latest:
            self._remember(_title(title))
            self._emit([Update(self._session_id, _title(title))])

    # What the app-server says. Plain calls, made by its reader.

    def notified(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.server.Thread`."""
        self._emit(self._translator.notification(method, params))
        for request_id, outcome in self._asks.announced():
            self._ask(request_id, outcome)
        if params.get("threadId") == self._session_id:
            self._root(method, params)
        elif method == "turn/started":
            self._child_turns[params["threadId"]] = params["turn"]["id"]
            if self._stopped and self._server is not None:
                self._tasks.start_soon(self._interrupt_children, self._server)
        elif method == "turn/completed":
            self._child_turns.pop(params["threadId"], None)
        if method == "turn/completed":
            self._tasks.start_soon(self._check_background, str(params.get("threadId")))
        self._tell_background()
        self._wake()

    def _tell_background(self) -> None:
        background = self._translator.background(self._session_id)
        if background != self._background:
            self._background = background
            if not self._turns.active:
                self._emit([self._turns.again()])

    def _root(self, method: str, params: Params) -> None:
        match method:
            case "thread/settings/updated":
                before = self._options.wire()
                self._options.updated(params["threadSettings"])
                self._tell_options(before)
            case "serverRequest/resolved":
                self._emit(self._asks.resolved(params["requestId"]))
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
                self._tasks.start_soon(self._confirm, str(self._turns.submitted))
            else:
                self._proved()
        if method == "turn/completed":
            self._emit(self._asks.over(params["turn"]["id"]))
        self._turn(method, params)

    def _turn(self, method: str, params: Params) -> None:
        for event in self._turns.notification(method, params):
            if isinstance(event, Lost) and self._server is not None:
                self._unwritten = event.message_id
                self._tasks.start_soon(self._give, self._server, event.message_id, None, self._given)
            elif not isinstance(event, Lost):
                self._emit([event])

    def _proved(self) -> None:
        self._emit(self._turns.stored())
        if self._turns.cancelling:
            self._tasks.start_soon(self._interrupt)

    async def _confirm(self, message_id: str) -> None:
        server = self._server
        try:
            found = server is not None and await last_items_have(server, self._session_id, message_id)
        except RuntimeFault as error:
            # Its process is gone, and what follows that looks again.
            logger.debug("a stored message could not be confirmed: %s", error)
            return
        if self._turns.submitted == message_id and found:
            self._proved()

    def asked(self, request_id: RequestId, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.server.Thread`."""
        self._ask(request_id, self._asks.asked(request_id, method, params))

    def _ask(self, request_id: RequestId, outcome: Ask | Params | None) -> None:
        if isinstance(outcome, Ask):
            self._emit([outcome])
        elif outcome is not None and self._server is not None:
            self._tasks.start_soon(self._server.reply, request_id, outcome)

    def announced(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.server.Thread`."""
        self._emit(self._translator.notification(method, params))
        if method == "skills/changed" and self._server is not None:
            self._tasks.start_soon(self._refresh_skills, self._server)

    async def _refresh_skills(self, server: AppServer) -> None:
        try:
            await self._list_skills(server)
        except RuntimeFault as error:
            logger.debug("the skills could not be listed: %s", error)

    def died(self, detail: str) -> None:
        """See :class:`~sayagain_codex.server.Thread`. What became of the submitted message is found out at once."""
        self._server = None
        self._child_turns.clear()
        self._unloaded.set()
        self._emit([AskWithdrawn(ask_id) for ask_id in self._asks.clear()])
        self._emit(self._translator.close_calls("cancelled" if self._turns.cancelling else "failed"))
        if self._turns.submitted is None:
            self._emit(self._turns.died(RuntimeDied(detail)))
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
            self._emit([*self._turns.began(), *self._turns.stored()])
        elif self._turns.submitted == message_id:
            self._emit(self._turns.refused(fault))
        self._emit(self._turns.died(RuntimeDied(detail)))
        self._wake()

    def _tell_options(self, before: Sequence[Params]) -> None:
        options = self._options.wire()
        if before and options != before:
            update = {"sessionUpdate": "config_option_update", "configOptions": options}
            self._emit([Update(self._session_id, update)])

    def _emit(self, events: Iterable[RuntimeEvent]) -> None:
        for event in events:
            try:
                self._send_events.send_nowait(event)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return

    def _wake(self) -> None:
        self._word.set()
        self._word = anyio.Event()

    # Prompts.

    async def submit(self, message_id: str, content: Sequence[Params]) -> None:
        """See the seam. The proof is the completed item with our id; without a word Codex is asked whether it lives."""
        command = parse(content)
        parts = [] if command else [*self._skills.mention(content), *prompt_input(content)]
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
            self._stopped = False
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
                    await server.request("turn/start", params, on_answer=self._turns.taken)
                    self._name(parts)
                else:
                    params = {"threadId": self._session_id, **command.params}
                    await server.request(command.method, params, on_answer=lambda _: self._done(message_id, command))
            except AppServerError as error:
                if self._turns.submitted != message_id:
                    return
                if "ActiveTurnNotSteerable" not in error.message:
                    self._emit(self._turns.refused(PromptRefused(error.message)))
                    return
                # A compaction or a review runs. Nothing was written, so the message can be taken back.
                self._unwritten = message_id
                with anyio.move_on_after(RETRY):
                    await self._word.wait()
            except RuntimeFault as error:
                # The process is gone, and whatever follows that says what became of the message.
                logger.debug("a prompt was not answered: %s", error)

    def _done(self, message_id: str, command: Command) -> None:
        """A local command was accepted; called by the reader, before anything of its turn."""
        self._live_only.add(message_id)
        self._emit(self._turns.local(works=command.works))

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
                    self._stopped = True
                    await self._interrupt_children(server)
                    return
            with anyio.move_on_after(RETRY):
                await self._word.wait()

    async def _interrupt_children(self, server: AppServer) -> None:
        """Codex lets subagents work on when the turn that started them is interrupted (measured); clients do not expect
        that (SUB-7)."""
        for thread_id, turn_id in list(self._child_turns.items()):
            try:
                await server.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
            except AppServerError as error:
                logger.debug("an interrupt of a subagent was refused: %s", error)
            except RuntimeFault:
                return

    # Asks, options, terminals.

    async def answer(self, ask_id: str, result: Params | None) -> None:
        """See the seam."""
        answered = self._asks.answer(ask_id, result)
        if answered is not None and self._server is not None:
            request_id, response, events = answered
            await self._server.reply(request_id, response)
            self._emit(events)

    async def set_option(self, config_id: str, value: str | bool) -> None:
        """See the seam. Codex keeps it with the thread."""
        await self.own()
        change, server = self._options.change(config_id, value), self._server
        if server is None or all(o["currentValue"] == value for o in self.options() if o["configId"] == config_id):
            return
        try:
            await server.request("thread/settings/update", {"threadId": self._session_id, **change})
        except AppServerError as error:
            raise InvalidParams("value", error.message) from error
        with anyio.move_on_after(SETTING_PATIENCE):
            while any(o["currentValue"] != value for o in self.options() if o["configId"] == config_id):
                await self._word.wait()

    async def cancel_tool_call(self, tool_call_id: str) -> None:
        """See the seam: no tool call advertises it, the terminals of commands do."""
        raise InvalidParams("toolCallId", "this tool call cannot be cancelled")

    async def cancel_terminal(self, terminal_id: str) -> None:
        """See the seam."""
        terminal = next((t for t in self._translator.terminals() if t.terminal_id == terminal_id), None)
        server = self._server
        if terminal is None or server is None or not terminal.process_id:
            raise InvalidParams("terminalId", "no terminal under this id can be cancelled")
        answer = await server.request(
            "thread/backgroundTerminals/terminate",
            {"threadId": terminal.thread_id, "processId": terminal.process_id},
        )
        if not answer.get("terminated"):
            raise InvalidParams("terminalId", "the command has ended")

    async def _check_background(self, thread_id: str) -> None:
        """Commands that a turn leaves behind run on, or ended with it without a word (measured): Codex is asked."""
        server = self._server
        left = [t for t in self._translator.terminals() if t.thread_id == thread_id and t.background]
        if not left or server is None:
            return
        try:
            answer = await server.request("thread/backgroundTerminals/list", {"threadId": thread_id})
        except RuntimeFault as error:
            logger.debug("the background terminals could not be listed: %s", error)
            return
        running = {entry["itemId"] for entry in answer["data"]}
        for terminal in left:
            item = self._translator.item_of({"threadId": thread_id, "itemId": terminal.terminal_id})
            if item is not None and terminal.terminal_id not in running:
                ended = {"threadId": thread_id, "turnId": "", "item": {**item, "status": "failed"}}
                self.notified("item/completed", ended)

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
            self._send_events.close()
            if not self._watched:
                self._receive_events.close()

    @property
    def _works(self) -> bool:
        return self._turns.active or self._turns.submitted is not None or bool(self._child_turns)

    async def _stop(self) -> None:
        server = self._server
        with anyio.move_on_after(self._patience.stop):
            await self.interrupt()
            if server is not None:
                await self._interrupt_children(server)
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
                    await server.request("thread/unsubscribe", {"threadId": thread_id})
        except RuntimeFault as error:
            logger.debug("a thread was not unloaded: %s", error)
            return
        with anyio.move_on_after(self._patience.finish):
            await self._unloaded.wait()


_SNAPSHOT: Final = frozenset({"session_info_update", "usage_update", "available_commands_update"})


def _title(title: str) -> Params:
    return {"sessionUpdate": "session_info_update", "title": title}
