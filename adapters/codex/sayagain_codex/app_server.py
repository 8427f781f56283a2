"""One running ``codex app-server``: requests, notifications and its own requests over its pipes, and its end.

Messages are JSON-RPC without the ``jsonrpc`` field, one a line (measured, codex 0.163)::

    -> {"id": 1, "method": "thread/start", "params": {...}}
    <- {"id": 1, "result": {...}}    or    {"id": 1, "error": {"code": -32600, "message": "..."}}
    <- {"method": "turn/started", "params": {...}, "emittedAtMs": ...}
    <- {"id": 0, "method": "item/commandExecution/requestApproval", "params": {...}}

One process serves all sessions of the adapter, so the reader never waits for any of them: it hands every message to a
plain function, in the order of the pipe, answers included.

A process whose place another one takes answers first whatever it was asked:

=========  ===============  =========  ==========================================================
state      event            next       what is asked
=========  ===============  =========  ==========================================================
running    ``leave``        leaving    is given to the process
leaving    end of output    ended      fails with :class:`Leaving`, but for who has a :class:`Use`
running    end of output    ended      fails with :class:`~sayagain.errors.RuntimeDied`
=========  ===============  =========  ==========================================================
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVarTuple

import anyio

from sayagain.errors import RuntimeDied, RuntimeFault, RuntimeTimeout
from sayagain.processes.spawn import ExitStatus, GuardedProcess
from sayagain.protocol.codec import dumps, loads
from sayagain.protocol.lines import LineSplitter, TooLong
from sayagain.protocol.loose import as_mapping, as_text
from sayagain_codex.complaint import complaint
from sayagain_codex.patience import Patience
from sayagain_codex.values import without_values

__all__ = ["MAX_MESSAGE", "AppServer", "AppServerError", "Leaving", "Listener", "Pending", "RequestId", "Use"]

logger = logging.getLogger(__name__)

MAX_MESSAGE: Final = 256 << 20
"""Longest message in bytes: a page of stored items repeats images of 5 MB each, and whole outputs of commands."""

RequestId = int | str
Params = Mapping[str, Any]
Arguments = TypeVarTuple("Arguments")


class AppServerError(RuntimeFault):
    """The app-server answered a request with an error. Most have the code -32600 and differ in the text alone.

    ``message`` has none of the values that Codex quotes: errors are passed on, kept and logged.
    """

    def __init__(self, code: int, message: str) -> None:
        message = without_values(message)
        super().__init__(message)
        self.rpc_code = code
        self.message = message


class Leaving(RuntimeDied):
    """Another process takes the place of the one that was asked: nothing was written, and that one can be asked."""

    def __init__(self) -> None:
        super().__init__("Codex is started again")


class Listener(Protocol):
    """Who takes what the app-server says by itself. Plain calls, made by the reader: they must not wait."""

    def notified(self, server: AppServer, method: str, params: Params) -> None:
        """A notification."""
        ...

    def asked(self, server: AppServer, request_id: RequestId, method: str, params: Params) -> None:
        """A request, to be answered with :meth:`AppServer.reply` or :meth:`AppServer.refuse`."""
        ...


class Pending:
    """One request of ours. ``on_answer`` is called by the reader, before it reads on."""

    def __init__(self, on_answer: Callable[[Any], None] | None) -> None:
        self.done = anyio.Event()
        self.outcome: Any = RuntimeDied("Codex ended before it answered")
        self._on_answer = on_answer

    def answer(self, outcome: Any) -> None:
        self.outcome = outcome
        try:
            if self._on_answer is not None and not isinstance(outcome, RuntimeFault):
                self._on_answer(outcome)
        except Exception:
            # Who waits for it would wait until the process counts as hung.
            self.outcome = RuntimeFault("Codex gave an answer that is not understood")
            raise
        finally:
            self.done.set()


class AppServer:
    """Messages are read by one task, in :meth:`run`; requests may be sent by any."""

    def __init__(self, process: GuardedProcess, listener: Listener, patience: Patience) -> None:
        self._process = process
        self._listener = listener
        self._patience = patience
        self._last = 0
        self._pending: dict[RequestId, Pending] = {}
        self._write_lock = anyio.Lock()
        self._ended = anyio.Event()
        self.gone = anyio.Event()
        """Set when the process is gone and its listeners were told."""
        self.heard = anyio.current_time()
        """When it last said anything, by the clock of the event loop."""
        self._leaving = False
        self._uses = 0
        self._unused = anyio.Event()

    @property
    def running(self) -> bool:
        """Whether its output is still open."""
        return not self._ended.is_set()

    @property
    def leaving(self) -> bool:
        """Whether another process takes its place."""
        return self._leaving

    @property
    def runtime_pid(self) -> int:
        """The app-server's own pid."""
        return self._process.runtime_pid

    @property
    def status(self) -> ExitStatus | None:
        """How the process ended; ``None`` before :meth:`run` is over."""
        return self._process.status

    async def run(self) -> None:
        """Read until the process closes its output, then end what is left of it."""
        splitter = LineSplitter(MAX_MESSAGE)
        try:
            async for chunk in self._process.stdout:
                self.heard = anyio.current_time()
                for line in splitter.feed(chunk):
                    self._take(line)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        finally:
            self._ended.set()
            for pending in self._pending.values():
                pending.done.set()
            self._unused.set()
            with anyio.CancelScope(shield=True):
                await self.kill()

    async def guard(self, work: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments) -> None:
        """Do work for all sessions. What fails there is none's: it ends the process, after which all of them settle."""
        try:
            await work(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the agent
            logger.error("work for all sessions failed unexpectedly (%s); Codex is ended", type(error).__name__)
            with suppress(Exception):
                await self.kill()

    # Another one in its place.

    def leave(self) -> None:
        """From now on it is given nothing but what belongs to something that was begun."""
        self._leaving = True

    @contextmanager
    def use(self) -> Generator[Use]:
        """For requests that belong together: :meth:`unused` waits for all of them. Raises :class:`Leaving`."""
        if self._leaving:
            raise Leaving
        self._uses += 1
        try:
            yield Use(self)
        finally:
            self._uses -= 1
            self._unused.set()

    async def unused(self) -> None:
        """Wait until nobody waits for an answer, and nobody uses it."""
        while self.running and (self._pending or self._uses):
            if self._unused.is_set():
                self._unused = anyio.Event()
            await self._unused.wait()

    # To the process.

    async def request(
        self,
        method: str,
        params: Params | None = None,
        *,
        patience: float | None = None,
        on_answer: Callable[[Any], None] | None = None,
    ) -> Any:
        """The result of a request, within ``patience`` seconds.

        Raises :class:`AppServerError`, :class:`~sayagain.errors.RuntimeDied` when the process ends first, and
        :class:`~sayagain.errors.RuntimeTimeout`: a process that does not answer is ended. Raises :class:`Leaving`
        when another one takes its place.
        """
        if self._leaving:
            raise Leaving
        return await self.give(method, params, patience, on_answer)

    async def give(
        self, method: str, params: Params | None, patience: float | None, on_answer: Callable[[Any], None] | None
    ) -> Any:
        """As :meth:`request`, by who has a :class:`Use`."""
        patience = self._patience.answer if patience is None else patience
        self._last += 1
        request_id = self._last
        pending = self._pending[request_id] = Pending(on_answer)
        try:
            with anyio.fail_after(patience):
                await self._send({"id": request_id, "method": method, "params": params or {}}, patience)
                await pending.done.wait()
        except TimeoutError:
            raise await self._hung(method) from None
        finally:
            del self._pending[request_id]
            self._unused.set()
        if isinstance(pending.outcome, RuntimeFault):
            raise pending.outcome
        return pending.outcome

    async def notify(self, method: str) -> None:
        """Send a notification without params; raises like :meth:`request`."""
        try:
            await self._send({"method": method}, self._patience.answer)
        except TimeoutError:
            raise await self._hung(method) from None

    async def reply(self, request_id: RequestId, result: Params) -> None:
        """Answer a request of the app-server; nothing happens when that has ended."""
        await self._answer({"id": request_id, "result": result})

    async def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a request of the app-server with an error."""
        await self._answer({"id": request_id, "error": {"code": code, "message": message}})

    async def finish(self) -> ExitStatus:
        """End of input, so that it stores what it has; then it is killed."""
        with anyio.move_on_after(self._patience.finish):
            await self._process.stdin.aclose()
            await self._ended.wait()
        return await self.kill()

    async def kill(self) -> ExitStatus:
        """End it and everything that it started; returns when all is gone."""
        status = await self._process.kill()
        await self._process.aclose()
        return status

    @property
    def complaint(self) -> str:
        """Codex's own reason for an early end, from standard error."""
        return complaint(self._process.stderr_tail)

    async def _answer(self, message: Params) -> None:
        try:
            await self._send(message, self._patience.answer)
        except TimeoutError:
            await self._hung("an answer of ours")
        except RuntimeDied:
            logger.debug("Codex ended before it got an answer")

    async def _hung(self, given: str) -> RuntimeTimeout:
        """End a process that no longer takes or answers what it is given."""
        logger.warning("Codex no longer answers (%s); it is ended", given)
        await self.kill()
        return RuntimeTimeout("Codex stopped answering and was ended")

    async def _send(self, message: Params, patience: float) -> None:
        line = dumps(message) + b"\n"
        async with self._write_lock:
            if self._ended.is_set():
                raise RuntimeDied("Codex ended")
            try:
                # Half a line would spoil the next one: whoever waits may give up, the line is written.
                with anyio.fail_after(patience, shield=True):
                    await self._process.stdin.send(line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise RuntimeDied("Codex ended") from None

    def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            logger.warning("a message of Codex is longer than %d bytes and is skipped", line.limit)
            return
        message = _parse(line)
        if message is None:
            return
        method, request_id = message.get("method"), message.get("id")
        params: Params = message.get("params") or {}
        try:
            if not isinstance(method, str):
                self._answered(request_id, message)
            elif request_id is None:
                self._listener.notified(self, method, params)
            else:
                self._listener.asked(self, request_id, method, params)
        except Exception:
            # One message that we misunderstand must not take every session with it.
            logger.exception("taking a message of Codex failed (%s)", method or "an answer")

    def _answered(self, request_id: Any, message: Params) -> None:
        pending = self._pending.get(request_id) if isinstance(request_id, int | str) else None
        if pending is None:
            return
        if error := as_mapping(message.get("error")):
            code = error.get("code")
            pending.answer(AppServerError(code if isinstance(code, int) else -32603, as_text(error.get("message"))))
        elif isinstance(result := message.get("result") or {}, dict):
            pending.answer(result)
        else:
            # All results of Codex are objects, and whoever asked goes by that.
            pending.answer(RuntimeFault("Codex gave an answer that is not understood"))


class Use:
    """What belongs to something that was begun: it is given to ``server`` though that is about to leave."""

    def __init__(self, server: AppServer) -> None:
        self.server = server

    async def request(
        self,
        method: str,
        params: Params | None = None,
        *,
        patience: float | None = None,
        on_answer: Callable[[Any], None] | None = None,
    ) -> Any:
        """See :meth:`AppServer.request`."""
        return await self.server.give(method, params, patience, on_answer)


def _parse(line: bytes) -> Params | None:
    try:
        message = loads(line)
    except ValueError as error:
        logger.warning("a message of Codex is not readable: %s", error)
        return None
    return message if isinstance(message, dict) else None  # pyright: ignore[reportUnknownVariableType]
