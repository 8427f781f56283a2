"""What the recorders of all runtimes share: the texts that a scenario made, neutral names, the files, the command."""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import anyio

from sayagain.testing.recorded_process import RecordedProcess, RecordingPlace
from sayagain.testing.scrubber import strings_in
from sayagain.testing.stand_in_script import BaseScript

__all__ = [
    "HOME",
    "ScenarioLike",
    "id_seed",
    "neutral_names",
    "own_texts",
    "run_recorder",
    "said",
    "write_document",
    "write_lines",
]

HOME: Final = "/home/user"
"""The home folder of every recording."""

_SHORTEST_HOST: Final = 4
"""Letters of a host's name; a shorter one may be part of any word."""

ScenarioT = TypeVar("ScenarioT")


class ScenarioLike(Protocol):
    """What is looked at in a scenario."""

    @property
    def files(self) -> Mapping[str, str]: ...

    @property
    def keeps(self) -> Sequence[str]: ...


def id_seed(name: str) -> str:
    """The seed of the stand-in's ids: they differ between scenarios, and not between runs."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def own_texts(
    scenario: ScenarioLike, script: BaseScript[Any], text: type[Any], processes: Iterable[RecordedProcess]
) -> Iterable[str]:
    """Every text that the scenario made; ``text`` is the script's kind of part that texts are made of."""
    yield from _strings_of(script)
    for step in script.steps:
        for reply in step.replies:  # one text may be cut in parts by holds
            yield "".join(part.text for part in reply if isinstance(part, text))
    yield from scenario.files.values()
    yield from scenario.keeps
    for process in processes:
        yield from process.prompts.values()
        for direction, message in process.log:
            if direction == "in":
                yield from strings_in(message)


def said(processes: Iterable[RecordedProcess], name: str) -> list[dict[str, Any]]:
    """What was said both ways, each message under ``name``, beside its direction and its process's number."""
    return [
        {"process": number, "direction": direction, name: message}
        for number, process in enumerate(processes, start=1)
        for direction, message in process.log
    ]


def neutral_names(place: RecordingPlace) -> dict[str, str]:
    """Folders and names of this machine, and what they are called in a recording."""
    names = {
        str(place.home): HOME,
        str(place.root): "/home",
        str(Path(__file__).resolve().parent): "/usr/lib/sayagain",
        sys.executable: "/usr/bin/python3",
    }
    host = socket.gethostname()
    return names if len(host) < _SHORTEST_HOST else {**names, host: "host"}


def write_lines(path: Path, records: Iterable[Any]) -> None:
    """Write one record a line."""
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document for people to read."""
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def run_recorder(
    runtime: str,
    scenarios: Mapping[str, ScenarioT],
    record: Callable[[ScenarioT, Path], Awaitable[Path]],
    fixtures: Path,
    arguments: Sequence[str] | None,
) -> None:
    """Record the named scenarios, or all, into ``fixtures`` or another folder; says each one's size."""
    parser = argparse.ArgumentParser(description=f"Record scenarios from the real {runtime}.")
    parser.add_argument("scenario", nargs="*", choices=[[], *scenarios], help="all, if none is named")
    parser.add_argument("--fixtures", type=Path, default=fixtures, help="where the recordings go")
    options = parser.parse_args(arguments)

    async def record_all() -> None:
        for name in options.scenario or list(scenarios):
            folder = await record(scenarios[name], options.fixtures)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            print(f"{name}: {size / 1000:.0f} kB", flush=True)

    anyio.run(record_all)


def _strings_of(value: object) -> Iterable[str]:
    if is_dataclass(value):
        for part in fields(value):
            yield from _strings_of(getattr(value, part.name))
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from _strings_of(item)
    else:
        yield from strings_in(value)
