"""Stored Codex sessions of a given size: one real turn, made by the Codex under measurement, many times over.

So every row is of that version's own making, and only ids, times and places in the order are ours.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from uuid6 import uuid7

from bench.contestants import Contestant
from bench.transcripts import known_key
from sayagain.identity import derive_message_id

__all__ = ["place", "stored_session"]

_PROMPT = "Say it a first and a second time"
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_ITEM = re.compile(rb"(?<=\")(msg|resp)_[0-9a-f]{10,20}(?=\")")
_ORDINAL = re.compile(rb'"ordinal":\d+')


def stored_session(contestant: Contestant, turns: int) -> tuple[str, Path]:
    """A session of so many turns, generated once for all contestants; its id and the file."""
    folder = contestant.folder.parent / "rollouts"
    for path in folder.glob(f"{turns}/rollout-*.jsonl"):
        return path.stem[-36:], path
    session_id, real = _real_session(contestant)
    path = folder / str(turns) / real.name
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for line in _lines(real.read_bytes().splitlines(keepends=True), session_id, turns):
            file.write(line)
    part.rename(path)
    real.unlink()
    return session_id, path


def place(contestant: Contestant, turns: int, *, warm: bool) -> str:
    """Put a fresh copy into the contestant's CODEX_HOME; the session's id.

    ``warm``: Codex has read it before, so that its own index of the session exists. Otherwise none of its databases
    does, as after an update or on another machine.
    """
    session_id, original = stored_session(contestant, turns)
    day = original.name.removeprefix("rollout-").partition("T")[0]
    folder = contestant.config.joinpath("sessions", *day.split("-"))
    copy = folder / original.name
    if warm and copy.exists():
        return session_id
    for database in contestant.config.glob("*.sqlite*"):
        database.unlink()
    shutil.rmtree(contestant.config / "sessions", ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(original, copy)
    if warm:
        with contestant.start() as client:
            client.initialize()
            client.request("session/resume", {"sessionId": session_id, "cwd": str(contestant.project)})
    return session_id


def _real_session(contestant: Contestant) -> tuple[str, Path]:
    with contestant.start() as client:
        client.initialize()
        session_id: str = client.new(contestant.project).result["sessionId"]
        for turn in range(2):
            before = len(client.seen)
            client.prompt(session_id, _PROMPT, known_key(turn))
            client.idle(before)
    (path,) = contestant.config.glob(f"sessions/**/rollout-*-{session_id}.jsonl")
    return session_id, path


def _lines(real: list[bytes], session_id: str, turns: int) -> Iterator[bytes]:
    """The first turn, with what stands once in a file, and the second one as often as is left."""
    second = [number for number, line in enumerate(real) if b'"task_started"' in line][1]
    yield from real[:second]
    template = b"".join(real[second:])
    ours = derive_message_id(session_id, known_key(1)).encode()
    fixed = session_id.encode()
    # Later ids are greater ones, as Codex makes them.
    ids = [found for found in sorted(set(_UUID.findall(template))) if found != fixed]
    items = sorted({match.group() for match in _ITEM.finditer(template)})
    ordinal = second
    for turn in range(1, turns):
        text = template.replace(ours, derive_message_id(session_id, known_key(turn)).encode())
        for old in ids:
            text = text.replace(old, str(uuid7()).encode())
        for old in items:
            text = text.replace(old, old + b"%06d" % turn)
        for line in text.splitlines(keepends=True):
            yield _ORDINAL.sub(b'"ordinal":%d' % ordinal, line, count=1)
            ordinal += 1
