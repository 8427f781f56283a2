"""The agent: one runtime, served to any number of connections. The table of methods is here.

Everything in a handler before its first ``await`` runs in the order of the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc

from sayagain import __version__, fault_points
from sayagain.agent.sessions import Sessions
from sayagain.agent.setup import check_prompt, plain_title
from sayagain.connection import DEFERRED, Connection, Deferred, IncomingRequest, Outcome
from sayagain.errors import InvalidParams, InvalidRequest, MethodNotFound, UnsupportedVersion
from sayagain.fault_points import Point
from sayagain.identity import derive_message_id, fresh_message_id, validate_key
from sayagain.protocol.v2.methods import served
from sayagain.protocol.v2.validate import validate
from sayagain.protocol.versions import SUPPORTED_VERSIONS
from sayagain.runtime import Runtime, RuntimeCapabilities
from sayagain.transports import Transport

__all__ = ["Agent"]

logger = logging.getLogger(__name__)

Params = Mapping[str, Any]


@dataclass(slots=True)
class _Peer:
    """What a connection has told about itself."""

    initialized: bool = False
    served: bool = False
    capabilities: Params = field(default_factory=dict[str, Any])


class Agent:
    """Use as an async context manager; leaving it closes every session and the runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._peers: dict[Connection, _Peer] = {}
        self._sessions: Sessions
        self._ahead: anyio.abc.TaskGroup
        """What nobody waits for, and the end does not wait for either."""
        self._stack = AsyncExitStack()
        self._methods: Mapping[str, Callable[[IncomingRequest, Params], Outcome]] = {
            "session/new": self._new,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_config_option": self._set_config_option,
            "session/set_title": self._set_title,
            "session/archive": self._archive,
            "session/unarchive": self._unarchive,
            "session/status": self._status,
            "tool_call/cancel": self._cancel_tool_call,
            "terminal/cancel": self._cancel_terminal,
            "auth/login": self._login,
            "auth/logout": self._logout,
            "auth/status": self._auth_status,
        }

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._runtime)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._sessions = Sessions(self._runtime, tasks)
        self._ahead = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._ahead.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._sessions.close_all()
        return await self._stack.__aexit__(kind, error, traceback)

    async def serve(self, transport: Transport) -> None:
        """Serve one client until it closes the connection."""
        connection = Connection(transport, self, answers_late=True)
        self._peers[connection] = _Peer()
        await connection.serve()

    # The dispatcher.

    def request(self, request: IncomingRequest) -> Outcome:
        """Begin to serve a request."""
        peer = self._peers[request.connection]
        if request.method == "initialize":
            return self._initialize(request, peer)
        if not peer.initialized:
            raise InvalidRequest("the first request must be initialize")
        peer.served = True
        handler = self._methods.get(request.method)
        if handler is None or not self._offered(request.method):
            raise MethodNotFound(request.method)
        return handler(request, validate(served("agent", "request")[request.method].params_type(), request.params))

    def notification(self, connection: Connection, method: str, params: Params) -> Awaitable[None] | None:
        """Take a notification; unknown ones are ignored (RPC-3)."""
        if method == "session/cancel" and self._peers[connection].initialized:
            params = validate(served("agent", "notification")[method].params_type(), params)
            if not self._sessions.is_child(params["sessionId"]):
                self._sessions.active(connection, params["sessionId"]).pump.cancel()
        return None

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._sessions.detach(connection)
        self._peers.pop(connection, None)

    # Methods.

    def _initialize(self, request: IncomingRequest, peer: _Peer) -> Params:
        params = request.params
        if peer.initialized and peer.served:
            raise InvalidRequest("the connection is initialized already")
        requested = params.get("protocolVersion")
        # Before anything else: an older version's client has other fields, and this one word of ours it understands.
        if isinstance(requested, int) and not isinstance(requested, bool) and 0 <= requested < min(SUPPORTED_VERSIONS):
            raise UnsupportedVersion(requested, SUPPORTED_VERSIONS)
        params = validate(served("agent", "request")["initialize"].params_type(), params)
        version = max(v for v in SUPPORTED_VERSIONS if v <= params["protocolVersion"])
        peer.initialized = True
        request.after_success = partial(self._after_initialize, request.connection)
        peer.capabilities = params.get("capabilities") or {}
        return {
            "protocolVersion": version,
            "info": {
                "name": f"sayagain-{self._runtime.name}",
                "title": f"{self._runtime.title} (sayagain)",
                "version": __version__,
            },
            "capabilities": _capabilities(self._runtime.capabilities),
            "authMethods": [dict(m) for m in self._runtime.auth_methods(peer.capabilities)],
        }

    def _after_initialize(self, connection: Connection) -> None:
        self._ahead.start_soon(self._warm_up, connection)

    async def _warm_up(self, connection: Connection) -> None:
        await connection.drained(0)
        try:
            await self._runtime.warm_up()
        except Exception as error:  # noqa: BLE001 - a request that needs what failed tells it
            logger.info("the runtime was not got ready ahead: %s", type(error).__name__)

    def _offered(self, method: str) -> bool:
        """Optional methods are served where they are advertised, and only there (INI-4)."""
        capabilities = self._runtime.capabilities
        optional = {
            "session/fork": capabilities.fork,
            "session/delete": capabilities.delete,
            "session/set_title": capabilities.title,
            "session/archive": capabilities.archive,
            "session/unarchive": capabilities.archive,
            "auth/status": capabilities.auth_status,
        }
        return optional.get(method, True)

    def _new(self, request: IncomingRequest, params: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.new(request, params, self._peers[request.connection].capabilities)

    def _fork(self, request: IncomingRequest, params: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.fork(request, params, self._peers[request.connection].capabilities)

    def _resume(self, request: IncomingRequest, params: Params) -> Outcome:
        return self._sessions.resume(request, params, self._peers[request.connection].capabilities)

    def _list(self, request: IncomingRequest, params: Params) -> Outcome:
        return self._sessions.list(params)

    def _close(self, request: IncomingRequest, params: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.close(request.connection, params["sessionId"])

    def _delete(self, request: IncomingRequest, params: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.delete(params["sessionId"])

    def _prompt(self, request: IncomingRequest, params: Params) -> Deferred:
        key = validate_key(params.get("idempotencyKey"))
        session_id: str = params["sessionId"]
        session = self._sessions.active(request.connection, session_id)
        check_prompt(params["prompt"], self._runtime.capabilities)
        message_id = fresh_message_id() if key is None else derive_message_id(session_id, key)
        fault_points.passing(Point.PARSED)
        session.pump.take(request, message_id, params["prompt"], keyed=key is not None)
        return DEFERRED

    async def _set_config_option(self, request: IncomingRequest, params: Params) -> Params:
        session = self._sessions.active(request.connection, params["sessionId"])
        await session.backend.set_option(params["configId"], params["value"])
        return {"configOptions": [dict(option) for option in session.backend.options()]}

    async def _cancel_tool_call(self, request: IncomingRequest, params: Params) -> Params:
        session = self._sessions.active(request.connection, params["sessionId"])
        await session.backend.cancel_tool_call(params["toolCallId"])
        return {}

    async def _cancel_terminal(self, request: IncomingRequest, params: Params) -> Params:
        session = self._sessions.active(request.connection, params["sessionId"])
        await session.backend.cancel_terminal(params["terminalId"])
        return {}

    async def _set_title(self, request: IncomingRequest, params: Params) -> Params:
        title = plain_title(params["title"])
        if not title:
            raise InvalidParams("title", "must not be empty")
        await self._runtime.set_title(params["sessionId"], title)
        return {"title": title}

    def _archive(self, request: IncomingRequest, params: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.archive(params["sessionId"], archived=True)

    def _unarchive(self, request: IncomingRequest, params: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.archive(params["sessionId"], archived=False)

    async def _status(self, request: IncomingRequest, params: Params) -> Params:
        return await self._sessions.status(params["sessionId"])

    async def _auth_status(self, request: IncomingRequest, params: Params) -> Params:
        return await self._runtime.auth_status()

    async def _login(self, request: IncomingRequest, params: Params) -> Params:
        await self._runtime.login(params["methodId"], params)
        return {}

    async def _logout(self, request: IncomingRequest, params: Params) -> Params:
        await self._runtime.logout()
        return {}


def _let_it_finish() -> None:
    """What was begun is ended: a half-open or half-closed session helps nobody (CAN-5 allows any one answer)."""


def _capabilities(runtime: RuntimeCapabilities) -> Params:
    """What the runtime can do, as ``AgentCapabilities``. Keyed prompts and the marker are baseline (INI-5)."""
    prompt = {"image": runtime.image, "audio": runtime.audio, "embeddedContext": runtime.embedded_context}
    mcp = {"stdio": runtime.mcp_stdio, "http": runtime.mcp_http}
    session: dict[str, Any] = {
        "prompt": {name: {} for name, offered in prompt.items() if offered},
        "mcp": {name: {} for name, offered in mcp.items() if offered},
    }
    optional = {
        "fork": runtime.fork,
        "delete": runtime.delete,
        "additionalDirectories": runtime.additional_directories,
        "title": runtime.title,
        "archive": runtime.archive,
        "status": True,
    }
    session |= {name: {} for name, offered in optional.items() if offered}
    if "append" in runtime.system_prompt_modes:
        modes: dict[str, Any] = {mode: {} for mode in sorted(runtime.system_prompt_modes - {"append"})}
        session["systemPrompt"] = {"mode": modes} if modes else {}
    return {"session": session} | ({"auth": {"status": {}}} if runtime.auth_status else {})
