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

__all__ = ["Home", "find_home", "made_id"]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a session's prompts are now; ``answer`` is the agent's when it was made here, and not by another client."""

    session_id: str
    answer: Mapping[str, Any] | None


async def find_home(outbox: Outbox, link: Link, session: Session) -> Home | None:
    """Move the prompts of a session that the agent does not know.

    ``None`` when a prompt in it was confirmed, or when no client of this outbox made it.

    Raises :class:`~sayagain.connection.PeerError` when the agent refuses to make another, and as :func:`made_id` does;
    :class:`~sayagain.client.link.LinkLost`; and :class:`~sayagain.client.errors.OutboxError`: as ``OutboxBusy`` also
    when a living process may still get a prompt of it inserted.
    """
    old = session.session_id
    if (known := await outbox.follow(old)) is not None:
        return Home(known, None)
    if not await outbox.unsettled(old):
        return None
    answer = await link.call("session/new", {**session.setup, "cwd": session.cwd})
    made = made_id(answer)
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
