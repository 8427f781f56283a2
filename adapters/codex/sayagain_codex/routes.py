"""Whose an app-server's messages are: each thread is a session's, or a child of one, or nobody's.

Everything is routed by ``threadId`` alone. A child thread has no start that is told: its first sign comes before the
item of its parent that names it (measured), so its messages wait until Codex has said whose child it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from typing import Any, Final, Protocol, TypeAlias, TypeVarTuple

import anyio.abc

from sayagain.errors import RuntimeDied, RuntimeFault
from sayagain.protocol.loose import as_mapping, as_text
from sayagain_codex.app_server import AppServer, AppServerError, RequestId, Use
from sayagain_codex.translate.approvals import METHODS

__all__ = ["Heard", "Owner", "Routes"]

logger = logging.getLogger(__name__)

WAITING: Final = 10_000
"""Messages of threads that nobody has claimed yet, before the oldest thread is given up: a child is claimed within
milliseconds, so this many mean that something else is wrong."""

Params = Mapping[str, Any]
Arguments = TypeVarTuple("Arguments")


class Owner(Protocol):
    """A session, as its process sees it. Plain calls, made by the reader; but for :meth:`store`."""

    def notified(self, method: str, params: Params) -> None:
        """A notification of one of the session's threads."""
        ...

    def asked(self, request_id: RequestId, method: str, params: Params) -> None:
        """A request of one of the session's threads."""
        ...

    def announced(self, method: str, params: Params) -> None:
        """A notification that belongs to no thread."""
        ...

    @property
    def works(self) -> bool:
        """Whether anything of the session's is under way in the process."""
        ...

    async def store(self, use: Use) -> None:
        """The process is about to be ended in order: what it alone knows is stored, by ``use``.

        Raises :class:`~sayagain.errors.RuntimeFault`.
        """
        ...

    def died(self, detail: str) -> None:
        """The process is gone."""
        ...


Heard: TypeAlias = Callable[[str, Params, Set[Owner]], None]
"""Takes a notification that belongs to no thread, by its method and its params, and the sessions that get it too."""


class Routes:
    """The threads of one process, whose listener it is. ``heard`` gets what has no thread, before the sessions do."""

    def __init__(self, tasks: anyio.abc.TaskGroup, heard: Heard) -> None:
        self._tasks = tasks
        self._heard = heard
        self._owners: dict[str, Owner] = {}
        self._unclaimed: dict[str, list[tuple[RequestId | None, str, Params]]] = {}
        self._strangers: set[str] = set()

    @property
    def owners(self) -> set[Owner]:
        """All sessions that have threads here."""
        return set(self._owners.values())

    def work(self) -> bool:
        """Whether anything of any session's is under way."""
        return any(owner.works for owner in self.owners)

    def route(self, thread_id: str, owner: Owner) -> None:
        """From now on this thread's messages are the session's; what waits is delivered first."""
        self._owners[thread_id] = owner
        self._strangers.discard(thread_id)
        for request_id, method, params in self._unclaimed.pop(thread_id, ()):
            self._deliver(owner, request_id, method, params)

    def unroute(self, owner: Owner) -> None:
        """The session is closed."""
        for thread_id in self.threads_of(owner):
            del self._owners[thread_id]
            self._strangers.add(thread_id)

    def threads_of(self, owner: Owner) -> list[str]:
        """The session's own thread and its children's."""
        return [thread_id for thread_id, found in self._owners.items() if found is owner]

    def died(self, detail: str) -> None:
        """The process is gone, and every session is told so."""
        owners = self.owners
        for known in (self._owners, self._unclaimed, self._strangers):
            known.clear()
        for owner in owners:
            _tell(owner.died, detail)

    # What the process says.

    def notified(self, server: AppServer, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.app_server.Listener`."""
        thread_id = _thread_of(params)
        if thread_id is None:
            owners = self.owners
            self._heard(method, params, owners)
            for owner in owners:
                _tell(owner.announced, method, params)
        else:
            self._pass_on(server, thread_id, None, method, params)

    def asked(self, server: AppServer, request_id: RequestId, method: str, params: Params) -> None:
        """See :class:`~sayagain_codex.app_server.Listener`."""
        thread_id = _thread_of(params)
        if thread_id is not None and thread_id not in self._strangers and method in METHODS:
            self._pass_on(server, thread_id, request_id, method, params)
        else:
            self._refuse(server, request_id, method)

    def _refuse(self, server: AppServer, request_id: RequestId, method: str) -> None:
        self._tasks.start_soon(server.guard, server.refuse, request_id, -32601, f"{method} is not served")

    def _pass_on(
        self, server: AppServer, thread_id: str, request_id: RequestId | None, method: str, params: Params
    ) -> None:
        owner = self._owners.get(thread_id)
        if owner is not None:
            self._deliver(owner, request_id, method, params)
        elif thread_id not in self._strangers:
            if thread_id not in self._unclaimed:
                self._tasks.start_soon(server.guard, self._claim, server, thread_id)
            self._unclaimed.setdefault(thread_id, []).append((request_id, method, params))
            if sum(map(len, self._unclaimed.values())) > WAITING:
                self._give_up(server, next(iter(self._unclaimed)))

    def _deliver(self, owner: Owner, request_id: RequestId | None, method: str, params: Params) -> None:
        if request_id is None:
            _tell(owner.notified, method, params)
        else:
            _tell(owner.asked, request_id, method, params)

    async def _claim(self, server: AppServer, thread_id: str) -> None:
        """Ask Codex whose child a thread is."""
        ancestor: object = thread_id
        use = Use(server)
        try:
            while isinstance(ancestor, str) and thread_id in self._unclaimed:
                if owner := self._owners.get(ancestor):
                    self.route(thread_id, owner)
                    return
                answer = await use.request("thread/read", {"threadId": ancestor})
                ancestor = as_mapping(answer.get("thread")).get("parentThreadId")
        except (AppServerError, RuntimeDied) as error:
            logger.debug("a thread is nobody's: %s", error)
        except RuntimeFault as error:
            logger.warning("a thread could not be claimed: %s", error)
        self._give_up(server, thread_id)

    def _give_up(self, server: AppServer, thread_id: str) -> None:
        """A thread of nobody's: such as one that was closed a moment ago."""
        waiting = self._unclaimed.pop(thread_id, None)
        if waiting is None:
            return
        self._strangers.add(thread_id)
        for request_id, method, _ in waiting:
            if request_id is not None:
                self._refuse(server, request_id, method)


def _tell(take: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
    """One message that a session misunderstands must not keep others from it, nor the session from the next one."""
    try:
        take(*arguments)
    except Exception:
        logger.exception("a session could not take a message of Codex")


def _thread_of(params: Params) -> str | None:
    return as_text(params.get("threadId")) or as_text(as_mapping(params.get("thread")).get("id")) or None
