"""An independent judge of a run: what the client saw, what the model was asked, what the transcripts hold.

Pure, and nothing of the product is used: message ids are derived, lines are split and transcripts are read by this
file's own means, so that a fault of the product cannot hide in the eyes that look for it. :func:`check` holds the
evidence against the invariants I1 to I14 of the fault model, as far as evidence of this kind can show them; memory and
time (I11) it can't.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "Connection",
    "Evidence",
    "Line",
    "Stored",
    "Violation",
    "check",
    "derive",
    "read_transcript",
    "retries_answered",
]

HISTORY = {
    *("user_message", "agent_message", "agent_thought", "tool_call_update", "terminal_update", "plan", "plan_update"),
    *("compaction_update", "subagent_update", "replay_complete"),
}
"""The updates that may come between a replaying request and its marker (I6)."""

UNDECIDED = {"session_in_use", "history_unreadable"}
"""``data.reason`` of errors that say nothing of the message: the agent could not look it up."""


@dataclass(frozen=True)
class Violation:
    invariant: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.evidence}"


@dataclass(frozen=True)
class Line:
    """One line as it passed: ``at`` orders all lines of a run and is compared with the rows' times (seconds)."""

    at: float
    direction: Literal["sent", "got"]
    text: str


@dataclass
class Connection:
    """One connection, whole. ``cut``: a fault or the client ended it, so answers may be missing."""

    name: str
    lines: list[Line] = field(default_factory=list[Line])
    torn: str = ""
    """What came after the last newline."""
    cut: bool = False


@dataclass(frozen=True)
class Stored:
    """One place of a transcript in which a user message's id is stored."""

    id: str
    at: float
    text: str


@dataclass
class Evidence:
    connections: list[Connection]
    calls: Mapping[str, int]
    """How often the model was asked to start on a prompt, by its text; texts are unique for each message."""
    stored: Mapping[str, Sequence[Stored]]
    """By session id."""
    keys: Sequence[str] = ()
    logs: str = ""
    probes: Sequence[tuple[str, Any]] = ()
    """``(connection, request id)`` of well-formed prompts after a fault: they must work (I12)."""
    same_bytes: Sequence[Sequence[tuple[str, Any]]] = ()
    """Groups of replaying requests, of sessions at rest, between which the stored bytes did not change (I7)."""


@dataclass
class _Request:
    connection: Connection
    id: Any
    method: str
    params: Mapping[str, Any]
    at: float
    index: int
    cancelled: bool = False
    answers: list[tuple[int, float, Mapping[str, Any]]] = field(default_factory=list[Any])

    @property
    def name(self) -> tuple[str, Any]:
        return self.connection.name, self.id

    @property
    def message_id(self) -> str | None:
        for _, _, answer in self.answers:
            if isinstance(result := answer.get("result"), dict) and "messageId" in result:
                return str(result["messageId"])
        return None

    @property
    def session(self) -> str | None:
        """The session that it is about, or made."""
        made = [answer["result"].get("sessionId") for _, _, answer in self.answers if "result" in answer]
        return self.params.get("sessionId") or next(iter(made), None)

    @property
    def error(self) -> Mapping[str, Any] | None:
        return next((answer["error"] for _, _, answer in self.answers if "error" in answer), None)

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.params.get("prompt", ()))

    def __str__(self) -> str:
        return f"{self.method} {self.id} on {self.connection.name}"


def derive(session_id: str, key: str) -> str:
    return str(uuid.uuid5(uuid.UUID(session_id), key))


def check(evidence: Evidence) -> list[Violation]:
    """Every violation that the evidence shows; an empty list is a run without fault."""
    return [Violation(*found) for found in _Judge(evidence).all()]


def retries_answered(evidence: Evidence) -> int:
    """How many requests of a key that was sent before got the message's id."""
    by_key: Counter[tuple[str, str]] = Counter()
    answered = 0
    for request in sorted(_Judge(evidence).prompts, key=lambda request: request.at):
        key = request.params["sessionId"], str(request.params.get("idempotencyKey"))
        answered += by_key[key] > 0 and request.message_id is not None
        by_key[key] += "idempotencyKey" in request.params
    return answered


