"""The methods that a client is served once it has initialized. The table is here.

Everything in a handler before its first ``await`` runs in the order of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.agent.sessions import Sessions
from sayagain.agent.setup import check_prompt, plain_title
from sayagain.connection import DEFERRED, Connection, Deferred, IncomingRequest, Outcome
from sayagain.errors import InvalidParams, MethodNotFound
from sayagain.fault_points import Point
from sayagain.identity import derive_message_id, fresh_message_id, validate_key
from sayagain.protocol.v2.methods import served
from sayagain.protocol.v2.validate import validate
from sayagain.runtime.seam import Runtime

__all__ = ["Methods"]

Params = Mapping[str, Any]


class Methods:
    """Serves all connections of an agent. ``tasks`` lives as long as that and runs the sessions."""

    def __init__(self, runtime: Runtime, tasks: anyio.abc.TaskGroup) -> None:
        self._runtime = runtime
        self._sessions = Sessions(runtime, tasks)
        self._titles: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        """Titles of one session are set in the order of the wire, whether or not it is open."""
        self._handlers: Mapping[str, Callable[[IncomingRequest, Params, Params], Outcome]] = {
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

    def serve(self, request: IncomingRequest, client: Params) -> Outcome:
        """Begin to serve a request of a client with these capabilities."""
        handler = self._handlers.get(request.method)
        if handler is None or not self._offered(request.method):
            raise MethodNotFound(request.method)
        params = validate(served("agent", "request")[request.method].params_type(), request.params)
        return handler(request, params, client)

    def cancel(self, connection: Connection, params: Params) -> None:
        """``session/cancel``."""
        params = validate(served("agent", "notification")["session/cancel"].params_type(), params)
        if not self._sessions.is_child(params["sessionId"]):
            self._sessions.active(connection, params["sessionId"]).pump.cancel()

    def detach(self, connection: Connection) -> None:
        """The connection is gone."""
        self._sessions.detach(connection)

    async def close_all(self) -> None:
        """Every session is closed."""
        await self._sessions.close_all()

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

    def _new(self, request: IncomingRequest, params: Params, client: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.new(request, params, client)

    def _fork(self, request: IncomingRequest, params: Params, client: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.fork(request, params, client)

    def _resume(self, request: IncomingRequest, params: Params, client: Params) -> Outcome:
        return self._sessions.resume(request, params, client)

    def _list(self, request: IncomingRequest, params: Params, _client: Params) -> Outcome:
        return self._sessions.list(params)

    def _close(self, request: IncomingRequest, params: Params, _client: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.close(request.connection, params["sessionId"])

    def _delete(self, request: IncomingRequest, params: Params, _client: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.delete(params["sessionId"])

    def _prompt(self, request: IncomingRequest, params: Params, _client: Params) -> Deferred:
        key = validate_key(params.get("idempotencyKey"))
        session_id: str = params["sessionId"]
        session = self._sessions.active(request.connection, session_id)
        check_prompt(params["prompt"], self._runtime.capabilities)
        message_id = fresh_message_id() if key is None else derive_message_id(session_id, key)
        fault_points.passing(Point.PARSED)
        session.pump.take(request, message_id, params["prompt"], keyed=key is not None)
        return DEFERRED

    async def _set_config_option(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        session = self._sessions.active(request.connection, params["sessionId"])
        async with session.changes:
            request.on_cancel = _let_it_finish
            _check_value_type(session.backend.options(), params["configId"], params["type"])
            await session.backend.set_option(params["configId"], params["value"])
            return {"configOptions": [dict(option) for option in session.backend.options()]}

    async def _cancel_tool_call(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        session = self._sessions.active(request.connection, params["sessionId"])
        await session.backend.cancel_tool_call(params["toolCallId"])
        return {}

    async def _cancel_terminal(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        session = self._sessions.active(request.connection, params["sessionId"])
        await session.backend.cancel_terminal(params["terminalId"])
        return {}

    async def _set_title(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        title = plain_title(params["title"])
        if not title:
            raise InvalidParams("title", "must not be empty")
        async with self._titles.setdefault(params["sessionId"], anyio.Lock()):
            request.on_cancel = _let_it_finish
            await self._runtime.set_title(params["sessionId"], title)
        return {"title": title}

    def _archive(self, request: IncomingRequest, params: Params, _client: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.archive(params["sessionId"], archived=True)

    def _unarchive(self, request: IncomingRequest, params: Params, _client: Params) -> Outcome:
        request.on_cancel = _let_it_finish
        return self._sessions.archive(params["sessionId"], archived=False)

    async def _status(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        return await self._sessions.status(params["sessionId"])

    async def _auth_status(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        return await self._runtime.auth_status()

    async def _login(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        await self._runtime.login(params["methodId"], params)
        return {}

    async def _logout(self, request: IncomingRequest, params: Params, _client: Params) -> Params:
        await self._runtime.logout()
        return {}


def _let_it_finish() -> None:
    """What was begun is ended: a session that is half open, half closed or half changed helps nobody (CAN-5 allows any
    one answer)."""


def _check_value_type(options: Sequence[Params], config_id: str, value_type: str) -> None:
    """Refuse a type of value that is unknown, or not this option's (CFG-2)."""
    wanted = [_VALUE_TYPES.get(option["type"]) for option in options if option["configId"] == config_id]
    if value_type not in (wanted or _VALUE_TYPES.values()):
        raise InvalidParams("type", "is no type of value that this option takes")


_VALUE_TYPES: Final = {"select": "id", "boolean": "boolean"}
"""What an option of a type is set by."""
