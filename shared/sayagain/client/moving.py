"""A session that was never stored has no prompts to lose: those that wait for it go on in a new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio

from sayagain import fault_points
from sayagain.client.attempts import Attempts
from sayagain.client.errors import AgentGarbled
from sayagain.client.events import Moved
from sayagain.client.inbox import Inbox
from sayagain.client.link import Link
from sayagain.client.replay import empty_replay
from sayagain.client.retries import Retries
from sayagain.connection import PeerError
from sayagain.fault_points import Point

if TYPE_CHECKING:
    from sayagain.client.client import Client

__all__ = ["Elsewhere", "Moving", "made_id"]

logger = logging.getLogger(__name__)


class Elsewhere(Exception):
    """The prompts of the session are in another one, which the application has already."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"its prompts are in session {session_id}")


class Moving:
    """The order of a move: the outbox follows or makes it, then the session gets its new id, and both under the
    session's ``moving``, so that a prompt that is submitted meanwhile goes along.
    """

    def __init__(self, client: Client, inbox: Inbox) -> None:
        self._client = client
        self._inbox = inbox

    async def move(self, attempts: Attempts, link: Link, refusal: PeerError, retries: Retries) -> bool:
        """The agent does not know the session: go on in another one, if nothing was ever confirmed in it.

        True when that is active; false when there is more to ask for: another client was quicker to make it, or the
        agent makes none for now. Raises the refusal when a prompt in the session was confirmed, or when no client of
        this outbox made it; :class:`~sayagain.client.errors.ResumeFailed` when the agent refuses to make another;
        :class:`Elsewhere`; :class:`~sayagain.client.link.LinkLost`; as :func:`made_id` does; and
        :class:`~sayagain.client.errors.OutboxError`: as ``OutboxBusy`` also when a living process may still get a
        prompt of it inserted.
        """
        session, outbox = attempts.session, self._client.outbox
        async with session.moving:
            home = await outbox.follow(session.session_id)
            if home is not None:
                await self._go_on(attempts, refusal, home, made=False)
                return False
        if not await outbox.unsettled(session.session_id):
            raise refusal
        with self._inbox.making():
            try:
                answer = await link.call("session/new", {**session.setup, "cwd": session.cwd})
            except PeerError as other:
                if not attempts.passes(other, retries.attempts):
                    raise attempts.failed(other, "the agent does not know it, and makes no other") from other
                await anyio.sleep(retries.pause(attempts.refusals))
                return False
            async with session.moving:
                old, made = session.session_id, made_id(answer)
                await outbox.opened(made, session.cwd)
                fault_points.passing(Point.CLIENT_MOVING)
                # An agent that has forgotten its sessions may use their ids again: then they are there already.
                home = made if made == old else await outbox.move(old, made)
                await self._go_on(attempts, refusal, home, made=home == made)
            if home != made:
                return False
            attempts.replay = empty_replay(made) if attempts.replaying else None
            self._client.activate(session, link, answer)
            self._inbox.take_stray(session)
            return True

    async def _go_on(self, attempts: Attempts, refusal: PeerError, home: str, *, made: bool) -> None:
        """In the session that has the prompts now, ``made`` here a moment ago or by another client before."""
        session, old = attempts.session, attempts.session.session_id
        # An agent that uses an id twice can make the outbox point in circles.
        if not made and home in attempts.unknown:
            raise refusal
        fault_points.passing(Point.CLIENT_MOVED)
        # Before anything else has changed: the outbox may fail.
        keys = [prompt.key for prompt in await self._client.outbox.prompts(home)]
        if home != old and not self._inbox.move(session, home):
            elsewhere = Elsewhere(home)
            # Nothing comes for it any more, and who has it shall not wait.
            self._client.lose(session, attempts.failed(refusal, str(elsewhere)))
            raise elsewhere
        logger.info("session %s was never stored; %s has its %d prompts", old, home, len(keys))
        self._inbox.deliver(session, Moved(old, home, keys))
        attempts.moved()


def made_id(answer: Mapping[str, Any]) -> str:
    """The id in an answer to ``session/new``; raises :class:`~sayagain.client.errors.AgentGarbled` without one."""
    session_id: object = answer.get("sessionId")
    if not isinstance(session_id, str) or not session_id:
        raise AgentGarbled("the agent made a session without an id")
    return session_id
