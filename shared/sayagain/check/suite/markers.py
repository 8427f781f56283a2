"""``replay_complete``: every line of its rules."""

from __future__ import annotations

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, Feature, NotJudged, Source
from sayagain.check.profiles import STREAMED
from sayagain.check.sessions import Replay, Session
from sayagain.check.suite.base import nobody
from sayagain.check.suite.replay import NO_CURSOR, second_process, streaming, two_talks
from sayagain.check.suite.table import Table
from sayagain.check.trace import MARKER, Event, told
from sayagain.check.wire import AgentError, AgentWire, Call, Gone, Silent
from sayagain.protocol.v2.history import NOT_HISTORY

__all__ = ["MARKERS", "marker_of"]

MARKERS = Table(Area.MARKER, Source.MARKER)

UPDATE = "The replay_complete update"
BEFORE = "Only history before the marker"
OUTCOMES = "Outcomes"
CURSORS = "Replay cursors"
CANCELLED = -32800


def marker_of(replay: Replay) -> Event:
    """The replay's marker; not judged without one."""
    if replay.marker is None:
        raise NotJudged("the replay has no marker (marker-once)", replay.call.sent, replay.answer)
    return replay.marker


async def _none(bench: Bench, wire: AgentWire, call: Call) -> None:
    """Fail if the agent has sent any marker since that request."""
    await wire.barrier()
    if markers := bench.trace.updates(after=call.sent, kind=MARKER):
        raise Failed("there is a marker", call.sent, markers[0], call.answer)


