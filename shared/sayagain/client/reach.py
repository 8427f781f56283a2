"""Reaching the agent: one connection after the other, until the agent is lost for good."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc

from sayagain.client.errors import AgentFault, AgentFloods, AgentGarbled, AgentGone, GaveUp
from sayagain.client.link import Link, LinkLost, Receiver
from sayagain.client.outbox import Outbox
from sayagain.client.process import ProcessTransport
from sayagain.client.prompts import Fate, fate_of, is_garbled
from sayagain.client.retries import Retries
from sayagain.connection import PeerError
from sayagain.protocol.versions import PROTOCOL_VERSION
from sayagain.transports import ClosedTransport, Transport

__all__ = ["Connector", "Reach"]

logger = logging.getLogger(__name__)

Connector: TypeAlias = Callable[[Outbox], AbstractAsyncContextManager[Transport]]
"""Opens a way to the agent, a new one each time; it is closed when the context is left."""

_UNSUPPORTED_VERSION: Final = -32022

_LOST: Final = 1.0
"""Seconds that an agent which was lost gets to end by itself: who waits for it wants to hear why."""


class Reach:
    """Run :meth:`run` in a task.

    ``begun`` is called with each connection that is open, before anybody else uses it; ``lost`` with one that has
    ended, when all that came on it is taken; ``changed`` after either, and when there will be no other.
    """

    def __init__(
        self,
        connector: Connector,
        outbox: Outbox,
        receiver: Receiver,
        *,
        hello: Mapping[str, Any],
        retries: Retries | None,
        patience: float,
        begun: Callable[[Link], None],
        lost: Callable[[Link], None],
        changed: Callable[[], None],
    ) -> None:
        self._connector = connector
        self._outbox = outbox
        self._receiver = receiver
        self._hello = {"protocolVersion": PROTOCOL_VERSION, **hello}
        self._retries = retries
        self._patience = patience
        self._begun = begun
        self._lost = lost
        self._changed = changed
        self._failures = 0
        self.agent: Mapping[str, Any] = {}
        """The agent's answer to ``initialize``."""
        self.link: Link | None = None
        """The connection that is open."""
        self.fault: AgentFault | None = None
        """Why the agent is lost for good; ``None`` while it is reached or tried."""
        self.tasks: anyio.abc.TaskGroup
        """What is started here ends with the connection."""

    def progress(self) -> None:
        """The agent does real work: the count of failures starts anew."""
        self._failures = 0

    async def run(self) -> None:
        """Keep a connection; returns when the agent is lost for good, and :attr:`fault` says why."""
        while True:
            began = anyio.current_time()
            fault = await self._life()
            if self._retries is None or fault.for_good:
                break
            if anyio.current_time() - began > self._retries.steady:
                self._failures = 0
            self._failures += 1
            if self._failures >= self._retries.attempts:
                last, fault = fault, GaveUp(self._failures, fault)
                fault.__cause__ = last
                break
            logger.info("the agent is lost, attempt %d: %s", self._failures, fault)
            await anyio.sleep(self._retries.pause(self._failures))
        self.fault = fault
        self._changed()

    async def _life(self) -> AgentFault:
        """One connection, from its start to its end; why it ended."""
        fault: AgentFault | None = None
        try:
            async with self._connector(self._outbox) as transport:
                link = Link(transport, self._receiver, patience=self._patience)
                async with anyio.create_task_group() as self.tasks:
                    self.tasks.start_soon(link.run)
                    fault = await self._live(link)
                    if isinstance(transport, ProcessTransport):
                        transport.hurry(0 if isinstance(fault, AgentGarbled | AgentFloods) else _LOST)
                    self.tasks.cancel_scope.cancel()
        except AgentFault as error:
            return error
        except (OSError, ClosedTransport) as error:
            return fault or AgentGone(f"the agent cannot be reached: {error}")
        assert fault is not None
        return fault

    async def _live(self, link: Link) -> AgentFault:
        try:
            self.agent = await link.greet(self._hello)
        except LinkLost:
            await link.ended.wait()
        except PeerError as error:
            if is_garbled(error):
                return AgentGarbled(f"the agent does not speak ACP {PROTOCOL_VERSION}: {error.text}", for_good=True)
            if fate_of(error) is Fate.AGAIN and error.code != _UNSUPPORTED_VERSION:
                # Not again on this connection (RPC-7): the next one negotiates for itself.
                return AgentFault(f"the agent refuses to start: {error}")
            return AgentFault(f"the agent does not speak ACP {PROTOCOL_VERSION}: {error.text}", for_good=True)
        else:
            if self.agent.get("protocolVersion") != PROTOCOL_VERSION:
                reason = "it offers another version of the protocol"
                return AgentFault(f"the agent does not speak ACP {PROTOCOL_VERSION}: {reason}", for_good=True)
            self.link = link
            self._begun(link)
            self._changed()
            await link.ended.wait()
            self.link = None
            self._lost(link)
            self._changed()
        return link.fault or AgentGone("the connection ended")
