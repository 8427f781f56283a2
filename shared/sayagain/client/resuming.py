"""Making sessions active: when the application asks for one, and each that it has on every new connection.

Both are one loop over connections: ask, and do what may help against a refusal before asking again. They differ in
which connections they ask on, in what they take for final, and in who hears the end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from sayagain import fault_points
from sayagain.client.errors import AgentFault, OutboxError, ResumeFailed
from sayagain.client.events import Moved, Reconnected, Update
from sayagain.client.inbox import Inbox
from sayagain.client.link import Link, LinkLost
from sayagain.client.moving import Home, make_home, move_home, moved_before
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

_Links: TypeAlias = Callable[[], Awaitable[Link | None]]
"""The connection to ask on next; ``None`` when nobody wants the session there any more."""

_MAY_PASS: Final = frozenset({Fate.AGAIN})

_MAY_PASS_UNASKED: Final = _MAY_PASS | {Fate.WITHDRAWN}
"""Nobody here takes back a resume. The application may ask again; for what it did not ask for, nobody else would."""


class Elsewhere(Exception):
    """The prompts of the session are in another one, which the application has already."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"its prompts are in session {session_id}")


class _Remedy(Enum):
    """What may help against a refusal."""

    NONE = "none"

    PAUSE = "pause"
    """The trouble may pass."""

    LOOK_AGAIN = "look again"
    """The agent does not know the session. The agent of a killed client lives a moment longer and could still store
    its first prompt: one look during that proves nothing."""

    MOVE = "move"
    """The agent does not know the session, and nobody can store it any more."""