Found = Iterator[tuple[str, str]]


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.foul: list[tuple[str, str]] = []
        self.messages: dict[str, list[tuple[int, Line, Any]]] = {}
        self.requests: list[_Request] = []
        for connection in evidence.connections:
            self.messages[connection.name] = list(self._parse(connection))
            self._collect(connection)
        self.prompts = [request for request in self.requests if request.method == "session/prompt"]
        # A message that is stored twice is one insertion too many already (I1).
        places = {(session, row.id): row.text for session, rows in evidence.stored.items() for row in rows}
        self.insertions = Counter(places.values())
        self.ids = {session: [row.id for row in rows] for session, rows in evidence.stored.items()}

    def all(self) -> Found:
        yield from self.foul
        yield from self.stored_once()
        yield from self.answers()
        yield from self.replays()
        yield from self.same_replays()
        yield from self.keys_stay_secret()
        yield from self.probes()
        yield from self.calls()

    # What passed over the wire.

    def _parse(self, connection: Connection) -> Iterator[tuple[int, Line, Any]]:
        for index, line in enumerate(connection.lines):
            try:
                value = json.loads(line.text)
            except ValueError:
                # What a client sends may be broken on purpose; what it gets never (I10).
                if line.direction == "got":
                    self.foul.append(("I10", f"{connection.name} got a line that is no JSON: {line.text[:80]!r}"))
                continue
            items = value if isinstance(value, list) else [value]
            for item in items:
                if line.direction == "got" and not _is_rpc(item):
                    self.foul.append(("I10", f"{connection.name} got what is no JSON-RPC: {line.text[:80]!r}"))
                elif isinstance(item, dict):
                    yield index, line, item
        if connection.torn and not connection.cut:
            self.foul.append(("I10", f"{connection.name} ended within a line: {connection.torn[:80]!r}"))

    def _collect(self, connection: Connection) -> None:
        open_: dict[Any, _Request] = {}
        for index, line, item in self.messages[connection.name]:
            if line.direction == "sent" and "method" in item and "id" in item:
                request = _Request(connection, item["id"], item["method"], item.get("params") or {}, line.at, index)
                open_[item["id"]] = request
                self.requests.append(request)
            elif line.direction == "sent" and item.get("method") == "$/cancel_request":
                if (cancelled := open_.get(item["params"].get("requestId"))) is not None:
                    cancelled.cancelled = True
            elif line.direction == "got" and "method" not in item and item.get("id") is not None:
                if (answered := open_.get(item["id"])) is None:
                    self.foul.append(("I9", f"{connection.name} got an answer to {item['id']!r}, which was never sent"))
                else:
                    answered.answers.append((index, line.at, item))
        for request in open_.values():
            if len(request.answers) > 1:
                self.foul.append(("I9", f"{request} was answered {len(request.answers)} times"))
            if not request.answers and not connection.cut:
                self.foul.append(("I9", f"{request} was never answered"))

    # I1 to I4, I13: keys, answers, and what is stored.

    def stored_once(self) -> Found:
        for session, ids in self.ids.items():
            for message_id, count in Counter(ids).items():
                if count > 1:
                    yield "I1", f"message {message_id} is stored {count} times in session {session}"

    def answers(self) -> Found:
        by_key: defaultdict[tuple[str, str], list[_Request]] = defaultdict(list)
        for request in self.prompts:
            session, key = request.params["sessionId"], request.params.get("idempotencyKey")
            if (message_id := request.message_id) is not None:
                times = [row.at for row in self.evidence.stored.get(session, ()) if row.id == message_id]
                if not times or min(times) > request.answers[0][1]:
                    when = "later" if times else "never"
                    yield "I3", f"{request} was answered with {message_id}, which was stored {when}"
            if isinstance(key, str):
                by_key[session, key].append(request)
        for (session, key), requests in by_key.items():
            yield from self._one_key(session, derive(session, key), sorted(requests, key=lambda request: request.at))

    def _one_key(self, session: str, message_id: str, requests: Sequence[_Request]) -> Found:
        given = {request.message_id for request in requests} - {None}
        if len(given) > 1:
            yield "I2", f"one key in session {session} was answered with {sorted(map(str, given))}"
        rows = [row for row in self.evidence.stored.get(session, ()) if row.id == message_id]
        for request in requests:
            error = request.error
            if error is None or _reason(error) in UNDECIDED or error.get("code") in (-32002, -32602):
                continue
            at = request.answers[0][1]
            # Another attempt may have inserted it: one that was sent by then, and not turned away itself by then.
            others = [
                other
                for other in requests
                if other is not request
                and other.at < at
                and not (other.error is not None and other.answers[0][1] <= at)
            ]
            if not others and any(row.at < at for row in rows):
                yield "I4", f"{request} was answered with {error['code']}, but message {message_id} was stored"
        # All attempts were taken back: nothing may have run, but for what was inserted elsewhere.
        if not rows and all(request.error is not None and request.error["code"] == -32800 for request in requests):
            for text in {request.text for request in requests}:
                if self.evidence.calls.get(text, 0) > self.insertions[text]:
                    yield "I13", f"{requests[-1]} was answered as withdrawn, but the model was asked"

    # I5 to I7: replays.

    def replays(self) -> Found:
        for connection in self.evidence.connections:
            resumes = [r for r in self.requests if r.connection is connection and r.method == "session/resume"]
            markers = [
                (index, item["params"]["sessionId"])
                for index, line, item in self.messages[connection.name]
                if line.direction == "got" and _kind(item) == "replay_complete"
            ]
            claimed: set[int] = set()
            attached = {r.session for r in self.requests if r.connection is connection and r.method == "session/new"}
            # Replays of one connection follow each other: the next one's begins after the answer to this one.
            begins: dict[str, int] = {}
            for request in resumes:
                session = request.params["sessionId"]
                if "replayFrom" in request.params:
                    end = request.answers[0][0] if request.answers else len(connection.lines)
                    begin = max(request.index, begins.get(session, 0))
                    begins[session] = end
                    mine = [m for m in markers if begin < m[0] < end and _root(m[1]) == session]
                    claimed.update(index for index, _ in mine)
                    yield from self._one_replay(request, mine, begin, first=session not in attached)
                attached.add(session)
            for index, session in markers:
                if index not in claimed:
                    yield "I5", f"{connection.name} got a marker of {session} that no replaying request asked for"

    def _one_replay(self, request: _Request, markers: list[tuple[int, str]], begin: int, *, first: bool) -> Found:
        session = request.params["sessionId"]
        own = [index for index, name in markers if name == session]
        if request.answers and request.error is None and len(own) != 1:
            yield "I5", f"{request} succeeded with {len(own)} markers"
            return
        if len(own) > 1 or (own and request.error is not None):
            yield "I5", f"{request} failed with {len(own)} markers"
            return
        if not own:
            return
        items = [
            (index, item)
            for index, line, item in self.messages[request.connection.name]
            if line.direction == "got" and begin < index <= own[0]
        ]
        told = {item["params"]["update"].get("messageId") for _, item in items if _kind(item) == "user_message"}
        for message_id in sorted(self._stored_before(session, request)):
            if message_id not in told:
                yield "I5", f"{request} was marked as whole without message {message_id}"
        children = {item["params"]["update"]["sessionId"] for _, item in items if _kind(item) == "subagent_update"}
        for child in sorted(children):
            count = sum(name == child for _, name in markers)
            if count != 1 and request.answers:
                yield "I5", f"{request} sent {count} markers for the child {child}"
        if first:
            for _, item in items:
                params = item.get("params") or {}
                if _root(str(params.get("sessionId"))) != session:
                    continue
                if item["method"] != "session/update" or _kind(item) not in HISTORY:
                    yield "I6", f"{request}: {_kind(item) or item['method']} came before the marker"

    def _stored_before(self, session: str, request: _Request) -> set[str]:
        """What a client knew to be inserted before it asked for the replay."""
        known = {
            prompt.message_id
            for prompt in self.prompts
            if prompt.params["sessionId"] == session and prompt.answers and prompt.answers[0][1] < request.at
        }
        return {
            message_id for message_id in known if message_id is not None and message_id in self.ids.get(session, ())
        }

    def same_replays(self) -> Found:
        for group in self.evidence.same_bytes:
            told = {name: self._replayed(name) for name in group}
            for name in group[1:]:
                if told[name] != told[group[0]]:
                    yield (
                        "I7",
                        f"{name} and {group[0]} replay the same bytes differently: {_apart(told, name, group[0])}",
                    )

    def _replayed(self, name: tuple[str, Any]) -> list[Any]:
        """All up to the marker, from the first history on: where the session is active already, what the agent told
        before it read the request may come after it on the wire. Elsewhere nothing may (I6).
        """
        request = next(request for request in self.requests if request.name == name)
        session = request.params["sessionId"]
        found: list[Any] = []
        for index, line, item in self.messages[name[0]]:
            if line.direction == "got" and index > request.index and item.get("method") == "session/update":
                begun = bool(found) or _kind(item) in HISTORY
                if begun and _root(item["params"]["sessionId"]) == session:
                    found.append(item["params"])
                if _kind(item) == "replay_complete" and item["params"]["sessionId"] == session:
                    break
        return found

    # The rest.

    def keys_stay_secret(self) -> Found:
        for key in self.evidence.keys:
            if key in self.evidence.logs:
                yield "I8", "a key is in a log"
            for connection in self.evidence.connections:
                got = [line.text for line in connection.lines if line.direction == "got"]
                if any(key in text for text in (*got, connection.torn)):
                    yield "I8", f"{connection.name} got a line with a key in it"

    def probes(self) -> Found:
        for name in self.evidence.probes:
            request = next((request for request in self.prompts if request.name == name), None)
            if request is None or request.message_id is None:
                error = None if request is None else request.error
                yield "I12", f"the prompt {name} after a fault did not work: {error}"

    def calls(self) -> Found:
        withdrawn = {r.text for r in self.prompts if r.error is not None and r.error["code"] == -32800}
        for text, count in self.evidence.calls.items():
            if count > self.insertions[text] and not (self.insertions[text] == 0 and text in withdrawn):
                yield "I14", f"the model was asked {count} times for {text!r}, inserted {self.insertions[text]} times"


