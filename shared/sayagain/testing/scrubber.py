"""Makes a recording fit to be published: pure functions over decoded JSON.

The rule is to deny by default. A string stays as it is only if it is ours (part of a prompt, a reply, a file or an
output that the scenario made), a short identifier without spaces, or the beginning of a message that an adapter has
to recognise. Any other prose was written by the runtime and becomes ``<placeholder NN chars>``; known tags, and our
own lines inside it, are kept. Paths, users and hosts become neutral, identifiers are renamed consistently, clocks are
replaced by one that counts.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

__all__ = ["EPOCH", "MARKERS", "MAX_FOREIGN", "Scrubber", "is_placeholder", "strings_in"]

MAX_FOREIGN: Final = 200
"""No string of the runtime's own longer than this stays in a fixture."""

MARKERS: Final = (
    "[Request interrupted by user for tool use]",
    "[Request interrupted by user]",
    "[Tool call interrupted",
    "No response requested.",
    "Tool loaded.",
    "The user doesn't want to proceed",
    "The user doesn't want to take this action",
    "API Error: 400",
    "API Error: 500",
    "API Error: Request rejected (429)",
    "API Error",
    "Failed to authenticate.",
    "Not logged in",
    "Invalid API key",
    "This session is being continued from a previous conversation",
    "Output token limit hit",
    "(Bash completed with no output)",
    "Command running in background with ID",
    "Async agent launched successfully",
    "Exit code",
    "Error: Exit code",
    "Error:",
    "User rejected tool use",
    "[Subagent hand-back]",
    "agentId:",
    "Compacted",
)
"""Beginnings that an adapter has to recognise; only the beginning is kept."""

_UUID: Final = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_AGENT: Final = re.compile(r"\ba[0-9a-f]{16}\b")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_TAGS: Final = (
    "analysis|bash-input|bash-stderr|bash-stdout|command-args|command-contents|command-message|command-name|"
    "duration_ms|local-command-caveat|local-command-stderr|local-command-stdout|note|output-file|output-path|result|status|"
    "subagent_tokens|summary|tool_uses|"
    "system-reminder|task-id|task-notification|task-type|tool-use-id|tool_use_error|tools-used-before-summary|usage"
)
_TAG: Final = re.compile(rf"(</?(?:{_TAGS})>)")
_REMINDER: Final = re.compile(r"(?<=<system-reminder>\n).*?(?=\n</system-reminder>)", re.DOTALL)
_ELAPSED: Final = re.compile(r"(?<=<duration_ms>)\d+")
_SOCKET: Final = re.compile(r"\d+(?=\.sock$)")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_LINE_NUMBER: Final = re.compile(r"^(?:\s*\d+[\t→:-]|[+\- ])")
_DURATION: Final = re.compile(r"(?:duration|latency|elapsed|ttft|_ms$|Ms$|Duration)")
_PLACEHOLDER: Final = re.compile(r"<placeholder \d+ chars>")
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment at which every recording begins."""
_TICK: Final = timedelta(milliseconds=10)
_MILLISECONDS: Final = (1_500_000_000_000, 2_500_000_000_000)
_SECONDS: Final = (1_500_000_000, 2_500_000_000)
_NAME_KEYS: Final = frozenset({"displayName", "display_name"})
_OUR_ATTACHMENTS: Final = frozenset({"queued_command"})
_DROPPED_ROWS: Final = "api-request"


def is_placeholder(text: str) -> bool:
    """Whether nothing but placeholders, tags and blanks is in ``text``."""
    return not _TAG.sub("", _PLACEHOLDER.sub("", text)).strip()


def strings_in(value: object) -> Iterable[str]:
    """Every string of a decoded JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, Sequence):
        for item in cast("Sequence[Any]", value):
            yield from strings_in(item)


