"""Making sessions active: when the application asks for one, and each that it has on every new connection."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from sayagain import fault_points
from sayagain.client.errors import AgentFault, OutboxError, ResumeFailed
from sayagain.client.events import Moved, Reconnected, Update
from sayagain.client.inbox import Inbox
from sayagain.client.link import Link, LinkLost
from sayagain.client.moving import find_home
from sayagain.client.prompts import Fate, fate_of
from sayagain.client.replay import Replay, ReplayTracker, empty_replay, failed_replay
from sayagain.client.retries import Retries
from sayagain.client.session import Session
from sayagain.connection import PeerError
from sayagain.fault_points import Point

if TYPE_CHECKING:
    from sayagain.client.client import Client

__all__ = ["Elsewhere", "Resuming"]

logger = logging.getLogger(__name__)

_KEPT: Final = "its prompts are kept"


class Elsewhere(Exception):
    """The prompts of the session are in another one, which the application has already."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"its prompts are in session {session_id}")


class Resuming:
    """``patience`` is for the agent of a killed client to end, in seconds."""

    def __init__(self, client: Client, inbox: Inbox, patience: float) -> None:
        self._client = client
        self._inbox = inbox
        self._patience = patience

    async def resume(self, session: Session, cwd: str, setup: Mapping[str, Any], *, replay: bool) -> Replay | None:
        """As the application asks: see :meth:`Client.resume <sayagain.client.client.Client.resume>`.

        Raises :class:`Elsewhere` too.
        """
        session.askers += 1
        try:
            # Two markers on one session could not be told apart (spec of the marker, FAQ).
            async with session.resuming:
                session.cwd, session.setup = cwd, setup
                return await self._resume(session, replay=replay)
        finally:
            session.askers -= 1
            if not session.known and not session.askers:
                self._client.forget(session)

    async def _resume(self, session: Session, *, replay: bool) -> Replay | None:
        looks, refusals = 0, 0
        part: Replay | None = None
        while True:
            if not session.known:
                # Nobody has read it yet: what a failed attempt brought would be told twice.
                for event in session.pending_events():
                    if not isinstance(event, Update):
                        self._inbox.deliver(session, event)
            tracker = session.tracker = ReplayTracker(session.session_id) if replay else None
            try:
                link = await self._client.linked()
            except AgentFault as fault:
                raise ResumeFailed(session.session_id, fault, failed_replay(tracker, part)) from fault
            try:
                answer = await self._ask_resume(session, link, replay=replay)
            except LinkLost:
                part = failed_replay(tracker, part)
                if self._client.retries is None:
                    lost = await self._client.lost()
                    raise ResumeFailed(session.session_id, lost, part) from lost
            except PeerError as error:
                part = failed_replay(tracker, part)
                if self._client.retries is None:
                    raise ResumeFailed(session.session_id, error, part) from error
                if error.code != -32002:
                    refusals += 1
                    if fate_of(error) is not Fate.AGAIN or refusals >= self._client.retries.attempts:
                        raise ResumeFailed(session.session_id, error, part) from error
                    # It was answered: no marker of it can come among those of the next one.
                    await anyio.sleep(self._client.retries.pause(refusals))
                    continue
                looks += 1
                try:
                    if looks == 1:
                        await self._outlive(session)
                        continue
                    moved = await self._move(session, link)
                except LinkLost:
                    continue
                except OutboxError as unusable:
                    raise ResumeFailed(session.session_id, unusable, part, _KEPT) from unusable
                if not moved:
                    raise ResumeFailed(session.session_id, error, part) from error
                if session.attached is link:
                    return None if tracker is None else empty_replay(session.session_id)
                looks, part = 0, None
            else:
                self._client.activate(session, link, answer)
                return None if tracker is None else tracker.finish(succeeded=True)
            finally:
                session.tracker = None

    async def _ask_resume(self, session: Session, link: Link, *, replay: bool) -> Mapping[str, Any]:
        params = {**session.setup, "sessionId": session.session_id, "cwd": session.cwd}
        if replay:
            params["replayFrom"] = {"type": "start"}
        return await link.call("session/resume", params, streams=True)

    async def attach(self, session: Session, link: Link) -> None:
        """Resume a session that the application has, on a new connection; errors end in ``session.broken``."""
        async with session.resuming:
            if session.attached is link or not self._inbox.has(session):
                return
            retries = self._client.retries or Retries()
            looks, refusals = 0, 0
            while link.is_open:
                try:
                    answer = await self._ask_resume(session, link, replay=False)
                    self._client.activate(session, link, answer)
                    self._inbox.deliver(session, Reconnected(session.session_id))
                    return
                except LinkLost:
                    return
                except PeerError as error:
                    if error.code != -32002:
                        refusals += 1
                        if fate_of(error) in (Fate.NEVER, Fate.USER) or refusals >= retries.attempts:
                            self._break(session, error)
                            return
                        await anyio.sleep(retries.pause(refusals))
                        continue
                    looks += 1
                    try:
                        if looks == 1:
                            await self._outlive(session)
                            continue
                        moved = await self._move(session, link)
                    except LinkLost:
                        return
                    except OutboxError as unusable:
                        self._break(session, unusable, _KEPT)
                        return
                    except Elsewhere as elsewhere:
                        self._break(session, error, str(elsewhere))
                        return
                    if not moved:
                        self._break(session, error)
                        return
                    if session.attached is link:
                        return
                    looks, refusals = 0, 0

    def _break(self, session: Session, cause: Exception, note: str = "") -> None:
        session.broken = ResumeFailed(session.session_id, cause, None, note)
        session.broken.__cause__ = cause
        session.change()
        self._client.change()

    async def _outlive(self, session: Session) -> None:
        """Before a second look at a session that the agent does not know: who could still store its first prompt is
        gone then. The agent of a killed client lives a moment longer, and a first look during that proves nothing.
        """
        if await self._client.outbox.unsettled(session.session_id):
            await self._client.outbox.take(session.session_id, patience=self._patience)
        await anyio.sleep((self._client.retries or Retries()).pause(2))

    async def _move(self, session: Session, link: Link) -> bool:
        """The agent does not know the session: go on in another one, if nothing was ever confirmed in it.

        True when the session has a new id; it is still to be resumed if another client was quicker, else active. Raises
        as :func:`~sayagain.client.moving.find_home` does, and :class:`Elsewhere`.
        """
        old = session.session_id
        home = await find_home(self._client.outbox, link, session)
        if home is None:
            return False
        fault_points.passing(Point.CLIENT_MOVED)
        # Before anything else has changed: the outbox may fail.
        keys = [prompt.key for prompt in await self._client.outbox.prompts(home.session_id)]
        if not self._inbox.move(session, home.session_id):
            raise Elsewhere(home.session_id)
        logger.info("session %s was never stored; %s has its %d prompts", old, home.session_id, len(keys))
        self._inbox.deliver(session, Moved(old, home.session_id, keys))
        if home.answer is not None:
            self._client.activate(session, link, home.answer)
        return True
