"""One connection to the agent, as raw as it goes: what a line says is recorded before anybody makes sense of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import anyio

from sayagain.check.form import is_id
from sayagain.check.trace import Event, Trace, as_mapping
from sayagain.legible import excerpt
from sayagain.protocol.codec import loads
from sayagain.protocol.versions import PROTOCOL_VERSION
from sayagain.transports import ClosedTransport, Transport

__all__ = ["BARRIER", "AgentError", "AgentWire", "Call", "Gone", "Silent", "text"]

LONGEST_LINE: Final = 32 * 1024 * 1024
"""Bytes. What is longer is no line; the connection is given up."""

BARRIER: Final = "_sayagain/barrier"
"""A request that no agent knows, and every agent answers."""

MOST_EVENTS: Final = 50_000
"""Lines of one run. An agent that floods is given up."""

LONGEST_CODE: Final = 20
LONGEST_ERROR: Final = 200
"""Characters of an error's message that are repeated in a reason. The line that is shown has the rest."""

BOM: Final = b"\xef\xbb\xbf"


class AgentError(Exception):
    """The agent answered with an error."""

    def __init__(self, call: Call, error: Mapping[str, Any]) -> None:
        self.message = str(error.get("message"))
        self.code = error.get("code")
        said = f"{excerpt(str(self.code), LONGEST_CODE)} {excerpt(self.message, LONGEST_ERROR)!r}"
        super().__init__(f"{call.method} was answered with {said}")
        self.call = call
        self.data: Any = error.get("data")


class Silent(Exception):
    """What had to come did not come in time."""

    def __init__(self, what: str, patience: float, event: Event | None = None) -> None:
        super().__init__(f"{what} within {patience:g} s")
        self.event = event


class Gone(Exception):
    """The agent ended the connection, or was given up, while something was expected of it."""

    def __init__(self, what: str, event: Event | None = None) -> None:
        super().__init__(what)
        self.event = event


class Call:
    """A request of ours: ``sent`` on the wire, and the ``answer`` when it is there."""

    def __init__(self, wire: AgentWire, request_id: Any, method: str) -> None:
        self._wire = wire
        self.id = request_id
        self.method = method
        self.sent: Event
        self.answer: Event | None = None

    async def result(self) -> dict[str, Any]:
        """The result; raises :class:`AgentError`, :class:`Silent`, :class:`Gone`."""
        event = await self.settled()
        error = event.message.get("error")
        if error is not None:
            raise AgentError(self, as_mapping(error) or {"message": error})
        return as_mapping(event.message.get("result"))

    async def settled(self) -> Event:
        """The answer, whatever it is; raises :class:`Silent`, :class:`Gone`."""
        await self._wire.until(lambda: self.answer is not None, f"no answer to {self.method}", self.sent)
        assert self.answer is not None
        return self.answer

    async def code(self) -> int:
        """The code of the error answer, 0 for a success; raises :class:`Silent`, :class:`Gone`."""
        try:
            await self.result()
        except AgentError as error:
            return error.code if isinstance(error.code, int) else -1
        return 0


