"""The agent: one runtime, served to any number of connections; and ``initialize``, the first request of each."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.abc

from sayagain import __version__
from sayagain.connection import Connection, IncomingRequest, Outcome
from sayagain.errors import InvalidRequest, UnsupportedVersion
from sayagain.protocol.v2.methods import served
from sayagain.protocol.v2.validate import validate
from sayagain.protocol.versions import SUPPORTED_VERSIONS

if TYPE_CHECKING:
    from sayagain.agent.methods import Methods
    from sayagain.runtime.capabilities import RuntimeCapabilities
    from sayagain.runtime.seam import Runtime
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
    """Use as an async context manager; leaving it closes every session.

    ``runtime`` is the caller's to enter, before, and to leave, after.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._peers: dict[Connection, _Peer] = {}
        self._tasks: anyio.abc.TaskGroup
        self._ahead: anyio.abc.TaskGroup
        """What nobody waits for, and the end does not wait for either."""
        self._stack = AsyncExitStack()
        self._methods: Methods | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._ahead = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._ahead.cancel_scope.cancel()
        if self._methods is not None:
            with anyio.CancelScope(shield=True):
                await self._methods.close_all()
        return await self._stack.__aexit__(kind, error, traceback)

    async def serve(self, transport: Transport) -> None:
        """Serve one client until it closes the connection."""
        connection = Connection(transport, self, answers_late=True)
        self._peers[connection] = _Peer()
        await connection.serve()

    def _loaded(self) -> Methods:
        """The methods, imported late: that takes a fifth of the time until ``initialize`` is answered (measured), which
        needs none of them.
        """
        if self._methods is None:
            from sayagain.agent.methods import Methods

            self._methods = Methods(self._runtime, self._tasks)
        return self._methods

    # The dispatcher.

    def request(self, request: IncomingRequest) -> Outcome:
        """Begin to serve a request."""
        peer = self._peers[request.connection]
        if request.method == "initialize":
            return self._initialize(request, peer)
        if not peer.initialized:
            raise InvalidRequest("the first request must be initialize")
        peer.served = True
        return self._loaded().serve(request, peer.capabilities)

    def notification(self, connection: Connection, method: str, params: Params) -> Awaitable[None] | None:
        """Take a notification; unknown ones are ignored (RPC-3)."""
        if method == "session/cancel" and self._peers[connection].initialized:
            self._loaded().cancel(connection, params)
        return None

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        if self._methods is not None:
            self._methods.detach(connection)
        self._peers.pop(connection, None)

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
            self._loaded()
            await self._runtime.warm_up()
        except Exception as error:  # noqa: BLE001 - a request that needs what failed tells it
            logger.info("the runtime was not got ready ahead: %s", type(error).__name__)


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