def _is_rpc(item: object) -> bool:
    if not isinstance(item, dict) or item.get("jsonrpc") != "2.0":
        return False
    if "method" in item:
        return isinstance(item["method"], str) and "result" not in item and "error" not in item
    return "id" in item and ("result" in item) != ("error" in item)


def _kind(item: Mapping[str, Any]) -> str | None:
    if item.get("method") != "session/update":
        return None
    return str(item["params"]["update"]["sessionUpdate"])


def _apart(told: Mapping[Any, list[Any]], one: Any, other: Any) -> str:
    """Where two replays part: what each of them tells there."""
    position = next((n for n, (a, b) in enumerate(zip(told[one], told[other], strict=False)) if a != b), None)
    if position is None:
        position = min(len(told[one]), len(told[other]))
    return f"update {position} is {told[one][position : position + 1]}, or {told[other][position : position + 1]}"


def _root(session_id: str) -> str:
    return session_id.partition(".")[0]


def _reason(error: Mapping[str, Any]) -> str | None:
    data = error.get("data")
    return data.get("reason") if isinstance(data, dict) else None


def read_transcript(path: Path) -> list[Stored]:
    """Where user messages' ids are stored in a session's file, repeats included, damage survived."""
    return [stored for row in _rows(path.read_text(encoding="utf-8", errors="replace")) for stored in _ids(row)]


