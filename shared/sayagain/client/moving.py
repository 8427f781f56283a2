"""A session that was never stored has no prompts to lose: those that wait for it go on in a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sayagain import fault_points
from sayagain.client.errors import AgentGarbled
from sayagain.client.link import Link
from sayagain.client.outbox import Outbox
from sayagain.client.session import Session
from sayagain.fault_points import Point

__all__ = ["Home", "made_id", "make_home", "move_home", "moved_before"]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a session's prompts are now; ``answer`` is the agent's when it was made here, and not by another client."""

    session_id: str
    answer: Mapping[str, Any] | None


async def moved_before(outbox: Outbox, session: Session) -> Home | None:
    """Where the prompts of a session that the agent does not know were moved already; what is left is moved along.

    Raises :class:`~sayagain.client.errors.OutboxError`.
    """
    known = await outbox.follow(session.session_id)
    return None if known is None else Home(known, None)


async def make_home(outbox: Outbox, link: Link, session: Session) -> Mapping[str, Any] | None:
    """Another session for the prompts of one that the agent does not know: the answer to ``session/new``.

    ``None`` when a prompt in it was confirmed, or when no client of this outbox made it.

    Raises :class:`~sayagain.connection.PeerError` when the agent refuses to make another,
    :class:`~sayagain.client.link.LinkLost`, and :class:`~sayagain.client.errors.OutboxError`.
    """
    if not await outbox.unsettled(session.session_id):
        return None
    return await link.call("session/new", {**session.setup, "cwd": session.cwd})


async def move_home(outbox: Outbox, session: Session, answer: Mapping[str, Any]) -> Home:
    """Move the session's prompts to the one that was made, or to where another client was quicker to move them.

    Raises as :func:`made_id` does; and :class:`~sayagain.client.errors.OutboxError`: as ``OutboxBusy`` also when a
    living process may still get a prompt of it inserted.
    """
    old, made = session.session_id, made_id(answer)
    await outbox.opened(made, session.cwd)
    fault_points.passing(Point.CLIENT_MOVING)
    # An agent that has forgotten its sessions may use their ids again: then they are there already.
    target = made if made == old else await outbox.move(old, made)
    return Home(target, answer if target == made else None)


def made_id(answer: Mapping[str, Any]) -> str:
    """The id in an answer to ``session/new``; raises :class:`~sayagain.client.errors.AgentGarbled` without one."""
    session_id: object = answer.get("sessionId")
    if not isinstance(session_id, str) or not session_id:
        raise AgentGarbled("the agent made a session without an id")
    return session_id
