"""The replay gate: every state and event, and what waits (RPL-4, RPL-6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sayagain.agent.journal import entity_of
from sayagain.agent.replay import MARKER, RECENT, TRANSITIONS, Gate, GateEvent, GateState


def chunk(message_id: str, text: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": content}


def whole(message_id: str, text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message", "messageId": message_id, "content": [{"type": "text", "text": text}]}


NOTICE = {"sessionUpdate": "notice", "severity": "info", "title": "Live"}


def gate(state: GateState) -> Gate[str]:
    made = Gate[str]()
    if state is GateState.REPLAYING:
        made.begin()
    if state is GateState.MARKED:
        made.hold()
    assert made.state is state
    return made


def test_the_transitions_are_the_ones_of_the_design() -> None:
    assert {(s.name, e.name): to.name for (s, e), to in TRANSITIONS.items()} == {
        ("OPEN", "BEGIN"): "REPLAYING",
        ("MARKED", "BEGIN"): "REPLAYING",
        ("REPLAYING", "COMPLETE"): "MARKED",
        ("REPLAYING", "ABORT"): "OPEN",
        ("MARKED", "ABORT"): "OPEN",
        ("OPEN", "HOLD"): "MARKED",
        ("MARKED", "HOLD"): "MARKED",
        ("REPLAYING", "HOLD"): "REPLAYING",
        ("MARKED", "RELEASE"): "OPEN",
        ("OPEN", "RELEASE"): "OPEN",
    }


ACTIONS: dict[GateEvent, Any] = {
    GateEvent.BEGIN: Gate.begin,
    GateEvent.COMPLETE: Gate.complete,
    GateEvent.ABORT: Gate.abort,
    GateEvent.HOLD: Gate.hold,
    GateEvent.RELEASE: Gate.release,
}


@pytest.mark.parametrize("state", list(GateState))
@pytest.mark.parametrize("event", list(GateEvent))
def test_every_event_in_every_state(state: GateState, event: GateEvent) -> None:
    made = gate(state)
    if (state, event) not in TRANSITIONS:
        with pytest.raises(KeyError):
            ACTIONS[event](made)
        return
    result = ACTIONS[event](made)
    assert made.state is TRANSITIONS[state, event]
    assert (result == MARKER) == (event is GateEvent.COMPLETE)


@pytest.mark.parametrize("state", list(GateState))
def test_live_updates_and_requests_pass_an_open_gate_alone(state: GateState) -> None:
    made = gate(state)
    passes = state is GateState.OPEN
    assert made.live(NOTICE) is passes
    assert made.ask("ask") is passes
    assert made.live(NOTICE) is passes
    if state is GateState.REPLAYING:
        made.complete()
    assert made.release() == ([] if passes else [NOTICE, "ask", NOTICE])


@pytest.mark.parametrize("state", [GateState.OPEN, GateState.MARKED])
def test_history_passes_a_replaying_gate_alone(state: GateState) -> None:
    with pytest.raises(AssertionError):
        gate(state).history(whole("m", "x"))


def test_text_deltas_are_joined_while_they_wait() -> None:
    made = gate(GateState.REPLAYING)
    for n in range(1000):
        made.live(chunk("m", f"{n} "))
    assert made.waiting == 1
    made.live(NOTICE)
    made.live(chunk("m", "x"))
    made.live(chunk("other", "y"))
    made.live({**chunk("other", "z"), "content": {"type": "image", "data": "", "mimeType": "image/png"}})
    assert made.waiting == 5
    made.complete()
    assert made.release()[0] == chunk("m", "".join(f"{n} " for n in range(1000)))


def test_a_request_between_two_deltas_keeps_its_place() -> None:
    made = gate(GateState.REPLAYING)
    made.live(chunk("m", "a"))
    made.ask("ask")
    made.live(chunk("m", "b"))
    made.complete()
    assert made.release() == [chunk("m", "a"), "ask", chunk("m", "b")]


def test_a_withdrawn_request_no_longer_waits() -> None:
    made = gate(GateState.MARKED)
    made.ask("ask")
    assert made.withdraw("ask")
    assert not made.withdraw("ask")
    assert made.release() == []


def test_a_chunk_of_a_message_that_the_history_gave_whole_is_dropped() -> None:
    made = gate(GateState.REPLAYING)
    made.live(chunk("waits", "a"))
    made.live(NOTICE)
    made.history(whole("waits", "a"))
    made.history(whole("late", "b"))
    assert not made.live(chunk("late", "b"))
    made.complete()
    assert made.release() == [NOTICE]
    assert not made.live(chunk("late", "b")), "also after the gate opened"
    assert made.live(chunk("new", "c"))
    assert made.live(whole("late", "b")), "a full upsert doubles nothing"


def test_a_message_of_the_cut_goes_on_after_it() -> None:
    made = gate(GateState.OPEN)
    made.hold()
    made.live(chunk("m", "before "))
    made.live(NOTICE)
    made.cut(frozenset({("agent_message", "m")}))
    made.begin()
    made.history(whole("m", "before "))
    made.live(chunk("m", "after"))
    made.complete()
    assert made.release() == [NOTICE, chunk("m", "after")]


def test_the_replayed_messages_that_are_remembered_of_a_quiet_session_are_bounded() -> None:
    made = gate(GateState.REPLAYING)
    for n in range(RECENT + 1):
        made.history(whole(f"m{n}", "x"))
    made.complete()
    made.release()
    assert made.live(chunk("m0", "x"))
    assert not made.live(chunk(f"m{RECENT}", "x"))


def test_of_a_session_that_works_every_replayed_message_is_remembered_until_all_has_come() -> None:
    made = gate(GateState.OPEN)
    made.begin(live=True)
    for n in range(RECENT + 1):
        made.history(whole(f"m{n}", "x"))
    made.passed()
    made.complete()
    made.release()
    assert not made.live(chunk("m0", "x"))
    made.passed()
    assert made.live(chunk("m0", "y"))


def test_what_the_cut_took_away_is_given_back_when_the_replay_fails() -> None:
    made = gate(GateState.MARKED)
    made.live(chunk("told", "a"))
    made.live(chunk("untold", "b"))
    made.live(NOTICE)
    made.cut(frozenset({("agent_message", "told"), ("agent_message", "untold")}))
    made.begin()
    made.history(whole("told", "a"))
    made.live(chunk("told", "c"))
    made.live(chunk("untold", "d"))
    assert made.told == {("agent_message", "told")}
    assert made.abort() == [chunk("untold", "b"), NOTICE, chunk("untold", "d")]


def test_a_completed_replay_leaves_nothing_for_a_later_failure() -> None:
    made = gate(GateState.MARKED)
    made.live(chunk("m", "a"))
    made.cut(frozenset({("agent_message", "m")}))
    made.begin()
    made.history(whole("m", "a"))
    made.complete()
    made.live(chunk("m", "b"))
    assert made.told == frozenset()
    assert made.abort() == [chunk("m", "b")]


class GateMachine(RuleBasedStateMachine):
    """One gate and the client behind it; what is streamed is stored whole at some time."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: Gate[int] = Gate()
        self.sent: list[Mapping[str, Any]] = []
        self.texts: dict[str, str] = {}
        self.stored: set[str] = set()
        self.cut: dict[str, str] = {}
        self.markers = 0
        self.notices = 0
        self.asks: list[int] = []
        self.asked = 0

    def deliver(self, items: list[Mapping[str, Any] | int]) -> None:
        for item in items:
            if isinstance(item, int):
                self.asks.append(item)
            else:
                self.sent.append(item)

    @rule(which=st.integers(0, 2), text=st.sampled_from(["a", "bc"]))
    def stream(self, which: int, text: str) -> None:
        name = f"m{len(self.stored) + which}"
        if name in self.stored:
            return
        self.texts[name] = self.texts.get(name, "") + text
        update = chunk(name, text)
        if self.gate.live(update):
            self.sent.append(update)

    @rule()
    def notice(self) -> None:
        self.notices += 1
        if self.gate.live(NOTICE):
            self.sent.append(NOTICE)

    @rule()
    def ask(self) -> None:
        self.asked += 1
        if self.gate.ask(self.asked):
            self.asks.append(self.asked)

    @precondition(lambda self: self.texts.keys() - self.stored)
    @rule()
    def store(self) -> None:
        self.stored.add(min(self.texts.keys() - self.stored))

    @precondition(lambda self: self.gate.state is not GateState.REPLAYING)
    @rule()
    def begin(self) -> None:
        """The journal has all that is not stored."""
        self.cut = {name: self.texts[name] for name in self.texts.keys() - self.stored}
        self.gate.cut(frozenset(("agent_message", name) for name in self.cut))
        self.gate.begin(live=True)

    @precondition(lambda self: self.gate.state is GateState.REPLAYING)
    @rule()
    def read_and_complete(self) -> None:
        for name in sorted(self.stored):
            self.sent.append(self.gate.history(whole(name, self.texts[name])))
        # Also of what was stored since: its state at the cut, and what waits follows it.
        for name, text in self.cut.items():
            self.sent.append(self.gate.history(whole(name, text)))
        self.sent.append(self.gate.complete())
        self.markers += 1

    @precondition(lambda self: self.gate.state is not GateState.REPLAYING)
    @rule()
    def release(self) -> None:
        self.deliver(self.gate.release())

    @rule()
    def hold(self) -> None:
        self.gate.hold()

    @invariant()
    def what_was_sent_is_right(self) -> None:
        assert sum(update == MARKER for update in self.sent) == self.markers
        assert self.asks == sorted(set(self.asks)), "in order, and each once"

    def teardown(self) -> None:
        if self.gate.state is GateState.REPLAYING:
            self.read_and_complete()
        self.deliver(self.gate.release())
        shown: dict[str, str] = {}
        for update in self.sent:
            if update["sessionUpdate"] == "agent_message":
                shown[update["messageId"]] = update["content"][0]["text"]
            elif update["sessionUpdate"] == "agent_message_chunk":
                shown[update["messageId"]] = shown.get(update["messageId"], "") + update["content"]["text"]
        assert shown == self.texts
        assert sum(update == NOTICE for update in self.sent) == self.notices
        assert self.asks == list(range(1, self.asked + 1))


TestGate = GateMachine.TestCase
TestGate.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_the_machine_speaks_of_entities() -> None:
    assert entity_of(chunk("m", "x")) == entity_of(whole("m", "x")) == ("agent_message", "m")