def _rows(content: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    for line in content.split("\n"):
        position = line.find("{")
        while position >= 0:
            try:
                row, end = decoder.raw_decode(line, position)
            except ValueError:
                # Torn by a kill, and the next row glued on.
                position = line.find('{"', position + 1)
                continue
            if "type" in row:
                yield row
            position = line.find("{", end)


def _ids(row: Mapping[str, Any]) -> Iterator[Stored]:
    stamp = row.get("timestamp")
    at = datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else 0.0
    attachment = row.get("attachment") or {}
    if row["type"] == "user" and not row.get("isSidechain"):
        content = (row.get("message") or {}).get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        if not any(block.get("type") == "tool_result" for block in blocks):
            text = "".join(block.get("text", "") for block in blocks)
            yield Stored(row["uuid"], at, text)
            for merged in row.get("mergedSendUuids") or ():
                yield Stored(merged, at, text)
    elif row["type"] == "attachment" and attachment.get("type") == "queued_command" and attachment.get("source_uuid"):
        prompt = attachment.get("prompt")
        yield Stored(attachment["source_uuid"], at, prompt if isinstance(prompt, str) else json.dumps(prompt))
    elif row["type"] == "system" and row.get("submitUuid"):
        yield Stored(row["submitUuid"], at, str(row.get("content")))
