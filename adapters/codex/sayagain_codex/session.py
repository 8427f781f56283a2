"""One Codex session: a thread that the shared app-server has loaded, and the proof of what it stored.

The thread is loaded when the session is opened, and again when the app-server is gone; the session itself is what is
stored. What the app-server says comes in here; :mod:`~sayagain_codex.host` has the thread, and
:mod:`~sayagain_codex.submission` the message that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.errors import InvalidParams, RuntimeDied, RuntimeFault
from sayagain.fault_points import Point
from sayagain.runtime.events import Ask, ChildAnnounced, RuntimeEvent
from sayagain.runtime.seam import OWNER_PATIENCE, SessionSetup
from sayagain.runtime.tasks import SessionTasks
from sayagain.runtime.word import Word
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServer, Leaving, RequestId, Use
from sayagain_codex.asks import Asks
from sayagain_codex.children import Children
from sayagain_codex.commands import parse
from sayagain_codex.endings import Endings
from sayagain_codex.host import Host
from sayagain_codex.offers import Offers
from sayagain_codex.outbox import Outbox
from sayagain_codex.patience import Patience
from sayagain_codex.server import Servers
from sayagain_codex.stopping import Stopping
from sayagain_codex.submission import Submission
from sayagain_codex.terminals import Terminals
from sayagain_codex.titles import Titles
from sayagain_codex.translate.live import LiveTranslator
from sayagain_codex.translate.prompts import prompt_input
from sayagain_codex.turns import Turns

__all__ = ["CodexSession"]

logger = logging.getLogger(__name__)

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
        self._patience = patience
        self._tasks = SessionTasks(tasks, self._fail)
        self._translator = LiveTranslator(session_id, setup.cwd)
        self._turns = Turns(
            session_id,
            background=lambda: self._translator.background(session_id),
            usage=self._translator.turn_usage,
        )
        self._asks = Asks(self._translator, setup.cwd, setup.client_capabilities)
        self._outbox = Outbox(session_id)
        self._titles = Titles(self._outbox)
        self._offers = Offers(session_id, self._outbox)
        self._endings = Endings()
        self._children = Children()
        self._terminals = Terminals(self._translator, self.notified)
        self._word = Word()
        self._host = Host(
            session_id,
            setup,
            owner=self,
            loaded=self._loaded,
            servers=servers,
            env=env,
            patience=patience,
            tasks=self._tasks,
        )
        self._stopping = Stopping(
            session_id,
            host=self._host,
            turns=self._turns,
            children=self._children,
            terminals=self._terminals,
            patience=patience,
            tasks=self._tasks,
            word=self._word,
            tell=self.notified,
            deliver=self._turn_over,
        )
        self._submission = Submission(
            session_id,
            host=self._host,
            account=account,
            turns=self._turns,
            stopping=self._stopping,
            outbox=self._outbox,
            titles=self._titles,
            patience=patience,
            tasks=self._tasks,
            word=self._word,
        )

    @property
    def session_id(self) -> str:
        """The id, which is the thread's."""
        return self._session_id

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._host.closed

    @property
    def loaded(self) -> bool:
        """Whether the thread is loaded here, and not in another process."""
        return self._host.server is not None

    @property
    def thread(self) -> Params:
        """The thread as Codex last described it whole."""
        return self._host.thread

    @property
    def live_only(self) -> frozenset[str]:
        """Messages that are stored nowhere: local commands (KEY-9)."""
        return self._submission.live_only

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
        await self._host.own(patience)

    def adopt(self, server: AppServer, result: Params, *, new: bool) -> None:
        """The answer to what made the thread; called by the reader, so that nothing is missed.

        A ``new`` one was never prompted: it has no ghost to look for.
        """
        if new:
            self._turns.checked()
        self._host.adopt(server, result)

    def _loaded(self, server: AppServer, result: Params) -> None:
        self._offers.loaded(result)
        self._titles.described(self.thread)
        self._turn("thread/status/changed", {"status": self.thread["status"]})
        # Until now nobody knew whether anything runs.
        self._outbox.emit_all(self._turns.again(anew=True))
        self._tasks.start_soon(self._offers.describe, server, str(self.thread["cwd"]))

    async def reader(self) -> Host:
        """Who tells what is stored of the session: up to date as long as nobody else owns it.

        Raises :class:`~sayagain.errors.HistoryUnreadable` when that is not all.
        """
        await self._host.reader()
        await self._host.check()
        return self._host

    async def described(self) -> None:
        """Wait shortly for what the answer that opens the session should have."""
        await self._offers.described()

    async def resumed(self) -> None:
        """Wait shortly for what a resume ends with: it tells the snapshot, and that once."""
        await self._offers.described(commands=True)
        self._outbox.settle()

    async def look(self) -> None:
        """Somebody else has the thread: what can be told of it without loading it."""
        await self._host.look()
        self._titles.described(self.thread)
        self._offers.opened()

    # What the app-server says. Plain calls, made by its reader.

    def notified(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.routes.Owner`."""
        for told, meant in self._endings.told(method, self._terminals.told(method, params)):
            self._notified(told, meant)
        self._stopping.release()
        self._outbox.emit_all(self._turns.again())
        self._word.wake()

    def _notified(self, method: str, params: Params) -> None:
        if method == "turn/started":
            self._stopping.began(str(params.get("threadId")))
        if method != "turn/completed":
            self._translate(method, params)
        server = self._host.server
        if params.get("threadId") == self._session_id:
            self._root(method, params)
        elif self._children.notification(method, params) and server is not None:
            self._tasks.start_soon(self._children.interrupt, server)
        if method == "turn/completed":
            if self._stopping.holds(params):
                self._outbox.emit_all(self._translator.turn_over(params))
            else:
                self._turn_over(params)
            if server is not None:
                status = "interrupted" if params["turn"]["status"] == "interrupted" else "failed"
                self._tasks.start_soon(self._terminals.check, server, str(params["threadId"]), status)

    def _translate(self, method: str, params: Params) -> None:
        events = self._translator.notification(method, params)
        self._outbox.emit_all(events)
        for event in events:
            if isinstance(event, ChildAnnounced):
                # What waits of its thread comes now: it may have to be interrupted with the work of its root.
                self._host.claim(event.child_id.removeprefix(f"{self._session_id}."))
        for request_id, outcome in self._asks.announced():
            self._ask(request_id, outcome)

    def _turn_over(self, params: Params) -> None:
        self._translate("turn/completed", params)
        if params["threadId"] == self._session_id:
            self._turn("turn/completed", params)

    def _root(self, method: str, params: Params) -> None:
        match method:
            case "thread/settings/updated":
                self._offers.updated(params["threadSettings"])
            case "serverRequest/resolved":
                self._outbox.emit_all(self._asks.resolved(params["requestId"]))
            case "thread/closed" if self.closed:
                self._host.unloaded()
            case "thread/closed":
                # Somebody else's doing. It is loaded again for the next prompt.
                self.died("Codex closed the thread")
            case _:
                pass
        if self._turns.is_proof(method, params):
            self._submission.item_completed()
        if method == "turn/started":
            self._children.work_began()
        if method == "turn/completed":
            self._outbox.emit_all(self._asks.over(params["turn"]["id"]))
        else:
            self._turn(method, params)

    def _turn(self, method: str, params: Params) -> None:
        self._submission.tell(self._turns.notification(method, params))

    def asked(self, request_id: RequestId, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.routes.Owner`."""
        self._ask(request_id, self._asks.asked(request_id, method, params))

    def _ask(self, request_id: RequestId, outcome: Ask | Params | None) -> None:
        if isinstance(outcome, Ask):
            self._outbox.emit(outcome)
        elif outcome is not None and self._host.server is not None:
            self._tasks.start_soon(self._host.server.reply, request_id, outcome)

    def announced(self, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.routes.Owner`."""
        self._outbox.emit_all(self._translator.notification(method, params))
        if method == "skills/changed" and self._host.server is not None:
            self._tasks.start_soon(self._offers.list_skills, self._host.server, str(self.thread["cwd"]))

    async def store(self, use: Use) -> None:
        """See :class:`~sayagain_codex.routes.Owner`. A message that was given to it is proved within milliseconds."""
        with anyio.move_on_after(self._patience.finish):
            while self._submission.given and self._host.server is use.server:
                await self._word.wait()
        if not self._turns.active and not self._submission.given:
            await self._host.store(use)

    def died(self, detail: str) -> None:
        """See :class:`~sayagain_codex.routes.Owner`."""
        fault_points.passing(Point.RUNTIME_GONE)
        self._host.gone()
        self._endings.clear()
        self._children.clear()
        self._outbox.emit_all(self._asks.clear())
        cancelled = self._turns.cancelling or self._stopping.holding
        self._outbox.emit_all(self._translator.close_calls("cancelled" if cancelled else "failed"))
        self._stopping.release(all_of_them=True)
        self._submission.died(detail)
        self._outbox.emit_all(self._turns.again())
        self._word.wake()

    # Prompts.

    async def submit(self, message_id: str, content: Sequence[Params]) -> None:
        """See the seam. The proof is the completed item with our id; without a word Codex is asked whether it lives."""
        command = parse(content)
        await self._offers.check(content)
        parts = [] if command else [*self._offers.skills.mention(content), *prompt_input(content)]
        await self._submission.submit(message_id, command, parts)

    async def withdraw(self, message_id: str) -> bool:
        """See the seam."""
        return self._submission.withdraw(message_id)

    async def interrupt(self) -> None:
        """See the seam."""
        await self._stopping.interrupt()

    # Asks, options, terminals.

    async def answer(self, ask_id: str, result: Params | None) -> None:
        """See the seam."""
        answered = self._asks.answer(ask_id, result)
        if answered is not None and self._host.server is not None:
            request_id, response, events = answered
            await self._host.server.reply(request_id, response)
            self._outbox.emit_all(events)

    async def set_option(self, config_id: str, value: str | bool) -> None:
        """See the seam. Codex keeps it with the thread."""
        while True:
            await self.own()
            if self._host.server is None:
                raise RuntimeDied
            with suppress(Leaving):
                return await self._offers.choose(self._host.server, config_id, value)

    async def cancel_tool_call(self, tool_call_id: str) -> None:
        """See the seam: no tool call advertises it, the terminals of commands do."""
        raise InvalidParams("toolCallId", "this tool call cannot be cancelled")

    async def cancel_terminal(self, terminal_id: str) -> None:
        """See the seam."""
        await self._terminals.cancel(self._host.server, terminal_id)

    # The end.

    async def close(self) -> None:
        """See the seam: work is stopped, what is stored stays, the thread is unloaded, the lease is free."""
        if self.closed:
            return
        self._host.closing()
        with anyio.CancelScope(shield=True):
            try:
                await self._stop()
            finally:
                await self._host.release()
                self._outbox.close()

    async def _stop(self) -> None:
        server = self._host.server
        try:
            stopped = not self._works() or await self._stopping.everything(self._works)
        except Exception:
            logger.exception("stopping a session failed unexpectedly")
            stopped = False
        if not stopped and server is not None:
            logger.warning("the work of a session does not stop")
            await self._give_up(server)

    async def _give_up(self, server: AppServer) -> None:
        """Other sessions work in the same process, so it is ended when it answers nothing, and else for one reason."""
        if self._submission.given:
            # Nothing but the end of the process settles what it has stored.
            await server.kill()
            return
        with suppress(RuntimeFault):
            await server.request("thread/loaded/list", {}, patience=self._patience.finish)
        self._outbox.emit_all(self._turns.given_up(RuntimeFault("Codex did not stop the work")))

    async def _fail(self) -> None:
        """Nobody knows any more what state this is in: the end of the events ends the session, which closes it."""
        self._outbox.close()

    @property
    def works(self) -> bool:
        """See :class:`~sayagain_codex.routes.Owner`."""
        return self._works() or bool(self._translator.terminals())

    def _works(self) -> bool:
        subagents = any(entry["type"] == "subagent" for entry in self._translator.background(self._session_id))
        return self._turns.active or self._turns.submitted is not None or self._children.running or subagents
