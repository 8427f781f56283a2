"""The rules of ACP v2 that keyed prompts and replays stand on."""

from __future__ import annotations

import uuid
from typing import Any, cast

from sayagain.check.bench import Bench
from sayagain.check.form import flaw
from sayagain.check.model import Area, Failed, NotJudged, Source
from sayagain.check.sessions import Session
from sayagain.check.suite.table import Table
from sayagain.check.trace import HISTORY, Event, as_mapping, told
from sayagain.check.wire import AgentWire, Call
from sayagain.legible import excerpt
from sayagain.protocol.versions import PROTOCOL_VERSION

__all__ = ["BASE", "expect", "listed", "nobody"]

BASE = Table(Area.BASE, Source.V2)

VERSIONS = "Initialization: Version Negotiation"
TRANSPORT = "Transports: stdio"
CUSTOM = "Extensibility"
SETUP = "Session Setup"
LIFECYCLE = "Prompt Lifecycle"

BOM = "\ufeff"

STOPS = frozenset({"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "error"})


def nobody() -> Session:
    """A session that no agent has."""
    return Session(str(uuid.uuid4()))


async def expect(call: Call, code: int, what: str) -> None:
    """Fail unless the request is answered with that error."""
    answered = await call.code()
    if answered != code:
        said = f"with {answered}" if answered else "with a success"
        raise Failed(f"{what} is answered {said}, not with {code}", call.sent, call.answer)


@BASE.must("base-version", VERSIONS, "A client that asks for version 2 is answered with version 2.")
async def _version(bench: Bench) -> None:
    await _negotiates(bench, PROTOCOL_VERSION)


@BASE.must("base-newer-version", VERSIONS, "A client that asks for a newer version is answered with the newest it has.")
async def _newer(bench: Bench) -> None:
    await _negotiates(bench, 99)


async def _negotiates(bench: Bench, asked: int) -> None:
    call = await bench.initialize(await bench.connect(), asked)
    assert call.answer is not None
    version = as_mapping(call.answer.message.get("result")).get("protocolVersion")
    if version != PROTOCOL_VERSION and not (isinstance(version, int) and PROTOCOL_VERSION <= version <= asked):
        raise Failed(f"the agent answers with version {excerpt(repr(version))}", call.sent, call.answer)


@BASE.must("base-info", "Initialization: Implementation Information", "The agent tells its name and version.")
async def _info(bench: Bench) -> None:
    wire = await bench.connect()
    call = await bench.initialize(wire)
    info = as_mapping(wire.initialized.get("info"))
    if not all(isinstance(info.get(name), str) for name in ("name", "version")):
        raise Failed("info has no name or no version", call.sent, call.answer)


@BASE.should("base-initialize-first", "Initialization", "A request before initialize is answered with an error.")
async def _first(bench: Bench) -> None:
    wire = await bench.connect()
    call = await wire.begin("session/new", {"cwd": bench.cwd, "mcpServers": []})
    if not await call.code():
        raise Failed("the agent serves a client that it knows nothing of", call.sent, call.answer)


@BASE.must("base-unknown-method", CUSTOM, "A request that the agent does not know is answered with -32601.")
async def _unknown_method(bench: Bench) -> None:
    wire = await bench.wire()
    await expect(await wire.begin("_sayagain/unknown", {}), -32601, "an unknown request")


@BASE.must("base-unknown-notification", CUSTOM, "A notification that the agent does not know is ignored.")
async def _unknown_notification(bench: Bench) -> None:
    wire = await bench.wire()
    sent = await wire.notify("_sayagain/unknown_notification", {})
    answer = await wire.barrier()
    for event in bench.trace.between(sent, answer):
        fields = as_mapping(event.message)
        if event.side == "agent" and "error" in fields and fields.get("id") is None:
            raise Failed("the notification was answered", sent, event)


@BASE.must(
    "base-parse-error", TRANSPORT, "A line that is no JSON is answered with -32700, and the connection lives on."
)
async def _parse_error(bench: Bench) -> None:
    wire = await bench.wire()
    line = '{"jsonrpc": "2.0", "id": 1, "method":'
    sent = bench.trace.add(wire.connection, "client", line)
    await wire.raw(line.encode() + b"\n")
    answer = await wire.barrier()
    errors = [as_mapping(as_mapping(event.message).get("error")) for event in bench.trace.between(sent, answer)]
    if not any(error.get("code") == -32700 for error in errors):
        raise Failed("there is no error -32700", sent, answer)


@BASE.must("base-clean-output", TRANSPORT, "Standard output carries JSON-RPC messages and nothing else.", over=True)
async def _clean(bench: Bench) -> None:
    for event in bench.trace.events:
        if event.side == "agent" and not event.is_object:
            raise Failed("the agent writes what is no message", event)
        if event.side == "agent" and event.text.startswith(BOM):
            raise Failed("the agent writes a byte order mark", event)


@BASE.must(
    "base-message-form",
    TRANSPORT,
    'Every message has "jsonrpc": "2.0", an id that is a string or an integer where one belongs, and what makes it a '
    "request, a notification, a result or an error.",
    over=True,
)
async def _form(bench: Bench) -> None:
    for event in bench.trace.events:
        if event.side == "agent" and event.is_object and (wrong := flaw(event.message)):
            raise Failed(f"the message is no JSON-RPC 2.0: {wrong}", event)


@BASE.must("base-one-answer", TRANSPORT, "Every request is answered once, and nothing is answered unasked.", over=True)
async def _one_answer(bench: Bench) -> None:
    asked: dict[tuple[int, str | int | None], Event] = {}
    answered: dict[tuple[int, str | int | None], Event] = {}
    for event in bench.trace.events:
        if event.call[1] is None:
            continue
        asking = "method" in as_mapping(event.message)
        if event.side == "client" and asking:
            asked[event.call] = event
        elif event.side == "agent" and not asking:
            if event.call not in asked:
                raise Failed("the agent answers what nobody asked", event)
            if event.call in answered:
                raise Failed("the agent answers twice", asked[event.call], answered[event.call], event)
            answered[event.call] = event


@BASE.should("base-ends", TRANSPORT, "The agent ends when its input is closed.", over=True)
async def _ends(bench: Bench) -> None:
    if bench.overstayed is not None:
        raise Failed("the agent goes on, and has to be killed", bench.overstayed)
    if not bench.ended:
        raise NotJudged("no connection was closed in order")


@BASE.must(
    "base-message-ids", f"{LIFECYCLE}: Message IDs", "Every update of a message carries its messageId.", over=True
)
async def _message_ids(bench: Bench) -> None:
    for event in bench.trace.updates():
        if event.kind in HISTORY and not isinstance(event.update.get("messageId"), str):
            raise Failed("the update has no messageId", event)


@BASE.must("session-new", SETUP, "session/new is answered with a sessionId.")
async def _new(bench: Bench) -> None:
    wire = await bench.wire()
    call = await wire.begin("session/new", {"cwd": bench.cwd, "mcpServers": []})
    session_id = (await call.result()).get("sessionId")
    if not isinstance(session_id, str):
        raise Failed("there is no sessionId", call.sent, call.answer)
    bench.adopt(Session(session_id))


@BASE.must("session-ids-differ", f"{SETUP}: Creating a Session", "Each session has its own id, also after a restart.")
async def _ids_differ(bench: Bench) -> None:
    wire = await bench.wire()
    calls = [await _created(bench, wire), await _created(bench, wire)]
    await bench.end()
    calls.append(await _created(bench, await bench.wire()))
    ids = [(await call.result()).get("sessionId") for call in calls]
    for place, (call, session_id) in enumerate(zip(calls, ids, strict=True)):
        if session_id in ids[:place]:
            first = calls[ids.index(session_id)]
            raise Failed("two sessions have the same sessionId", first.sent, first.answer, call.sent, call.answer)


async def _created(bench: Bench, wire: AgentWire) -> Call:
    call = await wire.begin("session/new", {"cwd": bench.cwd, "mcpServers": []})
    session_id = (await call.result()).get("sessionId")
    if isinstance(session_id, str):
        bench.adopt(Session(session_id))
    return call


@BASE.must("prompt-inserted", LIFECYCLE, "A prompt is answered with a messageId, and its work comes to an end.")
async def _inserted(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    call = await wire.begin("session/prompt", bench.prompt_params(session, bench.profile.plain(bench.token())))
    if not isinstance((await call.result()).get("messageId"), str):
        raise Failed("there is no messageId", call.sent, call.answer)
    await wire.idle(session.session_id, call.sent)


@BASE.must("session-resume", f"{SETUP}: Resuming", "A new process resumes a session of an old one, with its history.")
async def _resume(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await bench.talk(wire, session)
    await bench.end()
    wire = await bench.wire()
    call = await wire.begin("session/resume", bench.resume_params(session, replayFrom={"type": "start"}))
    await call.result()
    bench.adopt(session)


@BASE.must("session-relative-cwd", f"{SETUP}: Working Directory", "A relative cwd is answered with -32602.")
async def _relative(bench: Bench) -> None:
    wire = await bench.wire()
    await expect(await wire.begin("session/new", {"cwd": "here", "mcpServers": []}), -32602, "a relative cwd")


@BASE.must("session-unknown-prompt", SETUP, "A prompt for a session that is not active is answered with -32002.")
async def _unknown_prompt(bench: Bench) -> None:
    wire = await bench.wire()
    params = bench.prompt_params(nobody(), bench.profile.plain(bench.token()))
    await expect(await wire.begin("session/prompt", params), -32002, "a prompt for an unknown session")


@BASE.must("session-unknown-resume", f"{SETUP}: Resuming", "Resuming a session that does not exist: -32002.")
async def _unknown_resume(bench: Bench) -> None:
    wire = await bench.wire()
    call = await wire.begin("session/resume", bench.resume_params(nobody()))
    await expect(call, -32002, "a resume of an unknown session")


@BASE.must("session-closed-prompt", f"{SETUP}: Closing", "A closed session is not active: a prompt is -32002.")
async def _closed_prompt(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await bench.talk(wire, session)
    await wire.request("session/close", {"sessionId": session.session_id})
    params = bench.prompt_params(session, bench.profile.plain(bench.token()))
    await expect(await wire.begin("session/prompt", params), -32002, "a prompt for a closed session")


@BASE.should("session-close-again", f"{SETUP}: Closing", "Closing a session that is not active succeeds.")
async def _close_again(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await wire.request("session/close", {"sessionId": session.session_id})
    await wire.request("session/close", {"sessionId": session.session_id})


@BASE.must("session-delete-again", "Session Delete", "Deleting a session that is not there succeeds.")
async def _delete_again(bench: Bench) -> None:
    wire = await bench.wire()
    if not bench.offers(wire, "delete"):
        raise NotJudged("the agent does not offer session/delete")
    await wire.request("session/delete", {"sessionId": nobody().session_id})


@BASE.must("session-listed", "Session List", "A session with a stored prompt is in session/list.")
async def _listed(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await bench.talk(wire, session)
    call = await wire.begin("session/list", {"cwd": bench.cwd})
    if session.session_id not in listed(await call.result()):
        raise Failed("the session is not in the list of its directory", call.sent, call.answer)


def listed(result: dict[str, Any]) -> list[Any]:
    """The ids of the sessions in a result of ``session/list``."""
    rows = result.get("sessions")
    return [as_mapping(row).get("sessionId") for row in cast("list[Any]", rows)] if isinstance(rows, list) else []


@BASE.must("prompt-answer", LIFECYCLE, "A prompt is answered with the messageId under which its message is reported.")
async def _answer(bench: Bench) -> None:
    wire, session, message_id, call = await _prompted(bench)
    await bench.idle(wire, session, call)
    messages = told(bench.trace.updates(session.session_id, after=call.sent))
    if not any(message.role == "user_message" and message.message_id == message_id for message in messages):
        raise Failed("no message of that id is reported", call.sent, call.answer)


@BASE.must("prompt-idle", f"{LIFECYCLE}: State", "Work is reported as running, then idle with a stopReason.")
async def _idle(bench: Bench) -> None:
    wire, session, _, call = await _prompted(bench)
    idle = await wire.idle(session.session_id, call.sent)
    states = bench.trace.updates(session.session_id, after=call.sent, before=idle, kind="state_update")
    if not any(event.update.get("state") == "running" for event in states):
        raise Failed("there was no state_update running", call.sent, idle)
    if not isinstance(idle.update.get("stopReason"), str):
        raise Failed("the idle has no stopReason", call.sent, idle)


async def _prompted(bench: Bench) -> tuple[AgentWire, Session, str, Call]:
    wire = await bench.wire()
    session = await bench.new(wire)
    message_id, call = await bench.prompt(wire, session)
    return wire, session, message_id, call


@BASE.must(
    "prompt-stop-reason",
    f"{LIFECYCLE}: Stop Reasons",
    "A stopReason is one that ACP names, or begins with _.",
    over=True,
)
async def _stop_reason(bench: Bench) -> None:
    for event in bench.trace.updates(kind="state_update"):
        reason = event.update.get("stopReason")
        if reason is not None and not (isinstance(reason, str) and (reason in STOPS or reason.startswith("_"))):
            raise Failed(f"the stopReason is {excerpt(repr(reason))}", event)


@BASE.must("prompt-ids-differ", f"{LIFECYCLE}: Message IDs", "Two prompts without keys are two messages.")
async def _differ(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    first, one = await bench.prompt(wire, session, token=token)
    await bench.idle(wire, session, one)
    second, other = await bench.prompt(wire, session, token=token)
    if first == second:
        raise Failed("both have the same messageId", one.sent, one.answer, other.sent, other.answer)
    await bench.idle(wire, session, other)


@BASE.must("prompt-unknown-block", f"{LIFECYCLE}: Content", "A block of a type that the agent does not take is -32602.")
async def _unknown_block(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    params = {"sessionId": session.session_id, "prompt": [{"type": "_sayagain_check_no_such_block"}]}
    await expect(await wire.begin("session/prompt", params), -32602, "a block of an unknown type")
