"""Prompts that are taken back, and work that is stopped."""

from __future__ import annotations

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, Feature, NotJudged, Source
from sayagain.check.sessions import Session
from sayagain.check.suite.table import Table
from sayagain.check.trace import Event
from sayagain.check.wire import AgentError, AgentWire, Call

__all__ = ["CANCELLING"]

CANCELLING = Table(Area.CANCEL, Source.V2)

CANCELLED = -32800
REQUESTS = "Cancellation: $/cancel_request"
HANDLING = "How the Agent handles a keyed prompt"
LIFECYCLE = "Prompt Lifecycle: Cancellation"
CLOSING = "Session Setup: Closing"


async def _held(bench: Bench, wire: AgentWire, session: Session, requests: int = 1) -> tuple[str, str, list[Call]]:
    """Work that goes on, and so many requests for one prompt that is held: both tokens, the requests."""
    work, _, _ = await bench.hold(wire, session)
    token = bench.token()
    params = bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    calls = await wire.send(*[("session/prompt", params)] * requests)
    await wire.barrier()
    if calls[0].answer is not None:
        raise NotJudged("the agent does not hold prompts while it works", calls[0].sent, calls[0].answer)
    return work, token, calls


async def _withdrawn(bench: Bench, wire: AgentWire, session: Session, token: str, *shown: Event | None) -> None:
    """After everything that was asked for is done, the message is not there."""
    await bench.talk(wire, session)
    await bench.never(wire, session, token, *shown)


@CANCELLING.must(
    "cancel-held",
    REQUESTS,
    "$/cancel_request withdraws a held prompt: it is answered with -32800, and never inserted.",
    Feature.HOLD,
)
async def _cancel_held(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, token, [call] = await _held(bench, wire, session)
    cancelled = await wire.cancel(call)
    await wire.barrier()
    bench.release(work)
    code = await call.code()
    if not code:
        raise Failed("the held prompt was inserted later", call.sent, cancelled, call.answer)
    if code != CANCELLED:
        raise Failed(f"the error's code is {code}, not -32800", call.sent, cancelled, call.answer)
    await _withdrawn(bench, wire, session, token, call.sent, cancelled, call.answer)


@CANCELLING.must(
    "cancel-any-attempt",
    HANDLING,
    "$/cancel_request for any of a held prompt's requests withdraws it: every one of them is answered with -32800.",
    Feature.HOLD,
    source=Source.KEYS,
)
async def _any_attempt(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, token, calls = await _held(bench, wire, session, requests=2)
    cancelled = await wire.cancel(calls[1])
    await wire.barrier()
    bench.release(work)
    shown = [calls[0].sent, calls[1].sent, cancelled]
    codes = [await call.code() for call in calls]
    if codes != [CANCELLED, CANCELLED]:
        said = ", ".join("a success" if not code else str(code) for code in codes)
        raise Failed(f"the answers are {said}", *shown, calls[0].answer, calls[1].answer)
    await _withdrawn(bench, wire, session, token, *shown)


@CANCELLING.must(
    "cancel-frees-key",
    HANDLING,
    "A withdrawn prompt leaves its key unused: sent again, it is inserted.",
    Feature.HOLD,
    source=Source.KEYS,
)
async def _frees_key(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, token, [call] = await _held(bench, wire, session)
    cancelled = await wire.cancel(call)
    await wire.barrier()
    bench.release(work)
    if await call.code() != CANCELLED:
        raise NotJudged("the held prompt cannot be withdrawn", call.sent, cancelled, call.answer)
    again = await wire.begin(
        "session/prompt", bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    )
    shown = (call.sent, cancelled, call.answer, again.sent)
    try:
        await again.result()
    except AgentError as error:
        raise Failed(f"the prompt was not inserted: {error}", *shown, again.answer) from error
    await bench.idle(wire, session, again)
    await bench.once(wire, session, token, *shown, again.answer)


@CANCELLING.must(
    "cancel-truth",
    REQUESTS,
    "A prompt that was cancelled at once is answered with the truth: an error and no message, or the message.",
)
async def _truth(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await bench.talk(wire, session)
    token = bench.token()
    call, cancelled = await wire.send_cancelled(
        "session/prompt", bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    )
    if await call.code():
        await _withdrawn(bench, wire, session, token, call.sent, cancelled, call.answer)
    else:
        await bench.idle(wire, session, call)
        await bench.once(wire, session, token, call.sent, cancelled, call.answer)


@CANCELLING.must(
    "session-cancel-held",
    LIFECYCLE,
    "session/cancel covers prompts that are not inserted yet: they are answered with -32800, and never inserted.",
    Feature.HOLD,
)
async def _session_cancel_held(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, token, [call] = await _held(bench, wire, session)
    cancelled = await wire.notify("session/cancel", {"sessionId": session.session_id})
    code = await call.code()
    bench.release(work)
    if code != CANCELLED:
        said = f"answered with {code}" if code else "inserted"
        raise Failed(f"the held prompt was {said}, not answered with -32800", call.sent, cancelled, call.answer)
    await _withdrawn(bench, wire, session, token, call.sent, cancelled, call.answer)


@CANCELLING.must(
    "session-cancel-stops",
    LIFECYCLE,
    "session/cancel ends in a state_update idle whose stopReason is cancelled.",
    Feature.HOLD,
)
async def _session_cancel_stops(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    _, _, call = await bench.hold(wire, session)
    cancelled = await wire.notify("session/cancel", {"sessionId": session.session_id})
    idle = await wire.idle(session.session_id, cancelled)
    if idle.update.get("stopReason") != "cancelled":
        raise Failed(f"the stopReason is {idle.update.get('stopReason')!r}", call.sent, cancelled, idle)


@CANCELLING.must(
    "close-held",
    CLOSING,
    "session/close answers held prompts with -32800, and they are never inserted.",
    Feature.HOLD,
)
async def _close_held(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, token, [call] = await _held(bench, wire, session)
    closed = await wire.begin("session/close", {"sessionId": session.session_id})
    await closed.result()
    code = await call.code()
    bench.release(work)
    shown = (call.sent, closed.sent, closed.answer, call.answer)
    if code != CANCELLED:
        raise Failed(f"the held prompt was {f'answered with {code}' if code else 'inserted'}", *shown)
    await bench.resumed(wire, session)
    await _withdrawn(bench, wire, session, token, *shown)


@CANCELLING.must(
    "close-silent",
    CLOSING,
    "After the answer to session/close the agent writes nothing more for the session.",
    Feature.HOLD,
)
async def _close_silent(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, _, _ = await bench.hold(wire, session)
    closed = await wire.begin("session/close", {"sessionId": session.session_id})
    answer = await closed.settled()
    bench.release(work)
    # Something that takes the agent as long as the rest of that work would.
    await bench.talk(wire, await bench.new(wire))
    for event in bench.trace.between(answer):
        if event.side == "agent" and event.session_id == session.session_id:
            raise Failed("the agent still writes for the session", closed.sent, answer, event)