class Scrubber:
    """Scrubs all records of one recording, so that what was equal stays equal.

    ``paths`` maps folders and names of the recording machine to neutral ones, ``ours`` are the texts that the scenario
    made, ``name`` seeds the identifiers, which so differ between recordings and not between runs, and ``markers`` are
    the beginnings that an adapter has to recognise.
    """

    def __init__(
        self, name: str, paths: Mapping[str, str], ours: Iterable[str], markers: Sequence[str] = MARKERS
    ) -> None:
        self._markers = markers
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sayagain:fixture:{name}")
        self._paths = sorted(_with_folder_names(paths).items(), key=lambda pair: -len(pair[0]))
        self._ids: dict[str, str] = {}
        self._times: set[int] = set()
        self._ticks: dict[int, int] = {}
        self._corpus = "\n".join(self._neutral(text) for text in ours)

    def learn(self, value: object) -> None:
        """First pass over every record: the moments, so that the counting clock keeps their order."""
        if isinstance(value, str):
            if _ISO.fullmatch(value):
                self._times.add(_milliseconds(value))
        elif isinstance(value, Mapping):
            for item in cast("Mapping[str, Any]", value).values():
                self.learn(item)
        elif isinstance(value, list):
            for item in cast("list[Any]", value):
                self.learn(item)
        elif isinstance(value, int) and _MILLISECONDS[0] < value < _MILLISECONDS[1]:
            self._times.add(value)
        self._ticks = {}

    def keeps_row(self, row: Mapping[str, Any]) -> bool:
        """Whether a transcript row belongs in a fixture; copies of whole requests do not."""
        return not str(row.get("type", "")).startswith(_DROPPED_ROWS)

    def scrub(self, value: object, key: str = "") -> Any:
        """The second pass: a clean copy of one record."""
        if isinstance(value, str):
            return self._string(value, key)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, (int, float)):
            return self._number(value, key)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if key == "entries":
                items = [row for row in items if self.keeps_row(row)]
            return [self.scrub(item, key) for item in items]
        record = cast("dict[str, Any]", value)
        if key == "attachment" and record.get("type") not in _OUR_ATTACHMENTS:
            return {name: self._hollow(item, name) for name, item in record.items()}
        return {self._neutral(name): self.scrub(item, name) for name, item in record.items()}

    def _hollow(self, value: object, key: str) -> Any:
        """An attachment of the runtime's own: its shape without its content."""
        if isinstance(value, list):
            return []
        return {} if isinstance(value, dict) else self.scrub(value, key)

    def _number(self, value: float, key: str) -> float:
        if isinstance(value, int) and _MILLISECONDS[0] < value < _MILLISECONDS[1]:
            return int(self._clock(value).timestamp() * 1000)
        if _SECONDS[0] < value < _SECONDS[1]:
            return int(EPOCH.timestamp())
        if key == "pid":
            return 4242
        return 1 if _DURATION.search(key) else value

    def _string(self, text: str, key: str) -> str:
        if _ISO.fullmatch(text):
            return self._clock(_milliseconds(text)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        if _DATE.fullmatch(text):
            return EPOCH.date().isoformat()
        text = _REMINDER.sub(lambda match: _placeholder(match[0]), self._neutral(text))
        if self._is_ours(text) or (key in _NAME_KEYS and len(text) <= 40):
            return text
        return "".join(part if _TAG.fullmatch(part) else self._segment(part) for part in _TAG.split(text))

    def _segment(self, text: str) -> str:
        """What stands between two tags: kept whole, or line by line."""
        bare = text.strip()
        if not bare or _is_identifier(bare) or self._is_ours(bare) or _PLACEHOLDER.fullmatch(bare):
            return text
        start = text.index(bare)
        kept: list[str] = []
        foreign: list[str] = []
        for line in bare.split("\n"):
            marker = next((marker for marker in self._markers if line.startswith(marker)), "")
            ours = bool(line.strip()) and self._is_ours(line.strip())
            if foreign and (marker or ours):
                kept.append(_hidden(foreign))
                foreign = []
            if ours:
                kept.append(line)
            elif marker:
                kept.append(marker + self._after_marker(line[len(marker) :]))
            else:
                foreign.append(line)
        if foreign:
            kept.append(_hidden(foreign))
        return text[:start] + "\n".join(kept) + text[start + len(bare) :]

    def _after_marker(self, rest: str) -> str:
        bare = rest.strip()
        return rest if not bare or bare.isdigit() or self._is_ours(bare) else f" {_placeholder(rest)}"

    def _is_ours(self, text: str) -> bool:
        if text in self._corpus:
            return True
        lines = [_LINE_NUMBER.sub("", line).strip() for line in text.split("\n")]
        return any(lines) and all(line in self._corpus for line in lines)

    def _neutral(self, text: str) -> str:
        for path, neutral in self._paths:
            text = text.replace(path, neutral)
        text = _UUID.sub(lambda match: self._renamed(match[0]), text)
        text = _SOCKET.sub("4242", _ELAPSED.sub("1", text))
        return _AGENT.sub(lambda match: self._renamed_agent(match[0]), text)

    def _renamed(self, old: str) -> str:
        return self._ids.setdefault(old, str(uuid.uuid5(self._namespace, str(len(self._ids)))))

    def _renamed_agent(self, old: str) -> str:
        number = str(len(self._ids))
        digest = hashlib.sha256(self._namespace.bytes + number.encode()).hexdigest()
        return self._ids.setdefault(old, f"a{digest[:16]}")

    def _clock(self, moment: int) -> datetime:
        if not self._ticks:
            self._ticks = {time: tick for tick, time in enumerate(sorted(self._times))}
        return EPOCH + _TICK * self._ticks.get(moment, 0)


def _hidden(lines: list[str]) -> str:
    text = "\n".join(lines)
    return _placeholder(text) if text.strip() else text


def _placeholder(text: str) -> str:
    return f"<placeholder {len(text)} chars>"


def _is_identifier(text: str) -> bool:
    return len(text) <= MAX_FOREIGN and not any(character.isspace() for character in text)


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _with_folder_names(paths: Mapping[str, str]) -> dict[str, str]:
    """``paths`` with the names that the runtime makes of folders: every character but letters and digits a hyphen."""
    names = {_folder_name(path): _folder_name(neutral) for path, neutral in paths.items() if path.startswith("/")}
    return {**paths, **names}


def _folder_name(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "-", path)