@MARKERS.must("marker-once", UPDATE, "A replaying session/resume sends replay_complete exactly once on its session.")
async def _once(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    replay = await bench.replay(wire, session)
    await wire.barrier()
    markers = bench.trace.updates(session.session_id, after=replay.call.sent, kind=MARKER)
    if len(markers) != 1:
        shown = markers or replay.history[-1:]
        raise Failed(f"there are {len(markers)} markers", replay.call.sent, *shown, replay.answer)


@MARKERS.must("marker-again", UPDATE, "A second replaying resume of an active session has its own marker, once.")
async def _again(bench: Bench) -> None:
    session, _ = await two_talks(bench)
    wire = await bench.wire()
    await bench.replay(wire, session)
    replay = await bench.replay(wire, session)
    markers = [event for event in replay.updates if event.kind == MARKER]
    if len(markers) != 1:
        raise Failed(f"the second replay has {len(markers)} markers", replay.call.sent, *markers, replay.answer)


@MARKERS.must("marker-before-answer", UPDATE, "The marker comes before the answer to session/resume.")
async def _before_answer(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    replay = await bench.replay(wire, session)
    await wire.barrier()
    late = bench.trace.updates(session.session_id, after=replay.answer, kind=MARKER)
    if replay.marker is None and not late:
        raise NotJudged("the replay has no marker (marker-once)", replay.call.sent, replay.answer)
    if late:
        raise Failed("the marker comes after the answer", replay.call.sent, replay.answer, late[0])


@MARKERS.must("marker-after-history", UPDATE, "The marker comes after the last replayed update.")
async def _after_history(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    replay = await bench.replay(wire, session)
    marker = marker_of(replay)
    later = told([event for event in replay.updates if event.index > marker.index])
    if later:
        raise Failed("history comes after the marker", replay.call.sent, marker, later[0].events[0], replay.answer)


@MARKERS.must(
    "marker-only-history",
    BEFORE,
    "Every update of the session before its marker is history: no state, notice, title, usage, command or option.",
)
async def _only_history(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    replay = await bench.replay(wire, session)
    _only(replay, replay.call.sent)


def _only(replay: Replay, start: Event) -> None:
    # Without a marker: no place for one could be right that has history behind it.
    messages = replay.messages()
    end = replay.marker or max((m.events[-1] for m in messages), key=lambda event: event.index, default=None)
    if end is None:
        marker_of(replay)
        return
    strangers = [
        event for event in replay.updates if event.kind in NOT_HISTORY and start.index < event.index < end.index
    ]
    if strangers:
        raise Failed("what is no history comes before the end of the history", replay.call.sent, *strangers[:6], end)
    marker_of(replay)


@MARKERS.must(
    "marker-only-history-live",
    BEFORE,
    "Also when its session works: what is no history waits for the marker.",
    Feature.STREAM,
)
async def _live(bench: Bench) -> None:
    wire, session, token, prompt = await streaming(bench)
    call = await bench.begin_replay(wire, session)

    def begun() -> list[Event]:
        updates = bench.trace.updates(session.session_id, after=call.sent)
        return [event for event in updates if event.kind in (MARKER, "user_message", "user_message_chunk")]

    # What was on its way before the agent read the request proves nothing: history proves that it has.
    await wire.until(lambda: call.answer or begun(), "no beginning of the replay", call.sent)
    bench.note("the model goes on")
    bench.profile.step(token, len(STREAMED))
    replay = await bench.replayed(session, call)
    await bench.idle(wire, session, prompt)
    if first := begun():
        _only(replay, first[0])


_TRIES = 3
"""What a new session tells of itself may be on its way before the agent reads the request; not each time."""


@MARKERS.must(
    "marker-empty",
    UPDATE,
    f"With an empty history a replay begins with its marker: one of {_TRIES} at least, for what a new session tells of "
    "itself may be on its way before.",
)
async def _empty(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    replay, first = await _first_update(bench, wire, session)
    for _ in range(_TRIES - 1):
        if first is None or first.kind not in NOT_HISTORY:
            break
        replay, first = await _first_update(bench, wire, session)
    if first is None or first.kind != MARKER:
        raise Failed("the first update is no marker", replay.call.sent, first, replay.marker, replay.answer)


async def _first_update(bench: Bench, wire: AgentWire, session: Session) -> tuple[Replay, Event | None]:
    replay = await bench.replay(wire, session)
    return replay, replay.updates[0] if replay.updates else None


@MARKERS.must("marker-not-without-cursor", UPDATE, "A resume without replayFrom has no marker.")
async def _without(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    call = await wire.begin("session/resume", bench.resume_params(session))
    await call.result()
    await _none(bench, wire, call)


@MARKERS.must("marker-not-for-null", UPDATE, "A resume whose replayFrom is null has no marker.")
async def _null(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    call = await wire.begin("session/resume", bench.resume_params(session, replayFrom=None))
    await call.result()
    await _none(bench, wire, call)


@MARKERS.must("marker-not-for-new", UPDATE, "session/new has no marker.")
async def _new(bench: Bench) -> None:
    wire = await bench.wire()
    call = await wire.begin("session/new", {"cwd": bench.cwd, "mcpServers": []})
    session = Session(str((await call.result()).get("sessionId")))
    bench.adopt(session)
    await bench.talk(wire, session)
    await _none(bench, wire, call)


@MARKERS.must(
    "marker-not-for-fork",
    "Does the marker cover session/fork?",
    "session/fork has no marker.",
)
async def _fork(bench: Bench) -> None:
    session, _ = await two_talks(bench)
    wire = await bench.wire()
    if not bench.offers(wire, "fork"):
        raise NotJudged("the agent does not offer session/fork")
    call = await wire.begin("session/fork", bench.resume_params(session))
    try:
        bench.adopt(Session(str((await call.result()).get("sessionId"))))
    except AgentError as error:
        raise NotJudged(f"the session cannot be forked: {error}", call.sent, call.answer) from error
    await _none(bench, wire, call)


@MARKERS.must("marker-not-for-bad-cursor", CURSORS, "A cursor that is rejected replays nothing and has no marker.")
async def _bad_cursor(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    call = await wire.begin("session/resume", bench.resume_params(session, replayFrom=NO_CURSOR))
    if not await call.code():
        raise NotJudged("the agent takes a cursor that it cannot know (replay-cursor)", call.sent, call.answer)
    await _none(bench, wire, call)
    if messages := told(bench.trace.updates(session.session_id, after=call.sent)):
        raise Failed("something was replayed", call.sent, messages[0].events[0], call.answer)


@MARKERS.must("marker-not-for-unknown", OUTCOMES, "A resume of a session that does not exist has no marker.")
async def _unknown(bench: Bench) -> None:
    wire = await bench.wire()
    call = await bench.begin_replay(wire, nobody())
    if not await call.code():
        raise NotJudged("the agent resumes a session that does not exist", call.sent, call.answer)
    await _none(bench, wire, call)


@MARKERS.must(
    "marker-not-for-truncated",
    OUTCOMES,
    "A replay that cannot be finished ends in an error, without a marker.",
    Feature.SPOIL,
)
async def _truncated(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    bench.note("the stored session becomes unreadable in its middle")
    with bench.profile.spoiled(session.session_id):
        call = await bench.begin_replay(wire, session)
        if not await call.code():
            marked = bench.trace.updates(session.session_id, after=call.sent, kind=MARKER)
            raise Failed("a replay of a part was answered with a success", call.sent, *marked, call.answer)
        await _none(bench, wire, call)


@MARKERS.must(
    "marker-cancelled",
    OUTCOMES,
    "A resume that is cancelled is answered: with -32800 if the agent cancels it, and a marker means a whole history "
    "all the same.",
)
async def _cancelled(bench: Bench) -> None:
    wire, session, talks = await second_process(bench)
    call, cancelled = await wire.send_cancelled(
        "session/resume", bench.resume_params(session, replayFrom={"type": "start"})
    )
    code = await call.code()
    await wire.barrier()
    if code not in (0, CANCELLED):
        raise Failed(f"the error's code is {code}, not -32800", call.sent, cancelled, call.answer)
    updates = bench.trace.updates(session.session_id, after=call.sent)
    marker = next((event for event in updates if event.kind == MARKER), None)
    if marker is None:
        if not code:
            raise NotJudged("the replay has no marker (marker-once)", call.sent, call.answer)
        return
    assert call.answer is not None
    if marker.index > call.answer.index:
        raise Failed("the marker comes after the answer", call.sent, cancelled, call.answer, marker)
    texts = [message.text for message in told(updates) if message.events[0].index < marker.index]
    if not all(any(token in text for text in texts) for token, _ in talks):
        raise Failed("a marker ends a history that is not whole", call.sent, cancelled, marker, call.answer)


@MARKERS.must(
    "marker-not-active",
    UPDATE,
    "The marker makes no session active: a prompt that is answered before the resume is not inserted.",
)
async def _not_active(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    token = bench.token()
    resume, prompt = await wire.send(
        ("session/resume", bench.resume_params(session, replayFrom={"type": "start"})),
        ("session/prompt", bench.prompt_params(session, bench.profile.plain(token))),
    )
    code = await prompt.code()
    await bench.replayed(session, resume)
    if not code:
        assert prompt.answer is not None
        assert resume.answer is not None
        if prompt.answer.index < resume.answer.index:
            raise Failed("the prompt was inserted before", resume.sent, prompt.sent, prompt.answer, resume.answer)
        await bench.idle(wire, session, prompt)
    elif code != -32002:
        raise Failed(f"the error's code is {code}, not -32002", resume.sent, prompt.sent, prompt.answer)


@MARKERS.should(
    "marker-before-asks",
    BEFORE,
    "Requests of the agent, such as session/request_permission, wait for the marker.",
    Feature.ASK,
)
async def _asks(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    wire.hold_asks = True
    token = bench.token()
    _, prompt = await bench.prompt(wire, session, bench.profile.asking(token), token=token)
    try:
        await wire.until(lambda: wire.open_asks, "the agent asks for no permission", prompt.sent)
    except (Silent, Gone) as error:
        raise NotJudged(str(error), prompt.sent) from error
    replay = await bench.replay(wire, session)
    marker = marker_of(replay)
    early = [event for event in bench.trace.between(replay.call.sent, marker) if event.side == "agent"]
    asks = [event for event in early if event.is_request and event.session_id == session.session_id]
    wire.hold_asks = False
    await wire.answer_asks()
    await bench.idle(wire, session, prompt)
    if asks:
        raise Failed("a request comes before the marker", replay.call.sent, asks[0], marker)
