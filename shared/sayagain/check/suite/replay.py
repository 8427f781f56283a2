"""What a resume tells, with and without replay."""

from __future__ import annotations

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, Feature, NotJudged, Source
from sayagain.check.profiles import STREAMED
from sayagain.check.sessions import Session
from sayagain.check.suite.base import expect
from sayagain.check.suite.table import Table
from sayagain.check.trace import Event, Message, told
from sayagain.check.wire import AgentWire, Call, Gone, Silent

__all__ = ["NO_CURSOR", "REPLAY", "compacted", "second_process", "streaming", "two_talks"]

REPLAY = Table(Area.REPLAY, Source.V2)

RESUMING = "Session Setup: Resuming"
CONTENTS = "Session Setup: Replay Contents"
CURRENT = "Session Setup: Current-State Synchronization"

NO_CURSOR = {"type": "_sayagain_check_no_such_cursor"}


async def two_talks(bench: Bench) -> tuple[Session, list[tuple[str, str]]]:
    """A session with two prompts that are answered; the token and id of each."""
    wire = await bench.wire()
    session = await bench.new(wire)
    talks: list[tuple[str, str]] = []
    for _ in range(2):
        token = bench.token()
        talks.append((token, await bench.talk(wire, session, token=token)))
    return session, talks


async def second_process(bench: Bench) -> tuple[AgentWire, Session, list[tuple[str, str]]]:
    """Such a session, which a new process of the agent has not resumed yet."""
    session, talks = await two_talks(bench)
    await bench.end()
    return await bench.wire(), session, talks


async def streaming(bench: Bench) -> tuple[AgentWire, Session, str, Call]:
    """A session whose answer is half written: the connection, the session, the prompt's token and request."""
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    _, call = await bench.prompt(wire, session, bench.profile.streaming(token), token=token)
    half = len(STREAMED) // 2
    bench.profile.step(token, half)
    seen = "".join(STREAMED[:half]).strip()

    def written() -> bool:
        messages = told(bench.trace.updates(session.session_id, after=call.sent))
        return any(message.role == "agent_message" and seen in message.text for message in messages)

    try:
        await wire.until(written, "the agent's answer does not come piece by piece", call.sent)
    except (Silent, Gone) as error:
        bench.profile.step(token, len(STREAMED))
        raise NotJudged(str(error), call.sent) from error
    return wire, session, token, call


@REPLAY.must("replay-whole", CONTENTS, "A replay tells every retained message, in order, each as one message.")
async def _whole(bench: Bench) -> None:
    wire, session, talks = await second_process(bench)
    replay = await bench.replay(wire, session)
    messages = [message for message in replay.messages() if message.text]
    users = [message for message in messages if message.role == "user_message"]
    for token, _ in talks:
        found = [message for message in users if token in message.text]
        if len(found) != 1:
            raise Failed(f"the prompt about {token} is told {len(found)} times", replay.call.sent, replay.answer)
    roles = [message.role for message in messages]
    if roles != ["user_message", "agent_message"] * len(talks) or talks[0][0] not in users[0].text:
        shown = [message.events[0] for message in messages]
        raise Failed(f"the order of the messages is {', '.join(roles)}", replay.call.sent, *shown)


@REPLAY.must("replay-ids", RESUMING, "A retained user message keeps the messageId that its prompt was answered with.")
async def _ids(bench: Bench) -> None:
    wire, session, talks = await second_process(bench)
    replay = await bench.replay(wire, session)
    for token, message_id in talks:
        for message in replay.messages():
            if message.role == "user_message" and token in message.text and message.message_id != message_id:
                raise Failed(f"the message was {message_id} when it was inserted", message.events[0])