class _Attempts:
    """What came of asking for one session. No I/O.

    | the refusal           | its remedy                        |
    |-|-|
    | unknown session       | look again; the second time, move |
    | one that may pass     | pause, ``limit`` refusals in all  |
    | any other             | none                              |
    """

    def __init__(self, session: Session, may_pass: frozenset[Fate], *, replaying: bool = False) -> None:
        self.session = session
        self.replaying = replaying
        self.looks = 0
        self.refusals = 0
        self.unknown = set[str]()
        """Ids that the agent does not know, for certain."""
        self.replay = failed_replay(self.tracker(), None)
        """What a replay has brought so far; ``None`` when none was asked for."""
        self._may_pass = may_pass

    def tracker(self, *, active: bool = False) -> ReplayTracker | None:
        """For the next attempt, on a connection on which the session is ``active`` already, or not."""
        return ReplayTracker(self.session.session_id, active=active) if self.replaying else None

    def remedy(self, refusal: PeerError, limit: int) -> _Remedy:
        """The agent has refused once more."""
        fate = fate_of(refusal)
        if fate is Fate.RESUME:
            self.looks += 1
            if self.looks == 1:
                return _Remedy.LOOK_AGAIN
            self.unknown.add(self.session.session_id)
            return _Remedy.MOVE
        return _Remedy.PAUSE if self.passes(refusal, limit) else _Remedy.NONE

    def passes(self, refusal: PeerError, limit: int) -> bool:
        """Whether what was refused, be it another session in its place, may be asked for once more."""
        self.refusals += 1
        return fate_of(refusal) in self._may_pass and self.refusals < limit

    def moved(self) -> None:
        """The session has a new id: nothing that came under the old one says anything of it."""
        self.looks = self.refusals = 0
        self.replay = failed_replay(self.tracker(), None)

    def failed(self, cause: Exception, note: str = "") -> ResumeFailed:
        """There will be no further attempt."""
        failed = ResumeFailed(self.session.session_id, cause, self.replay, note)
        failed.__cause__ = cause
        return failed


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
                attempts = _Attempts(session, _MAY_PASS, replaying=replay)
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
                if await self._activate(_Attempts(session, _MAY_PASS_UNASKED), this_one):
                    self._inbox.deliver(session, Reconnected(session.session_id))
            except ResumeFailed as failed:
                self._break(session, failed)
            except Elsewhere as elsewhere:
                logger.info("session %s ends: %s", session.session_id, elsewhere)

    async def _activate(self, attempts: _Attempts, links: _Links) -> bool:
        """Ask until the session is active, or nobody wants it any more. True when it was resumed; false also when it is
        active because it was made anew.

        Raises :class:`~sayagain.client.errors.ResumeFailed` and :class:`Elsewhere`.
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

    async def _ask(self, attempts: _Attempts, link: Link) -> None:
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

    async def _remedy(self, attempts: _Attempts, link: Link, refusal: PeerError) -> bool:
        """Do what may help; true when that has made the session active. Raises the refusal when nothing helps."""
        retries = self._client.retries
        if retries is None:
            raise refusal
        match attempts.remedy(refusal, retries.attempts):
            case _Remedy.NONE:
                raise refusal
            case _Remedy.PAUSE:
                # It was answered: no marker of it can come among those of the next one.
                await anyio.sleep(retries.pause(attempts.refusals))
            case _Remedy.LOOK_AGAIN:
                await self._outlive(attempts.session)
                await anyio.sleep(retries.pause(2))
            case _Remedy.MOVE:
                return await self._move(attempts, link, refusal, retries)
        return False

    async def _outlive(self, session: Session) -> None:
        """Who could still store the session's first prompt is gone then."""
        if await self._client.outbox.unsettled(session.session_id):
            await self._client.outbox.take(session.session_id, patience=self._patience)

    async def _move(self, attempts: _Attempts, link: Link, refusal: PeerError, retries: Retries) -> bool:
        """The agent does not know the session: go on in another one, if nothing was ever confirmed in it.

        True when that is active; false when there is more to ask for: another client was quicker to make it, or the
        agent makes none for now. Raises as :mod:`~sayagain.client.moving` does, :class:`Elsewhere`,
        :class:`~sayagain.client.errors.ResumeFailed`, and the refusal when there is no other session.
        """
        session, outbox = attempts.session, self._client.outbox
        async with session.moving:
            home = await moved_before(outbox, session)
            if home is not None:
                return await self._go_on(attempts, link, refusal, home)
        try:
            answer = await make_home(outbox, link, session)
        except PeerError as other:
            if not attempts.passes(other, retries.attempts):
                raise attempts.failed(other, "the agent does not know it, and makes no other") from other
            await anyio.sleep(retries.pause(attempts.refusals))
            return False
        if answer is None:
            raise refusal
        async with session.moving:
            return await self._go_on(attempts, link, refusal, await move_home(outbox, session, answer))

    async def _go_on(self, attempts: _Attempts, link: Link, refusal: PeerError, home: Home) -> bool:
        """In the session that has the prompts now; as :meth:`_move`."""
        session, old = attempts.session, attempts.session.session_id
        # An agent that uses an id twice can make the outbox point in circles.
        if home.answer is None and home.session_id in attempts.unknown:
            raise refusal
        fault_points.passing(Point.CLIENT_MOVED)
        # Before anything else has changed: the outbox may fail.
        keys = [prompt.key for prompt in await self._client.outbox.prompts(home.session_id)]
        if home.session_id != old and not self._inbox.move(session, home.session_id):
            elsewhere = Elsewhere(home.session_id)
            # Nothing comes for it any more, and who has it shall not wait.
            self._break(session, attempts.failed(refusal, str(elsewhere)))
            raise elsewhere
        logger.info("session %s was never stored; %s has its %d prompts", old, home.session_id, len(keys))
        self._inbox.deliver(session, Moved(old, home.session_id, keys))
        attempts.moved()
        if home.answer is None:
            return False
        attempts.replay = empty_replay(home.session_id) if attempts.replaying else None
        self._client.activate(session, link, home.answer)
        return True

    def _break(self, session: Session, failed: ResumeFailed) -> None:
        session.broken = failed
        session.change()
        self._client.change()
