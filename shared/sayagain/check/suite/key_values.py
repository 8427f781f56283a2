"""What is a key, and what is none."""

from __future__ import annotations

from typing import Any

from sayagain.check.bench import Bench
from sayagain.check.model import Area, Failed, Source
from sayagain.check.suite.table import Table
from sayagain.check.wire import AgentError, Call

__all__ = ["KEY_VALUES"]

KEY_VALUES = Table(Area.KEY_VALUES, Source.KEYS)

PARAMETER = "The idempotencyKey parameter"


async def _refused(bench: Bench, *values: Any) -> None:
    """Each of these is no key: -32602, and nothing is inserted."""
    wire = await bench.wire()
    session = await bench.new(wire)
    for value in values:
        token = bench.token()
        params = bench.prompt_params(session, bench.profile.plain(token))
        call = await wire.begin("session/prompt", {**params, "idempotencyKey": value})
        code = await call.code()
        if not code:
            await bench.idle(wire, session, call)
            raise Failed("the prompt was inserted", call.sent, call.answer)
        if code != -32602:
            raise Failed(f"the error's code is {code}, not -32602", call.sent, call.answer)


async def _two(bench: Bench, one: Any, other: Any, what: str) -> None:
    """Prompts with these keys are two messages."""
    wire = await bench.wire()
    session = await bench.new(wire)
    token = bench.token()
    params = bench.prompt_params(session, bench.profile.plain(token))
    ids: list[str] = []
    calls: list[Call] = []
    for key in (one, other):
        call = await wire.begin("session/prompt", {**params, "idempotencyKey": key})
        calls.append(call)
        ids.append(await bench.inserted(call))
        if ids[0] in ids[1:]:
            raise Failed(what, calls[0].sent, calls[0].answer, call.sent, call.answer)
        await bench.idle(wire, session, call)


async def _taken(bench: Bench, key: str) -> None:
    """This is a key."""
    wire = await bench.wire()
    session = await bench.new(wire)
    params = bench.prompt_params(session, bench.profile.plain(bench.token()), key)
    call = await wire.begin("session/prompt", params)
    try:
        await call.result()
    except AgentError as error:
        raise Failed(str(error), call.sent, call.answer) from error
    await bench.idle(wire, session, call)


@KEY_VALUES.must("key-null", PARAMETER, "null means no key, like its absence: both of two such prompts are inserted.")
async def _null(bench: Bench) -> None:
    await _two(bench, None, None, "the second prompt without a key was taken for the first")


@KEY_VALUES.must("key-case", PARAMETER, "Keys are case-sensitive.")
async def _case(bench: Bench) -> None:
    key = bench.key(bench.token())
    await _two(bench, key, key.upper(), "a key in capitals was taken for the one without")


@KEY_VALUES.must("key-spaces", PARAMETER, "A key is opaque: spaces around it belong to it.")
async def _spaces(bench: Bench) -> None:
    key = bench.key(bench.token())
    await _two(bench, key, f" {key} ", "a key with spaces around it was taken for the one without")


@KEY_VALUES.must("key-normal-form", PARAMETER, "A key is opaque: two spellings of a character in Unicode are two keys.")
async def _normal_form(bench: Bench) -> None:
    key = bench.key(bench.token())
    what = "a key was taken for another one that looks the same"
    await _two(bench, f"{key}\u00e9", f"{key}e\u0301", what)


@KEY_VALUES.must(
    "key-whole", PARAMETER, "All of a key counts: two of 255 characters that differ only in the last are two keys."
)
async def _whole(bench: Bench) -> None:
    key = bench.key(bench.token()).ljust(254, "k")
    await _two(bench, f"{key}1", f"{key}2", "a key was taken for another one that begins the same")


@KEY_VALUES.must("key-empty", PARAMETER, "An empty string is no key: -32602.")
async def _empty(bench: Bench) -> None:
    await _refused(bench, "")


@KEY_VALUES.must("key-too-long", PARAMETER, "A string of 256 characters is no key: -32602.")
async def _too_long(bench: Bench) -> None:
    await _refused(bench, "k" * 256)


@KEY_VALUES.must("key-not-a-string", PARAMETER, "What is not a string is no key: -32602, not taken for an absent one.")
async def _not_a_string(bench: Bench) -> None:
    await _refused(bench, 7, True, {}, ["key"])


@KEY_VALUES.must("key-longest", PARAMETER, "A string of 255 characters is a key.")
async def _longest(bench: Bench) -> None:
    await _taken(bench, bench.key(bench.token()).ljust(255, "k"))


@KEY_VALUES.must("key-characters", PARAMETER, "Characters are counted, not their bytes or UTF-16 units.")
async def _characters(bench: Bench) -> None:
    await _taken(bench, bench.key(bench.token()).ljust(255, "\U0001f511"))
