"""Keys are between the client and the agent: nobody else learns of one."""

from __future__ import annotations

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, NotJudged, Source
from sayagain.check.suite.keys import HANDLING, stored
from sayagain.check.suite.table import Table
from sayagain.check.trace import Event

__all__ = ["PRIVACY"]

PRIVACY = Table(Area.KEYS, Source.KEYS)


@PRIVACY.must("key-not-listed", HANDLING, "A session with keyed prompts is listed without their keys.")
async def _not_listed(bench: Bench) -> None:
    wire = await bench.wire()
    session = await bench.new(wire)
    await stored(bench, wire, session)
    call = await wire.begin("session/list", {"cwd": bench.cwd})
    _no_key_in(bench, await call.settled())


@PRIVACY.must(
    "key-private",
    HANDLING,
    "Keys stay private: no update, no replay, no error, nothing that the agent writes has one in it.",
    over=True,
)
async def _private(bench: Bench) -> None:
    if not bench.keys:
        raise NotJudged("no key was sent")
    # For lists there is a check of its own.
    asked = [event for event in bench.trace.events if event.side == "client" and event.method == "session/list"]
    lists = {event.call for event in asked}
    for event in bench.trace.events:
        if event.side == "agent" and (event.method is not None or event.call not in lists):
            _no_key_in(bench, event)


def _no_key_in(bench: Bench, event: Event) -> None:
    if key := next((key for key in bench.keys if key in event.text), None):
        raise Failed("the agent repeats a key", _with_key(bench, event, key), event)


def _with_key(bench: Bench, end: Event, key: str) -> Event | None:
    sent = (event for event in bench.trace.between(None, end) if event.side == "client" and key in event.text)
    return next(sent, None)
