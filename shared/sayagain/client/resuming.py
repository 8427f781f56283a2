"""Making sessions active: when the application asks for one, and each that it has on every new connection.

Both are one loop over connections: ask, and do what may help against a refusal before asking again. They differ in
which connections they ask on, in what they take for final, and in who hears the end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from sayagain.client.attempts import Attempts, Remedy
from sayagain.client.errors import AgentFault, OutboxError, ResumeFailed
from sayagain.client.events import Reconnected, Update
from sayagain.client.inbox import Inbox
from sayagain.client.link import Link, LinkLost
from sayagain.client.moving import Elsewhere, Moving
from sayagain.client.prompts import Fate
from sayagain.client.replay import Replay, ReplayTracker, failed_replay
from sayagain.client.session import Session
from sayagain.connection import PeerError

if TYPE_CHECKING:
    from sayagain.client.client import Client

__all__ = ["Resuming"]

logger = logging.getLogger(__name__)

_Links: TypeAlias = Callable[[], Awaitable[Link | None]]
"""The connection to ask on next; ``None`` when nobody wants the session there any more."""

_MAY_PASS: Final = frozenset({Fate.AGAIN})

_MAY_PASS_UNASKED: Final = _MAY_PASS | {Fate.WITHDRAWN}
"""Nobody here takes back a resume. The application may ask again; for what it did not ask for, nobody else would."""


class Resuming:
    """``patience`` is for the agent of a killed client to end, in seconds."""

    def __init__(self, client: Client, inbox: Inbox, patience: float) -> None:
        self._client = client
        self._inbox = inbox
        self._moving = Moving(client, inbox)
        self._patience = patience

    async def resume(self, session: Session, cwd: str, setup: Mapping[str, Any], *, replay: bool) -> Replay | None:
        """As the application asks: see :meth:`Client.resume <sayagain.client.client.Client.resume>`.

        Raises :class:`~sayagain.client.moving.Elsewhere` too.
        """
        session.askers += 1
        try:
            # Two markers on one session could not be told apart (spec of the marker, FAQ).
            async with session.resuming:
                session.cwd, session.setup = cwd, setup
                attempts = Attempts(session, _MAY_PASS, replaying=replay)
                await self._activate(attempts, self._client.linked)
                return attempts.replay
        finally:
            session.askers -= 1
            if not session.known and not session.askers:
                # The application never gets it: what came for it does not wait to be read.
                session.pending_events()
                self._client.forget(session)

    async def attach(self, session: Session, link: Link) -> None:
        """Resume a session that the application has, on a new connection; errors end in ``session.broken``."""

        async def this_one() -> Link | None:
            # The next connection is another call's; and the application may close the session meanwhile.
            return link if link.is_open and self._inbox.has(session) else None

        async with session.resuming:
            if session.attached is link:
                return
            try:
                if await self._activate(Attempts(session, _MAY_PASS_UNASKED), this_one):
                    self._inbox.deliver(session, Reconnected(session.session_id))
            except ResumeFailed as failed:
                self._client.lose(session, failed)
            except Elsewhere as elsewhere:
                logger.info("session %s ends: %s", session.session_id, elsewhere)

    async def _activate(self, attempts: Attempts, links: _Links) -> bool:
        """Ask until the session is active, or nobody wants it any more. True when it was resumed; false also when it is
        active because it was made anew.

        Raises :class:`~sayagain.client.errors.ResumeFailed` and :class:`~sayagain.client.moving.Elsewhere`.
        """
        try:
            while (link := await links()) is not None:
                with suppress(LinkLost):
                    try:
                        await self._ask(attempts, link)
                    except PeerError as refusal:
                        if await self._remedy(attempts, link, refusal):
                            return False
                    else:
                        return True
        except (AgentFault, PeerError) as cause:
            raise attempts.failed(cause) from cause
        except OutboxError as cause:
            raise attempts.failed(cause, "its prompts are kept") from cause
        return False

    async def _ask(self, attempts: Attempts, link: Link) -> None:
        session = attempts.session
        tracker: ReplayTracker | None = None

        def begun() -> None:
            nonlocal tracker
            if not session.known:
                # Nobody has read it yet: what a failed attempt brought would be told twice.
                for event in session.pending_events():
                    if not isinstance(event, Update):
                        self._inbox.deliver(session, event)
            tracker = session.tracker = attempts.tracker(active=session.attached is link)

        def over() -> None:
            if session.tracker is tracker:
                session.tracker = None

        params = {**session.setup, "sessionId": session.session_id, "cwd": session.cwd}
        if attempts.replaying:
            params["replayFrom"] = {"type": "start"}
        try:
            answer = await link.resume(params, begun=begun, over=over)
        except (LinkLost, PeerError):
            # Without one it was not asked.
            if tracker is not None:
                attempts.replay = failed_replay(tracker, attempts.replay)
            raise
        attempts.replay = None if tracker is None else tracker.finish(succeeded=True)
        self._client.activate(session, link, answer)

    async def _remedy(self, attempts: Attempts, link: Link, refusal: PeerError) -> bool:
        """Do what may help; true when that has made the session active. Raises the refusal when nothing helps."""
        retries = self._client.retries
        if retries is None:
            raise refusal
        match attempts.remedy(refusal, retries.attempts):
            case Remedy.NONE:
                raise refusal
            case Remedy.PAUSE:
                # It was answered: no marker of it can come among those of the next one.
                await anyio.sleep(retries.pause(attempts.refusals))
            case Remedy.LOOK_AGAIN:
                await self._outlive(attempts.session)
                await anyio.sleep(retries.pause(2))
            case Remedy.MOVE:
                return await self._moving.move(attempts, link, refusal, retries)
        return False

    async def _outlive(self, session: Session) -> None:
        """Who could still store the session's first prompt is gone then."""
        if await self._client.outbox.unsettled(session.session_id):
            await self._client.outbox.take(session.session_id, patience=self._patience)
