"""Keyed prompts: the traces that the spec plans for conformance suites."""

from __future__ import annotations

import anyio

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, Feature, NotJudged, Source
from sayagain.check.sessions import Session
from sayagain.check.suite.replay import compacted
from sayagain.check.suite.table import Table
from sayagain.check.trace import Event, as_mapping, told
from sayagain.check.wire import AgentError, AgentWire, Call

__all__ = ["HANDLING", "KEYS", "stored"]

KEYS = Table(Area.KEYS, Source.KEYS)

HANDLING = "How the Agent handles a keyed prompt"
LASTING = "How long a key lasts"


async def _retry(bench: Bench, wire: AgentWire, session: Session, token: str, first: tuple[str, Call]) -> Call:
    """Send the plain prompt of that token again: answered with the first id, and in the history once."""
    params = bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    again = await wire.begin("session/prompt", params)
    await bench.same(first[1], again, first[0])
    await bench.once(wire, session, token, first[1].sent, again.sent)
    return again


async def stored(bench: Bench, wire: AgentWire, session: Session) -> tuple[str, tuple[str, Call]]:
    """A keyed prompt whose work is over: its token, its id and request."""
    token = bench.token()
    first = await bench.prompt(wire, session, key=bench.key(token), token=token)
    await bench.idle(wire, session, first[1])
    return token, first