class AgentWire:
    """Run :meth:`read` in the background. ``patience`` is in seconds, for each thing that is waited for."""

    def __init__(self, transport: Transport, trace: Trace, connection: int, patience: float) -> None:
        self._transport = transport
        self.trace = trace
        self.connection = connection
        self.patience = patience
        self.initialized: dict[str, Any] = {}
        """The result of ``initialize``."""
        self.open_asks: list[Event] = []
        """The agent's requests that wait for an answer."""
        self.hold_asks = False
        """While set, the agent's requests are not answered."""
        self.closed = False
        self.given_up = ""
        """Why nothing more is read, if that is not the agent's doing."""
        self._last_id = 0
        self._first = True
        self._calls: dict[Any, Call] = {}
        self._changed = anyio.Event()
        self._writing = anyio.Lock()

    # Out.

    async def post(self, *messages: Mapping[str, Any]) -> list[Event]:
        """Several messages in one write."""
        lines = [json.dumps(message) for message in messages]
        events = [
            self.trace.add(self.connection, "client", line, message)
            for line, message in zip(lines, messages, strict=True)
        ]
        await self.raw("".join(f"{line}\n" for line in lines).encode())
        return events

    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        if self.closed:
            raise Gone(self.given_up or "the agent has ended the connection")
        try:
            with anyio.fail_after(self.patience):
                async with self._writing:
                    await self._transport.send(data)
        except TimeoutError:
            raise Silent("the agent took nothing of what was written to it", self.patience) from None
        except (ClosedTransport, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._end()
            raise Gone("the agent has ended the connection") from None

    async def send(self, *requests: tuple[str, Mapping[str, Any]]) -> list[Call]:
        """Several requests in one write."""
        calls: list[Call] = []
        messages: list[Mapping[str, Any]] = []
        for method, params in requests:
            self._last_id += 1
            call = Call(self, self._last_id, method)
            self._calls[call.id] = call
            calls.append(call)
            messages.append({"jsonrpc": "2.0", "id": call.id, "method": method, "params": params})
        for call, event in zip(calls, await self.post(*messages), strict=True):
            call.sent = event
        return calls

    async def begin(self, method: str, params: Mapping[str, Any]) -> Call:
        """Send a request."""
        return (await self.send((method, params)))[0]

    async def send_cancelled(self, method: str, params: Mapping[str, Any]) -> tuple[Call, Event]:
        """A request and its ``$/cancel_request`` in one write."""
        self._last_id += 1
        call = self._calls[self._last_id] = Call(self, self._last_id, method)
        call.sent, cancelled = await self.post(
            {"jsonrpc": "2.0", "id": call.id, "method": method, "params": params},
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": call.id}},
        )
        return call, cancelled

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await (await self.begin(method, params)).result()

    async def notify(self, method: str, params: Mapping[str, Any]) -> Event:
        """Send a notification."""
        return (await self.post({"jsonrpc": "2.0", "method": method, "params": params}))[0]

    async def cancel(self, call: Call) -> Event:
        """``$/cancel_request`` for a request."""
        return await self.notify("$/cancel_request", {"requestId": call.id})

    async def initialize(self, version: int = PROTOCOL_VERSION) -> Call:
        """The first request of a connection; its answer is there when this returns."""
        params = {
            "protocolVersion": version,
            "info": {"name": "sayagain-check", "version": "1"},
            "capabilities": {},
        }
        call = await self.begin("initialize", params)
        self.initialized = await call.result()
        return call

    async def barrier(self) -> Event:
        """Wait until all is here that the agent wrote before it answered this: a request that nobody knows."""
        return await (await self.begin(BARRIER, {})).settled()

    # In.

    async def read(self) -> None:
        """Take what comes until the connection ends."""
        rest = bytearray()
        try:
            while data := await self._transport.receive():
                *lines, tail = data.split(b"\n")
                for line in lines:
                    rest += line
                    await self._take(bytes(rest))
                    rest.clear()
                rest += tail
                if len(rest) > LONGEST_LINE:
                    self.given_up = f"a line of the agent is longer than {LONGEST_LINE} bytes"
                if len(self.trace.events) > MOST_EVENTS:
                    self.given_up = f"the agent wrote more than {MOST_EVENTS} lines"
                if self.given_up:
                    self.trace.add(self.connection, "note", self.given_up)
                    break
        except (ClosedTransport, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._end()

    async def until(self, condition: Callable[[], object], what: str, event: Event | None = None) -> None:
        """Wait for something that is read to make the condition true; ``what`` names its absence."""
        with anyio.move_on_after(self.patience):
            while not condition():
                if self.closed:
                    raise Gone(f"{what}: {self.given_up or 'the agent has ended the connection'}", event)
                await self._changed.wait()
            return
        raise Silent(what, self.patience, event)

    async def idle(self, session_id: str, after: Event) -> Event:
        """Wait for the session's next ``idle``."""
        found: list[Event] = []

        def look() -> bool:
            found[:] = [
                event
                for event in self.trace.updates(session_id, after=after, kind="state_update")
                if event.update.get("state") == "idle"
            ]
            return bool(found)

        await self.until(look, "no state_update idle after the prompt", after)
        return found[0]

    async def aclose(self) -> None:
        """End the connection."""
        await self._transport.aclose()

    async def answer_ask(self, event: Event, result: Mapping[str, Any]) -> None:
        """Answer a request of the agent."""
        self.open_asks.remove(event)
        await self.post({"jsonrpc": "2.0", "id": event.message["id"], "result": result})

    async def answer_asks(self) -> None:
        """Answer what waits, as a user who agrees to all."""
        for event in list(self.open_asks):
            await self._answer(event)

    async def _take(self, line: bytes) -> None:
        shown = line.decode("utf-8", "replace")
        try:
            # A mark at the beginning of a stream is a fault of its own; what is behind it is understood.
            message = loads(line.removeprefix(BOM) if self._first else line)
        except ValueError:
            message = None
        self._first = False
        if isinstance(message, list) and message:
            for entry in cast("list[Any]", message):
                await self._understand(self.trace.add(self.connection, "agent", json.dumps(entry), entry))
        else:
            await self._understand(self.trace.add(self.connection, "agent", shown, message))
        self._wake()

    async def _understand(self, event: Event) -> None:
        fields = as_mapping(event.message)
        request_id = fields.get("id")
        if "method" in fields:
            if is_id(request_id):
                self.open_asks.append(event)
                if not self.hold_asks:
                    await self._answer(event)
            elif event.method == "$/cancel_request":
                self.open_asks = [ask for ask in self.open_asks if ask.message["id"] != event.params.get("requestId")]
        elif is_id(request_id) and (call := self._calls.get(request_id)) and call.answer is None:
            call.answer = event

    async def _answer(self, event: Event) -> None:
        try:
            if event.method == "session/request_permission":
                await self.answer_ask(event, _allow(event.params.get("options")))
            elif event.method == "elicitation/create":
                await self.answer_ask(event, {"action": "cancel"})
            else:
                self.open_asks.remove(event)
                error = {"code": -32601, "message": "Method not found"}
                await self.post({"jsonrpc": "2.0", "id": event.message["id"], "error": error})
        except (Gone, Silent):
            # Whoever waits for the agent learns that it is gone.
            return

    def _end(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def text(content: str) -> dict[str, Any]:
    """A text content block."""
    return {"type": "text", "text": content}


def _allow(options: object) -> dict[str, Any]:
    """The outcome that agrees, once if that is offered."""
    listed = cast("Sequence[object]", options) if isinstance(options, list) else ()
    offered = [option for option in map(as_mapping, listed) if option]
    chosen = next((o for o in offered if o.get("kind") == "allow_once"), offered[0] if offered else None)
    if chosen is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": chosen.get("optionId")}}
