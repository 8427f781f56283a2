"""Subagent sessions: who they are, and the end of each one's replay."""

from __future__ import annotations

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, Feature, NotJudged, Source
from sayagain.check.sessions import Replay
from sayagain.check.suite.base import listed
from sayagain.check.suite.table import Table
from sayagain.check.trace import MARKER, Event, as_mapping, told
from sayagain.protocol.v2.history import NOT_HISTORY

__all__ = ["CHILDREN"]

CHILDREN = Table(Area.CHILDREN, Source.MARKER)

SUBAGENTS = "Subagent sessions"


def announced(events: list[Event]) -> dict[str, Event]:
    """The children that are announced in there, each with its first announcement."""
    found: dict[str, Event] = {}
    for event in events:
        child = event.update.get("sessionId")
        if event.kind == "subagent_update" and isinstance(child, str):
            found.setdefault(child, event)
    return found


async def _replayed(bench: Bench) -> tuple[Replay, dict[str, Event]]:
    """The replay of a session that had a subagent, and the children that it announces."""
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    _, call = await bench.prompt(wire, session, bench.profile.delegating(token), token=token)
    await bench.idle(wire, session, call)
    if not announced(bench.trace.updates(session.session_id, after=call.sent)):
        raise NotJudged("the agent reports no subagent session", call.sent)
    await bench.end()
    replay = await bench.replay(await bench.wire(), session)
    children = announced([event for event in replay.all if event.kind])
    if not children:
        raise NotJudged("the replay announces no subagent session", replay.call.sent, replay.answer)
    return replay, children


def _of(replay: Replay, child: str) -> list[Event]:
    return [event for event in replay.all if event.kind and event.session_id == child]


def _marker(replay: Replay, child: str) -> Event:
    marker = next((event for event in _of(replay, child) if event.kind == MARKER), None)
    if marker is None:
        raise NotJudged("the subagent session has no marker (child-marker)", replay.call.sent, replay.answer)
    return marker


@CHILDREN.must(
    "child-marker",
    SUBAGENTS,
    "Every subagent session that is announced during a replay has exactly one marker, on its own sessionId and before "
    "the answer.",
    Feature.CHILD,
)
async def _child_marker(bench: Bench) -> None:
    replay, children = await _replayed(bench)
    for child, announcement in children.items():
        markers = [event for event in _of(replay, child) if event.kind == MARKER]
        if len(markers) != 1:
            raise Failed(f"it has {len(markers)} markers", replay.call.sent, announcement, *markers, replay.answer)


@CHILDREN.must(
    "child-announced-first",
    "Announcing",
    "A subagent session is announced on its parent before anything bears its id.",
    Feature.CHILD,
    source=Source.SUBAGENTS,
)
async def _announced_first(bench: Bench) -> None:
    replay, children = await _replayed(bench)
    for child, announcement in children.items():
        first = next(iter(_of(replay, child)), None)
        if first is not None and first.index < announcement.index:
            raise Failed("an update comes before the announcement", replay.call.sent, first, announcement)


@CHILDREN.must(
    "child-only-history", SUBAGENTS, "Every update of a subagent session before its marker is history.", Feature.CHILD
)
async def _only_history(bench: Bench) -> None:
    replay, children = await _replayed(bench)
    for child in children:
        marker = _marker(replay, child)
        strangers = [event for event in _of(replay, child) if event.kind in NOT_HISTORY and event.index < marker.index]
        if strangers:
            raise Failed("what is no history comes before its marker", replay.call.sent, *strangers[:6], marker)


@CHILDREN.must(
    "child-after-history",
    SUBAGENTS,
    "A subagent session's marker comes after its last replayed update.",
    Feature.CHILD,
)
async def _after_history(bench: Bench) -> None:
    replay, children = await _replayed(bench)
    for child in children:
        marker = _marker(replay, child)
        later = told([event for event in _of(replay, child) if event.index > marker.index])
        if later:
            raise Failed("history comes after its marker", replay.call.sent, marker, later[0].events[0])


@CHILDREN.must(
    "child-known",
    SUBAGENTS,
    "A session that was neither opened nor announced on the connection has no marker.",
    over=True,
)
async def _known(bench: Bench) -> None:
    # Wherever in the trace: what comes first is for other checks.
    known: set[tuple[int, str]] = set()
    for event in bench.trace.events:
        if event.side == "client" and event.method == "session/resume":
            known.add((event.connection, str(event.session_id)))
        elif event.kind == "subagent_update":
            known.add((event.connection, str(event.update.get("sessionId"))))
        elif event.side == "agent":
            known.add((event.connection, str(as_mapping(as_mapping(event.message).get("result")).get("sessionId"))))
    for event in bench.trace.updates(kind=MARKER):
        if (event.connection, str(event.session_id)) not in known:
            raise Failed("a marker on a session that nobody knows", event)


@CHILDREN.must(
    "child-not-listed",
    "Restricted session methods",
    "Subagent sessions are not in session/list.",
    Feature.CHILD,
    source=Source.SUBAGENTS,
)
async def _not_listed(bench: Bench) -> None:
    _, children = await _replayed(bench)
    wire = await bench.wire()
    call = await wire.begin("session/list", {})
    if not children.keys().isdisjoint(map(str, listed(await call.result()))):
        raise Failed("a subagent session is listed", call.sent, call.answer)