@KEYS.must(
    "key-retry",
    HANDLING,
    "A prompt that is sent again with its key on the same connection is inserted once, and answered with the messageId "
    "of the first.",
)
async def _same_connection(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token, first = await stored(bench, wire, session)
    await _retry(bench, wire, session, token, first)


@KEYS.must(
    "key-no-second-work",
    HANDLING,
    "A retry starts no second round of work: no state, no answer, no request to a model.",
)
async def _no_second_work(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token, first = await stored(bench, wire, session)
    again = await wire.begin(
        "session/prompt", bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    )
    if as_mapping((await again.settled()).message.get("result")).get("messageId") != first[0]:
        raise NotJudged("the retry is taken for another prompt (key-retry)", first[1].sent, again.sent, again.answer)
    # Another prompt comes after whatever the retry may have set off.
    after = await wire.begin("session/prompt", bench.prompt_params(session, bench.profile.plain(bench.token())))
    await bench.inserted(after)
    await bench.idle(wire, session, after)
    assert after.answer is not None
    for event in bench.trace.updates(session.session_id, after=again.sent, before=after.sent):
        if event.kind == "state_update" and event.update.get("state") == "running":
            raise Failed("the retry started work", first[1].sent, again.sent, event, again.answer)
    if Feature.COUNT in bench.profile.features and (count := bench.profile.count(token)) > 1:
        raise Failed(f"the model was asked {count} times to work on it", first[1].sent, again.sent, again.answer)


@KEYS.must(
    "key-not-told-again",
    HANDLING,
    "A retry is answered with the messageId and nothing else: its message is not reported again.",
)
async def _not_told_again(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token, first = await stored(bench, wire, session)
    params = bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    again = await wire.begin("session/prompt", params)
    if as_mapping((await again.settled()).message.get("result")).get("messageId") != first[0]:
        raise NotJudged("the retry is taken for another prompt (key-retry)", first[1].sent, again.sent, again.answer)
    barrier = await wire.barrier()
    for message in told(bench.trace.updates(session.session_id, after=again.sent, before=barrier)):
        if message.message_id == first[0]:
            raise Failed("the message is reported again", first[1].sent, again.sent, message.events[0], again.answer)


@KEYS.must(
    "key-concurrent", HANDLING, "Two requests with one key in one write insert one message; both get its messageId."
)
async def _concurrent(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    params = bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    first, again = await wire.send(("session/prompt", params), ("session/prompt", params))
    message_id = await bench.inserted(first)
    await bench.same(first, again, message_id)
    await bench.idle(wire, session, first)
    await bench.once(wire, session, token, first.sent, again.sent)


@KEYS.must(
    "key-reconnected",
    LASTING,
    "The key holds across connections: after the connection ended and the session is resumed on a new one.",
)
async def _reconnected(bench: Bench) -> None:
    await _again_elsewhere(bench, killed=False)


@KEYS.must("key-restarted", LASTING, "The key holds across restarts of the agent, also after it was killed.")
async def _restarted(bench: Bench) -> None:
    await _again_elsewhere(bench, killed=True)


async def _again_elsewhere(bench: Bench, *, killed: bool) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token, first = await stored(bench, wire, session)
    await (bench.kill() if killed else bench.end())
    wire = await bench.wire()
    await bench.resumed(wire, session)
    await _retry(bench, wire, session, token, first)


@KEYS.must(
    "key-killed-in-work",
    LASTING,
    "A prompt that was answered is known after the agent was killed in the middle of its work.",
    Feature.HOLD,
)
async def _killed_in_work(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await bench.talk(wire, session)
    token = bench.token()
    content = bench.profile.holding(token)
    params = bench.prompt_params(session, content, bench.key(token))
    first = await wire.begin("session/prompt", params)
    message_id = await bench.inserted(first)
    await bench.kill()
    bench.release(token)
    wire = await bench.wire()
    await bench.resumed(wire, session)
    again = await wire.begin("session/prompt", params)
    await bench.same(first, again, message_id)
    await bench.once(wire, session, token, first.sent, again.sent)


@KEYS.must(
    "key-running",
    HANDLING,
    "A retry while the prompt's own work goes on is answered with its messageId, and does not wait for the end.",
    Feature.HOLD,
)
async def _running(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    content, key = bench.profile.holding(token), bench.key(token)
    first = await wire.begin("session/prompt", bench.prompt_params(session, content, key))
    message_id = await bench.inserted(first)
    again = await wire.begin("session/prompt", bench.prompt_params(session, content, key))
    with anyio.move_on_after(bench.profile.patience / 6):
        await again.settled()
    bench.release(token)
    await bench.same(first, again, message_id)
    idle = await bench.idle(wire, session, first)
    if again.answer is not None and again.answer.index > idle.index:
        raise Failed(
            "the retry was answered only when the work had ended", first.answer, again.sent, idle, again.answer
        )
    await bench.once(wire, session, token, first.sent, again.sent)


@KEYS.must(
    "key-held",
    HANDLING,
    "A retry while the prompt is held waits with it: both get the one messageId.",
    Feature.HOLD,
)
async def _held(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    work, _, _ = await bench.hold(wire, session)
    token = bench.token()
    params = bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    first = await wire.begin("session/prompt", params)
    await wire.barrier()
    again = await wire.begin("session/prompt", params)
    await wire.barrier()
    bench.release(work)
    message_id = await bench.inserted(first)
    await bench.same(first, again, message_id)
    await bench.once(wire, session, token, first.sent, again.sent)


@KEYS.must(
    "key-inserted-during-work",
    HANDLING,
    "A prompt that was sent while other work went on is known like any other once all work is over.",
    Feature.HOLD,
)
async def _during_work(bench: Bench) -> None:
    wire, session, token, first = await _two_during_work(bench)
    await _retry(bench, wire, session, token, first)


@KEYS.must(
    "key-inserted-during-work-restarted",
    LASTING,
    "A prompt that was sent while other work went on is known after a restart of the agent.",
    Feature.HOLD,
)
async def _during_work_restarted(bench: Bench) -> None:
    _, session, token, first = await _two_during_work(bench)
    await bench.kill()
    wire = await bench.wire()
    await bench.resumed(wire, session)
    await _retry(bench, wire, session, token, first)


async def _two_during_work(bench: Bench) -> tuple[AgentWire, Session, str, tuple[str, Call]]:
    """Two prompts, sent while work goes on, of which the first is the one to be tried again."""
    wire = await bench.wire()
    session = await bench.new(wire)
    work, _, _ = await bench.hold(wire, session)
    token, other = bench.token(), bench.token()
    first, second = await wire.send(
        ("session/prompt", bench.prompt_params(session, bench.profile.plain(token), bench.key(token))),
        ("session/prompt", bench.prompt_params(session, bench.profile.plain(other), bench.key(other))),
    )
    await wire.barrier()
    bench.release(work)
    message_id = await bench.inserted(first)
    await bench.inserted(second)
    await bench.idle(wire, session, second)
    return wire, session, token, (message_id, first)


@KEYS.must(
    "key-compacted",
    LASTING,
    "A message that is still replayed is known by its key, also from before a compaction and after a restart.",
    Feature.COMPACT,
)
async def _compacted(bench: Bench) -> None:
    wire, session, talks, compaction = await compacted(bench)
    token, message_id = talks[0]
    if not await bench.copies(wire, session, token):
        raise NotJudged("the message from before the compaction is not replayed (replay-compacted)", compaction.sent)
    again = await wire.begin(
        "session/prompt", bench.prompt_params(session, bench.profile.plain(token), bench.key(token))
    )
    await bench.same(compaction, again, message_id)
    await bench.once(wire, session, token, compaction.sent, again.sent)


@KEYS.must(
    "key-after-error",
    HANDLING,
    "An error leaves the key unused: the prompt can be sent with it again, and is inserted.",
)
async def _after_error(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    key = bench.key(token)
    bad = {**bench.prompt_params(session, "", key), "prompt": [{"type": "_sayagain_check_no_such_block"}]}
    refused = await wire.begin("session/prompt", bad)
    if not await refused.code():
        raise NotJudged("the agent takes blocks of a type that it cannot know", refused.sent, refused.answer)
    again = await wire.begin("session/prompt", bench.prompt_params(session, bench.profile.plain(token), key))
    try:
        await again.result()
    except AgentError as error:
        raise Failed(
            f"the key was used up by an error: {error}", refused.sent, refused.answer, again.sent, again.answer
        ) from error
    await bench.idle(wire, session, again)
    await bench.once(wire, session, token, refused.sent, refused.answer, again.sent)


@KEYS.must("key-other-session", LASTING, "The same key in another session names another prompt, which is inserted.")
async def _other_session(bench: Bench) -> None:
    wire = await bench.wire()
    one, other = await bench.new(wire), await bench.new(wire)
    token, there = bench.token(), bench.token()
    key = bench.key(token)
    first, call = await bench.prompt(wire, one, key=key, token=token)
    await bench.idle(wire, one, call)
    again = await wire.begin("session/prompt", bench.prompt_params(other, bench.profile.plain(there), key))
    await _inserted_as_new(bench, wire, other, there, call, again, first)


@KEYS.must("key-fork", LASTING, "The same key in a fork of the session names another prompt, which is inserted.")
async def _fork(bench: Bench) -> None:
    wire = await bench.wire()
    if not bench.offers(wire, "fork"):
        raise NotJudged("the agent does not offer session/fork")
    session = await bench.new(wire)
    token, there = bench.token(), bench.token()
    key = bench.key(token)
    first, call = await bench.prompt(wire, session, key=key, token=token)
    await bench.idle(wire, session, call)
    forked = await wire.begin("session/fork", bench.resume_params(session))
    try:
        fork = Session(str((await forked.result())["sessionId"]))
    except (AgentError, KeyError) as error:
        raise NotJudged(f"the session cannot be forked: {error}", forked.sent, forked.answer) from error
    bench.adopt(fork)
    again = await wire.begin("session/prompt", bench.prompt_params(fork, bench.profile.plain(there), key))
    await _inserted_as_new(bench, wire, fork, there, call, again, first)


async def _inserted_as_new(
    bench: Bench, wire: AgentWire, session: Session, token: str, first: Call, again: Call, message_id: str
) -> None:
    shown: list[Event | None] = [first.sent, first.answer, again.sent]
    try:
        answered = (await again.result()).get("messageId")
    except AgentError as error:
        raise Failed(f"the prompt was not inserted: {error}", *shown, again.answer) from error
    if answered == message_id:
        raise Failed("the prompt was answered with the other session's messageId", *shown, again.answer)
    await bench.idle(wire, session, again)
    await bench.once(wire, session, token, *shown, again.answer)


@KEYS.must(
    "key-different-prompt",
    HANDLING,
    "A recorded key with another prompt inserts nothing: it is answered as a retry, or with -32602.",
)
async def _different(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token, first = await stored(bench, wire, session)
    other = bench.token()
    again = await wire.begin(
        "session/prompt", bench.prompt_params(session, bench.profile.plain(other), bench.key(token))
    )
    shown = (first[1].sent, first[1].answer, again.sent)
    try:
        answered = (await again.result()).get("messageId")
    except AgentError as error:
        if error.code != -32602:
            raise Failed(f"another prompt under the key: {error}", *shown, again.answer) from error
    else:
        if answered != first[0]:
            raise Failed("another prompt under the key got a messageId of its own", *shown, again.answer)
    await bench.never(wire, session, other, *shown, again.answer)


@KEYS.must(
    "key-stays-recorded", HANDLING, "After another prompt came under the key, the key still stands for the first one."
)
async def _stays(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token, first = await stored(bench, wire, session)
    other = bench.prompt_params(session, bench.profile.plain(bench.token()), bench.key(token))
    await (await wire.begin("session/prompt", other)).settled()
    await _retry(bench, wire, session, token, first)
