"""Ways to a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypedDict, cast

import anyio
from typing_extensions import Unpack

from sayagain import __version__
from sayagain.client.client import Client, Handler, Listener
from sayagain.client.outbox import Outbox
from sayagain.client.process import start_agent
from sayagain.client.reach import Connector
from sayagain.client.retries import Retries
from sayagain.transports import Transport

__all__ = ["Agent", "ClientOptions", "PermissionRequest", "connect", "with_retries"]

PATIENCE: Final = 60.0
"""Seconds for an answer. A cold start of a runtime on a loaded machine takes ten (measured)."""

MAX_UNREAD: Final = 256 << 20
"""Bytes of updates that may wait to be read: the replay of a long session fits many times."""

Agent: TypeAlias = Sequence[str] | Transport | Callable[[], AbstractAsyncContextManager[Transport]]
"""A command to start, a connected transport, or what opens one each time it is called."""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """The agent asks whether it may. ``options`` are in wire form: ``optionId``, ``name``, ``kind``."""

    session_id: str
    title: str
    description: str | None
    subject: Mapping[str, Any]
    options: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


class ClientOptions(TypedDict, total=False):
    """Options of both :func:`connect` and :func:`with_retries`."""

    outbox: Outbox | Path | str | None
    """An open outbox, or the path of one to open; without it pending prompts live as long as the client."""

    on_permission: Callable[[PermissionRequest], Awaitable[str | None]]
    """The id of the user's option; ``None`` is no answer, and so is leaving this out: nothing is approved (PER-3).
    It is cancelled when the agent no longer asks."""

    handlers: Mapping[str, Handler]
    """For other requests of the agent, by method, such as ``elicitation/create``."""

    listeners: Mapping[str, Listener]
    """For notifications of the agent beside ``session/update``, by method, such as ``elicitation/complete``."""

    info: Mapping[str, Any]
    """The application's ``name``, ``title`` and ``version``."""

    capabilities: Mapping[str, Any]
    """What the application can do, in wire form."""

    patience: float
    """Seconds for an answer; of a resume and a prompt: for a sign of life."""

    max_unread: int
    """Bytes of updates that may wait to be read."""

    env: Mapping[str, str]
    """The environment of a command; default: this process's."""

    cwd: str
    """The directory that a command is started in; the sessions have their own."""

    show_stderr: bool
    """Let the agent write its log to this process's standard error."""


@asynccontextmanager
async def connect(agent: Agent, **options: Unpack[ClientOptions]) -> AsyncGenerator[Client]:
    """One connection, initialized. When it is lost, every call raises, and pending prompts stay in the outbox.

    Raises :class:`~sayagain.client.errors.AgentFault` when the agent cannot be reached.
    """
    async with _running(agent, None, options) as client:
        yield client


@asynccontextmanager
async def with_retries(
    agent: Agent, retries: Retries | None = None, **options: Unpack[ClientOptions]
) -> AsyncGenerator[Client]:
    """A client that reaches a lost agent again: a new process or connection, then ``initialize``, every session
    resumed, and its open prompts sent again with their keys.

    Raises :class:`~sayagain.client.errors.GaveUp` after too many failures in a row. A transport can be used once: give
    a command, or what opens one.
    """
    async with _running(agent, retries or Retries(), options) as client:
        yield client


@asynccontextmanager
async def _running(agent: Agent, retries: Retries | None, options: ClientOptions) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        outbox = options.get("outbox")
        if not isinstance(outbox, Outbox):
            outbox = await stack.enter_async_context(Outbox(outbox))
        client = Client(
            _connector(agent, options, once=retries is None),
            outbox,
            retries=retries,
            handlers={**_permission_handler(options), **options.get("handlers", {})},
            listeners=options.get("listeners", {}),
            info=options.get("info", {"name": "sayagain-client", "version": __version__}),
            capabilities=options.get("capabilities", {}),
            patience=options.get("patience", PATIENCE),
            max_unread=options.get("max_unread", MAX_UNREAD),
        )
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            await tasks.start(client.run)
            try:
                await client.linked()
                yield client
            except Exception as error:  # noqa: BLE001 - raised below, not wrapped into a group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure


def _connector(agent: Agent, options: ClientOptions, *, once: bool) -> Connector:
    if isinstance(agent, Sequence):
        command = list(cast("Sequence[str]", agent))

        def start(outbox: Outbox) -> AbstractAsyncContextManager[Transport]:
            return start_agent(
                command,
                env=options.get("env"),
                cwd=options.get("cwd"),
                descriptors=outbox.owner_descriptors,
                show_stderr=options.get("show_stderr", False),
            )

        return start
    if callable(agent):
        return lambda _: agent()
    if not once:
        raise TypeError("a transport can be used once: give a command, or what opens a transport")
    return lambda _: _given(agent)


@asynccontextmanager
async def _given(transport: Transport) -> AsyncGenerator[Transport]:
    try:
        yield transport
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()


def _permission_handler(options: ClientOptions) -> Mapping[str, Handler]:
    ask = options.get("on_permission")

    async def handle(params: Mapping[str, Any]) -> Mapping[str, Any]:
        option = None if ask is None else await ask(_permission_request(params))
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return {"session/request_permission": handle}


def _permission_request(params: Mapping[str, Any]) -> PermissionRequest:
    """Whatever an agent may send."""
    subject, options, description = params.get("subject"), params.get("options"), params.get("description")
    offered = cast("list[object]", options) if isinstance(options, list) else []
    return PermissionRequest(
        str(params.get("sessionId")),
        str(params.get("title") or ""),
        description if isinstance(description, str) else None,
        cast("Mapping[str, Any]", subject) if isinstance(subject, dict) else {},
        [cast("Mapping[str, Any]", option) for option in offered if isinstance(option, dict) and "optionId" in option],
    )
