"""The checker itself: a sound run passes, and one broken run for each invariant trips that one and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.transcripts import dump, folded_prompt_row, glue, prompt_row
from support_checker import Connection, Evidence, Line, Stored, check, derive, read_transcript

SESSION = "6f3dcb2c-1f0f-4b5e-9f6a-0d1c2b3a4e5f"
ONE = derive(SESSION, "key-one")
TWO = derive(SESSION, "key-two")


@dataclass
class Run:
    """A sound run, to be broken: a prompt, a crash, a replay and a retry on a second connection, a probe."""

    connections: list[Connection] = field(default_factory=lambda: [Connection("first", cut=True), Connection("second")])
    calls: dict[str, int] = field(default_factory=lambda: {"One": 1, "Two": 1})
    stored: list[Stored] = field(default_factory=lambda: [Stored(ONE, 1.5, "One"), Stored(TWO, 9.5, "Two")])
    logs: str = ""
    probes: list[tuple[str, Any]] = field(default_factory=lambda: [("second", 3)])
    same_bytes: list[list[tuple[str, Any]]] = field(default_factory=list)
    clock: float = 0.0

    def line(self, name: int, direction: Any, message: Any) -> None:
        self.clock += 1
        text = message if isinstance(message, str) else json.dumps(message)
        self.connections[name].lines.append(Line(self.clock, direction, text))

    def sent(self, name: int, request_id: Any, method: str, **params: Any) -> None:
        self.line(name, "sent", {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def prompt(self, name: int, request_id: Any, key: str, text: str) -> None:
        params = {"sessionId": SESSION, "prompt": [{"type": "text", "text": text}], "idempotencyKey": key}
        self.sent(name, request_id, "session/prompt", **params)

    def resume(self, name: int, request_id: Any, *, replay: bool = True) -> None:
        extra = {"replayFrom": {"type": "start"}} if replay else {}
        self.sent(name, request_id, "session/resume", sessionId=SESSION, cwd="/", **extra)

    def result(self, name: int, request_id: Any, **result: Any) -> None:
        self.line(name, "got", {"jsonrpc": "2.0", "id": request_id, "result": result})

    def error(self, name: int, request_id: Any, code: int) -> None:
        error = {"code": code, "message": "no"}
        self.line(name, "got", {"jsonrpc": "2.0", "id": request_id, "error": error})

    def update(self, name: int, kind: str, session: str = SESSION, **fields: Any) -> None:
        update = {"sessionUpdate": kind, **fields}
        params = {"sessionId": session, "update": update}
        self.line(name, "got", {"jsonrpc": "2.0", "method": "session/update", "params": params})

    def history(self, name: int, request_id: Any, *ids: str, marker: bool = True) -> None:
        """A replay, from its request to its answer."""
        self.resume(name, request_id)
        for message_id in ids or (ONE,):
            self.update(name, "user_message", messageId=message_id, content=[])
        if marker:
            self.update(name, "replay_complete")
        self.result(name, request_id)

    def verdicts(self) -> list[str]:
        evidence = Evidence(
            self.connections,
            self.calls,
            {SESSION: self.stored},
            keys=("key-one", "key-two"),
            logs=self.logs,
            probes=self.probes,
            same_bytes=self.same_bytes,
        )
        return sorted({violation.invariant for violation in check(evidence)})


def sound() -> Run:
    run = Run()
    run.prompt(0, 1, "key-one", "One")
    run.result(0, 1, messageId=ONE)
    run.history(1, 1)
    run.prompt(1, 2, "key-one", "One")
    run.result(1, 2, messageId=ONE)
    run.prompt(1, 3, "key-two", "Two")
    run.result(1, 3, messageId=TWO)
    return run


def test_a_sound_run_passes() -> None:
    assert sound().verdicts() == []


def test_a_cut_connection_may_end_anywhere() -> None:
    run = sound()
    run.prompt(0, 2, "key-two", "Two")
    run.connections[0].torn = '{"jsonrpc": "2.0", "id": 2, "res'
    assert run.verdicts() == []


def test_errors_with_nothing_inserted_are_no_violation() -> None:
    run = sound()
    run.calls["Three"] = 1
    run.prompt(1, 7, "key-three", "Three")
    run.error(1, 7, -32603)
    run.prompt(1, 8, "key-three", "Three")
    run.stored.append(Stored(derive(SESSION, "key-three"), run.clock, "Three"))
    run.result(1, 8, messageId=derive(SESSION, "key-three"))
    assert run.verdicts() == []


def test_a_prompt_withdrawn_in_a_lost_session_may_run_in_the_next() -> None:
    run = sound()
    other = "00000000-0000-4000-8000-000000000000"
    params = {"sessionId": other, "prompt": [{"type": "text", "text": "One"}], "idempotencyKey": "key-one"}
    run.sent(1, 9, "session/prompt", **params)
    run.error(1, 9, -32800)
    assert run.verdicts() == []


def test_a_session_that_was_made_on_a_connection_may_be_told_of_while_it_is_replayed() -> None:
    run = sound()
    run.connections.append(Connection("third"))
    run.sent(2, 1, "session/new", cwd="/")
    run.result(2, 1, sessionId=SESSION)
    run.resume(2, 2)
    run.update(2, "agent_message_chunk", messageId="m")
    for message_id in (ONE, TWO):
        run.update(2, "user_message", messageId=message_id)
    run.update(2, "replay_complete")
    run.result(2, 2)
    assert run.verdicts() == []


def _told_of_the_options(run: Run, *ids: str) -> None:
    """The same history twice, the second time with an update of the options before, between or behind these."""
    run.history(1, 4, ONE, TWO)
    run.resume(1, 5)
    for message_id in ids:
        if message_id == "options":
            run.update(1, "config_option_update", configOptions=[])
        else:
            run.update(1, "user_message", messageId=message_id, content=[])
    run.update(1, "replay_complete")
    run.result(1, 5)
    run.same_bytes = [[("second", 5), ("second", 4)]]


def test_what_was_on_its_way_when_a_replay_was_asked_for_is_no_part_of_it() -> None:
    """A CLI that was started for the last prompt told its options late, between the request and the agent's reading
    of it (seen on a loaded machine)."""
    run = sound()
    _told_of_the_options(run, "options", ONE, TWO)
    assert run.verdicts() == []


def stored_twice(run: Run) -> None:
    run.stored.append(Stored(ONE, 40, "One"))


def another_answer(run: Run) -> None:
    run.prompt(1, 4, "key-one", "One")
    run.result(1, 4, messageId=TWO)


def answered_but_not_stored(run: Run) -> None:
    run.prompt(1, 4, "key-three", "Three")
    run.result(1, 4, messageId=derive(SESSION, "key-three"))


def answered_before_it_is_stored(run: Run) -> None:
    answered_but_not_stored(run)
    run.stored.append(Stored(derive(SESSION, "key-three"), run.clock + 1, "Three"))


def refused_but_stored(run: Run) -> None:
    run.prompt(1, 4, "key-three", "Three")
    run.stored.append(Stored(derive(SESSION, "key-three"), run.clock, "Three"))
    run.error(1, 4, -32603)


def no_marker(run: Run) -> None:
    run.history(1, 4, marker=False)


def two_markers(run: Run) -> None:
    run.resume(1, 4)
    run.update(1, "user_message", messageId=ONE)
    run.update(1, "user_message", messageId=TWO)
    run.update(1, "replay_complete")
    run.update(1, "replay_complete")
    run.result(1, 4)


def marker_without_a_message(run: Run) -> None:
    run.history(1, 4, ONE)


def marker_not_asked_for(run: Run) -> None:
    run.resume(1, 4, replay=False)
    run.update(1, "replay_complete")
    run.result(1, 4)


def marker_of_a_failed_replay(run: Run) -> None:
    run.resume(1, 4)
    run.update(1, "replay_complete")
    run.error(1, 4, -32603)


def child_without_marker(run: Run) -> None:
    run.resume(1, 4)
    for message_id in (ONE, TWO):
        run.update(1, "user_message", messageId=message_id)
    run.update(1, "subagent_update", sessionId=f"{SESSION}.child")
    run.update(1, "replay_complete")
    run.result(1, 4)


def _third(run: Run, kind: str, **fields: Any) -> None:
    run.connections.append(Connection("third"))
    run.resume(2, 1)
    run.update(2, kind, **fields)
    for message_id in (ONE, TWO):
        run.update(2, "user_message", messageId=message_id)
    run.update(2, "replay_complete")
    run.result(2, 1)


def state_before_the_marker(run: Run) -> None:
    _third(run, "state_update", state="idle")


def chunk_before_the_marker(run: Run) -> None:
    _third(run, "agent_message_chunk", messageId="m")


def replays_differ(run: Run) -> None:
    run.history(1, 4, ONE, TWO)
    run.history(1, 5, TWO, ONE)
    run.same_bytes = [[("second", 4), ("second", 5)]]


def options_within_a_replay(run: Run) -> None:
    _told_of_the_options(run, ONE, "options", TWO)


def options_before_the_marker(run: Run) -> None:
    _told_of_the_options(run, ONE, TWO, "options")


def key_in_a_line(run: Run) -> None:
    run.update(1, "session_info_update", title="key-one")


def key_in_a_log(run: Run) -> None:
    run.logs = "WARNING the key key-two was used twice"


def never_answered(run: Run) -> None:
    run.sent(1, 9, "session/list")


def answered_twice(run: Run) -> None:
    run.result(1, 2, messageId=ONE)


def answer_to_nothing(run: Run) -> None:
    run.result(1, 77)


def no_json(run: Run) -> None:
    run.line(1, "got", "Warning: something")


def no_rpc(run: Run) -> None:
    run.line(1, "got", {"jsonrpc": "2.0", "id": 5})


def half_a_line(run: Run) -> None:
    run.connections[1].torn = '{"jsonrpc"'


def probe_fails(run: Run) -> None:
    run.prompt(1, 4, "key-three", "Three")
    run.error(1, 4, -32603)
    run.probes.append(("second", 4))


def withdrawn_but_ran(run: Run) -> None:
    run.prompt(1, 4, "key-three", "Three")
    run.error(1, 4, -32800)
    run.calls["Three"] = 1


def ran_twice(run: Run) -> None:
    run.calls["One"] = 2


@pytest.mark.parametrize(
    ("invariant", "break_it"),
    [
        ("I1", stored_twice),
        ("I2", another_answer),
        ("I3", answered_but_not_stored),
        ("I3", answered_before_it_is_stored),
        ("I4", refused_but_stored),
        ("I5", no_marker),
        ("I5", two_markers),
        ("I5", marker_without_a_message),
        ("I5", marker_not_asked_for),
        ("I5", marker_of_a_failed_replay),
        ("I5", child_without_marker),
        ("I6", state_before_the_marker),
        ("I6", chunk_before_the_marker),
        ("I7", replays_differ),
        ("I7", options_within_a_replay),
        ("I7", options_before_the_marker),
        ("I8", key_in_a_line),
        ("I8", key_in_a_log),
        ("I9", never_answered),
        ("I9", answered_twice),
        ("I9", answer_to_nothing),
        ("I10", no_json),
        ("I10", no_rpc),
        ("I10", half_a_line),
        ("I12", probe_fails),
        ("I13", withdrawn_but_ran),
        ("I14", ran_twice),
    ],
)
def test_a_broken_run_trips_its_invariant(invariant: str, break_it: Callable[[Run], None]) -> None:
    run = sound()
    break_it(run)
    assert run.verdicts() == [invariant]


def test_the_transcript_reader_finds_ids_in_every_place_and_through_damage(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    first = prompt_row("First", session_id=SESSION, message_id="a")
    merged = prompt_row("Second\nThird", session_id=SESSION, message_id="c") | {"mergedSendUuids": ["b"]}
    folded = folded_prompt_row("Fourth", session_id=SESSION, message_id="d")
    command = {"type": "system", "subtype": "local_command", "uuid": "x", "submitUuid": "e", "content": "/help"}
    torn, last = (dump(prompt_row(text, session_id=SESSION, message_id=text)) for text in ("f", "g"))
    glued = glue(torn, len(torn) - 20, last)
    path.write_bytes(b"\n".join([dump(first), dump(merged), b"\0" * 20, dump(folded), dump(command), glued]) + b"\n")
    assert [row.id for row in read_transcript(path)] == ["a", "c", "b", "d", "e", "g"]
