"""What the tests on recordings of all runtimes share: their files, golden updates, input broken anywhere."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sayagain.runtime.events import ChildAnnounced, Foreground, RuntimeEvent, Update
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, Unreadable, UserTurn
from support_folding import updates_of

__all__ = ["BaseRecording", "broken", "compare_golden", "encode", "fixtures_of", "found_in"]

WRITE = os.environ.get("SAYAGAIN_GOLDEN") == "write"

RecordingT = TypeVar("RecordingT", bound="BaseRecording")


def fixtures_of(runtime: str, variable: str) -> Path:
    """Where the recordings are; ``variable`` names others, to look at new ones before they are kept."""
    return Path(os.environ.get(variable) or Path(__file__).resolve().parents[1] / "fixtures" / runtime)


@dataclass(frozen=True)
class BaseRecording:
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def about(self) -> dict[str, Any]:
        return json.loads((self.folder / "scenario.json").read_text(encoding="utf-8"))

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        with (self.folder / name).open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def found_in(folder: Path, kind: type[RecordingT]) -> list[RecordingT]:
    if not folder.is_dir():
        return []
    return [kind(path) for path in sorted(folder.iterdir()) if (path / "scenario.json").exists()]


def compare_golden(items: Iterable[RuntimeEvent | HistoryEntry], path: Path) -> None:
    """A diff is a decision: with ``SAYAGAIN_GOLDEN=write`` the file is written anew."""
    text = "".join(map(_line, items))
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def _line(item: RuntimeEvent | HistoryEntry) -> str:
    fields: dict[str, object] = {"is": type(item).__name__}
    match item:
        case ChildAnnounced(parent_id, _, update) | ChildStarts(parent_id, _, update):
            fields |= {"session": parent_id, "update": update}
        case UserTurn(session_id, message_ids, update):
            fields |= {"session": session_id, "ids": message_ids, "update": update}
        case Foreground(session_id, state, stop_reason):
            fields |= {"session": session_id, "state": state, "stopReason": stop_reason}
        case Unreadable(what):
            fields |= {"what": what}
        case _:
            fields |= {"session": getattr(item, "session_id", None), "update": getattr(item, "update", None)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def broken(value: Any, chance: random.Random, junk: Sequence[Any]) -> Any:
    """``value`` with one thing somewhere in it replaced by junk, removed or doubled."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice(junk)
    if isinstance(value, list):
        where = chance.randrange(len(value))
        return [broken(item, chance, junk) if index == where else item for index, item in enumerate(value)] * (
            2 if chance.random() < 0.1 else 1
        )
    key = chance.choice(list(value))
    if chance.random() < 0.1:
        return {name: item for name, item in value.items() if name != key}
    return value | {key: broken(value[key], chance, junk)}


def encode(items: Iterable[RuntimeEvent | HistoryEntry]) -> None:
    """What goes on the wire can be written there."""
    for _, update in updates_of(items):
        json.dumps(update, ensure_ascii=False, allow_nan=False).encode()


def children_announced(events: Iterable[RuntimeEvent], root: str) -> set[str]:
    """The children of live events; each is announced once, and before it is spoken of."""
    known = {root}
    for event in events:
        if isinstance(event, ChildAnnounced):
            assert event.parent_id in known
            assert event.child_id not in known
            known.add(event.child_id)
        else:
            assert getattr(event, "session_id", root) in known
        if isinstance(event, Update):
            assert _references(event.update) <= known
    return known - {root}


def children_replayed(entries: Iterable[HistoryEntry], root: str) -> set[str]:
    """The children of a replay; each is announced once, before it is spoken of, and ends once."""
    known, ended = {root}, set[str]()
    for entry in entries:
        if isinstance(entry, ChildStarts):
            assert entry.parent_id in known - ended
            assert entry.child_id not in known
            known.add(entry.child_id)
            continue
        if isinstance(entry, Unreadable):
            continue
        assert entry.session_id in known - ended
        if isinstance(entry, HistoryEnds):
            ended.add(entry.session_id)
        else:
            assert _references(entry.update or {}) <= known
    assert ended == known - {root}
    return ended


def _references(update: Mapping[str, Any]) -> set[str]:
    """The sessions that a tool call's content refers to."""
    content = update.get("content")
    items = content if isinstance(content, list) else []
    return {item["sessionId"] for item in items if item.get("type") == "session"}