@REPLAY.must(
    "replay-ids-held",
    RESUMING,
    "So do messages that were sent while other work went on: each is told by itself, under the id of its answer.",
    Feature.HOLD,
)
async def _ids_held(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, _, _ = await bench.hold(wire, session)
    tokens = [bench.token(), bench.token()]
    prompts = [("session/prompt", bench.prompt_params(session, bench.profile.plain(token))) for token in tokens]
    calls = await wire.send(*prompts)
    await wire.barrier()
    bench.release(work)
    ids = [await bench.inserted(call) for call in calls]
    await bench.talk(wire, session)
    await bench.end()
    replay = await bench.replay(await bench.wire(), session)
    users = [message for message in replay.messages() if message.role == "user_message"]
    for token, message_id, call in zip(tokens, ids, calls, strict=True):
        found = [message for message in users if token in message.text]
        if [message.message_id for message in found] != [message_id]:
            shown = [message.events[-1] for message in found]
            told_as = ", ".join(message.message_id for message in found) or "not at all"
            reason = f"the message about {token} was {message_id} when it was inserted, and is told as {told_as}"
            raise Failed(reason, call.sent, call.answer, replay.call.sent, *shown)


@REPLAY.must("replay-same", RESUMING, "Two replays tell the same messages under the same ids.")
async def _same(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    first, second = await bench.replay(wire, session), await bench.replay(wire, session)
    if _texts(first.messages()) != _texts(second.messages()):
        raise Failed("the second replay tells other messages", first.call.sent, second.call.sent)


def _texts(messages: list[Message]) -> list[tuple[str, str, str]]:
    return [(message.role, message.message_id, message.text) for message in messages]


@REPLAY.must(
    "replay-clears",
    CONTENTS,
    "A message that is replayed in chunks begins with an update of it whose content is [], so that a client that has "
    "it does not show it twice.",
)
async def _clears(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    replay = await bench.replay(wire, session)
    for message in replay.messages():
        first = message.events[0]
        if first.kind.endswith("_chunk"):
            raise Failed("a replayed message begins with a chunk", replay.call.sent, first)


@REPLAY.should(
    "replay-compacted",
    CONTENTS,
    "A compaction is for the model: what was said before it is still told to the user, and the summary is not told as "
    "a message of theirs.",
    Feature.COMPACT,
)
async def _compacted(bench: Bench) -> None:
    wire, session, talks, compaction = await compacted(bench)
    call = await bench.begin_replay(wire, session)
    await call.result()
    replay = await bench.replayed(session, call)
    users = [message for message in replay.messages() if message.role == "user_message"]
    for token, _ in talks:
        if not any(token in message.text for message in users):
            shown = [message.events[-1] for message in users]
            raise Failed("what was said before the compaction is gone", compaction.sent, replay.call.sent, *shown)
    strangers = [m for m in users if m.text.strip() and not any(t in m.text for t, _ in talks)]
    strangers = [m for m in strangers if bench.profile.compacting() not in m.text]
    if strangers:
        shown = [message.events[-1] for message in strangers]
        raise Failed("the user is told to have said what they did not", compaction.sent, replay.call.sent, *shown)


async def compacted(bench: Bench) -> tuple[AgentWire, Session, list[tuple[str, str]], Call]:
    """A session with two keyed prompts and a compaction after them, which a new process has not resumed yet."""
    wire = await bench.wire()
    session = await bench.new(wire)
    talks: list[tuple[str, str]] = []
    for _ in range(2):
        token = bench.token()
        talks.append((token, await bench.talk(wire, session, key=bench.key(token), token=token)))
    _, compaction = await bench.prompt(wire, session, bench.profile.compacting())
    await bench.idle(wire, session, compaction)
    await bench.end()
    return await bench.wire(), session, talks, compaction


@REPLAY.must("replay-runs-nothing", CONTENTS, "A replay runs nothing again.", Feature.COUNT)
async def _runs_nothing(bench: Bench) -> None:
    wire, session, talks = await second_process(bench)
    replay = await bench.replay(wire, session)
    await bench.talk(wire, session)
    for token, _ in talks:
        if (count := bench.profile.count(token)) > 1:
            raise Failed(f"the model was asked {count} times about {token}", replay.call.sent, replay.answer)


@REPLAY.must("replay-cursor", RESUMING, "A cursor of a type that the agent does not know is answered with -32602.")
async def _cursor(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await bench.talk(wire, session)
    call = await wire.begin("session/resume", bench.resume_params(session, replayFrom=NO_CURSOR))
    await expect(call, -32602, "an unknown cursor")


@REPLAY.must("resume-no-history", RESUMING, "A resume without replayFrom tells no history.")
async def _no_history(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    call = await wire.begin("session/resume", bench.resume_params(session))
    await call.result()
    if messages := told(bench.trace.updates(session.session_id, after=call.sent, before=call.answer)):
        raise Failed("the resume told messages", call.sent, messages[0].events[0], call.answer)


@REPLAY.must("resume-state", CURRENT, "A resume without replay tells the current state before its answer.")
async def _state(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    call = await wire.begin("session/resume", bench.resume_params(session))
    await call.result()
    if not bench.trace.updates(session.session_id, after=call.sent, before=call.answer, kind="state_update"):
        raise Failed("there is no state_update before the answer", call.sent, call.answer)


@REPLAY.must(
    "replay-state", CURRENT, "A replaying resume tells the current state after the history, before its answer."
)
async def _replay_state(bench: Bench) -> None:
    wire, session, _ = await second_process(bench)
    replay = await bench.replay(wire, session)
    history = [event for message in replay.messages() for event in message.events]
    last = max(history, key=lambda event: event.index, default=replay.call.sent)
    after = replay.marker if replay.marker is not None and replay.marker.index > last.index else last
    if not bench.trace.updates(session.session_id, after=after, before=replay.answer, kind="state_update"):
        raise Failed("there is no state_update after the history", after, replay.answer)


@REPLAY.must(
    "replay-of-streaming",
    "Only history before the marker",
    "A message that is being written when its session is replayed is split at a cut: the client has all of its text "
    "in the end, once.",
    Feature.STREAM,
    source=Source.MARKER,
)
async def _streaming(bench: Bench) -> None:
    wire, session, token, prompt = await streaming(bench)
    call = await bench.begin_replay(wire, session)
    try:
        await wire.until(lambda: call.answer or _marked(bench, session, call), "no end of the replay")
    finally:
        bench.note("the model goes on")
        bench.profile.step(token, len(STREAMED))
    replay = await bench.replayed(session, call)
    idle = await bench.idle(wire, session, prompt)
    messages = told(bench.trace.updates(session.session_id, after=replay.call.sent))
    answers = [message for message in messages if message.role == "agent_message"]
    text = "".join(message.text for message in answers)
    whole = "".join(STREAMED).strip()
    if text.strip() != whole:
        shown = [event for message in answers for event in message.events]
        raise Failed(f"the client has {text.strip()!r}, not {whole!r}", call.sent, *shown[:12], idle)


def _marked(bench: Bench, session: Session, call: Call) -> list[Event]:
    return bench.trace.updates(session.session_id, after=call.sent, kind="replay_complete")
