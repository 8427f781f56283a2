"""The prompt table: every state and event, and whatever order they come in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sayagain.agent.prompts import MAX_UNSTORED, TRANSITIONS, Answer, Event, PromptTable, State
from sayagain.errors import HistoryUnreadable, InvalidParams, PromptRefused, RequestCancelled, RuntimeDied

Content = list[dict[str, Any]]


def content(text: str = "hello") -> Content:
    return [{"type": "text", "text": text}]


def table(known: set[str] | None = frozenset()) -> PromptTable[str]:  # type: ignore[assignment]
    return PromptTable(known)


def in_state(state: State) -> PromptTable[str]:
    """A table in which message ``m`` stands in this state, with the waiter ``w``."""
    made = table(None if state in (State.CHECKING, State.DOUBTED) else set())
    if state is not State.UNKNOWN:
        assert made.arrive("w", "m", content(), keyed=True) == []
    if state in (State.SUBMITTED, State.INSERTED):
        assert made.submit_next() is not None
    if state is State.INSERTED:
        made.stored("m")
    if state is State.DOUBTED:
        assert made.cancel("w") == ([], None)
    assert made.state("m") is state
    return made


def cancelled(answers: list[Answer[str]]) -> list[str]:
    assert all(isinstance(answer.error, RequestCancelled) for answer in answers)
    return [answer.waiter for answer in answers]


def test_the_transitions_are_the_ones_of_the_design() -> None:
    assert {(s.name, e.name): to.name for (s, e), to in TRANSITIONS.items()} == {
        ("UNKNOWN", "ARRIVE"): "CHECKING",
        ("CHECKING", "FOUND"): "INSERTED",
        ("CHECKING", "ABSENT"): "HELD",
        ("CHECKING", "REFUSE"): "UNKNOWN",
        ("CHECKING", "WITHDRAW"): "DOUBTED",
        ("HELD", "SUBMIT"): "SUBMITTED",
        ("HELD", "REFUSE"): "UNKNOWN",
        ("HELD", "WITHDRAW"): "UNKNOWN",
        ("SUBMITTED", "STORE"): "INSERTED",
        ("SUBMITTED", "REFUSE"): "UNKNOWN",
        ("SUBMITTED", "WITHDRAW"): "UNKNOWN",
        ("SUBMITTED", "DOUBT"): "DOUBTED",
        ("DOUBTED", "ARRIVE"): "CHECKING",
        ("DOUBTED", "FOUND"): "INSERTED",
        ("DOUBTED", "ABSENT"): "UNKNOWN",
        ("DOUBTED", "REFUSE"): "UNKNOWN",
        ("DOUBTED", "WITHDRAW"): "DOUBTED",
    }
    assert not any(state is State.INSERTED for state, _ in TRANSITIONS), "what is stored stays stored"
    assert {event for _, event in TRANSITIONS} == set(Event)


@pytest.mark.parametrize("state", list(State))
def test_a_retry_in_every_state(state: State) -> None:
    made = in_state(state)
    answers = made.arrive("again", "m", content(), keyed=True)
    if state is State.INSERTED:
        assert answers == [Answer("again", "m")]
    else:
        assert answers == []
        expected = {State.UNKNOWN: State.HELD, State.DOUBTED: State.CHECKING}
        assert made.state("m") is expected.get(state, state)


@pytest.mark.parametrize("state", [state for state in State if state is not State.UNKNOWN])
def test_another_prompt_under_the_key_in_every_state(state: State) -> None:
    made = in_state(state)
    with pytest.raises(InvalidParams):
        made.arrive("other", "m", content("other"), keyed=True)
    assert made.state("m") is state


@pytest.mark.parametrize("state", list(State))
def test_a_cancellation_in_every_state(state: State) -> None:
    made = in_state(state)
    made.arrive("second", "m", content(), keyed=True)
    answers, submitted = made.cancel("second" if state in (State.UNKNOWN, State.DOUBTED) else "w")
    if state is State.SUBMITTED:
        assert (answers, submitted) == ([], "m")
        assert cancelled(made.withdrawn("m")) == ["w", "second"]
    elif state is State.INSERTED:
        assert (answers, submitted) == ([], None)
        assert made.state("m") is State.INSERTED
        return
    elif state in (State.CHECKING, State.DOUBTED):
        assert (answers, submitted) == ([], None), "it may be stored, and then none of them was withdrawn"
        assert made.state("m") is State.DOUBTED
        assert made.in_doubt
        assert made.needs_history
        assert cancelled(made.learn(set())) == ["w", "second"]
    else:
        assert submitted is None
        assert cancelled(answers) == (["second"] if state is State.UNKNOWN else ["w", "second"])
    assert made.state("m") is State.UNKNOWN
    assert not made.in_doubt


@pytest.mark.parametrize("state", list(State))
def test_a_session_cancel_in_every_state(state: State) -> None:
    made = in_state(state)
    answers, submitted = made.cancel_all("enough")
    assert submitted == ("m" if state is State.SUBMITTED else None)
    assert cancelled(answers) == (["w"] if state is State.HELD else [])
    if state in (State.CHECKING, State.DOUBTED):
        assert made.state("m") is State.DOUBTED
        assert made.cancel_all("again") == ([], None)
        assert cancelled(made.learn(set())) == ["w"]


@pytest.mark.parametrize("state", list(State))
def test_storing_in_every_state_but_the_one_it_cannot_happen_in(state: State) -> None:
    if state is State.HELD:
        return
    made = in_state(state)
    waits = state in (State.CHECKING, State.DOUBTED, State.SUBMITTED)
    assert made.stored("m") == ([Answer("w", "m")] if waits else [])
    assert made.state("m") is State.INSERTED


@pytest.mark.parametrize("state", list(State))
def test_a_refusal_in_every_state(state: State) -> None:
    made = in_state(state)
    error = RuntimeDied()
    answers = made.refused("m", error)
    waits = state not in (State.UNKNOWN, State.INSERTED)
    assert answers == ([Answer("w", "m", error)] if waits else [])
    assert made.state("m") is (State.INSERTED if state is State.INSERTED else State.UNKNOWN)


@pytest.mark.parametrize("state", list(State))
def test_a_doubt_in_every_state(state: State) -> None:
    made = in_state(state)
    made.doubt("m", RuntimeDied())
    assert not made.history_known
    expected = {State.SUBMITTED: State.DOUBTED}
    assert made.state("m") is expected.get(state, state)


@pytest.mark.parametrize("state", list(State))
def test_a_withdrawal_that_the_runtime_granted_in_every_state(state: State) -> None:
    made = in_state(state)
    answers = made.withdrawn("m")
    assert cancelled(answers) == (["w"] if state is State.SUBMITTED else [])
    assert made.state("m") is (State.UNKNOWN if state is State.SUBMITTED else state)


@pytest.mark.parametrize("found", [True, False])
def test_a_message_in_doubt_is_answered_by_the_next_read(found: bool) -> None:
    made = in_state(State.SUBMITTED)
    error = RuntimeDied()
    made.doubt("m", error)
    assert made.needs_history
    assert made.next_held is None
    made.work_ended()
    assert made.learn({"m"} if found else set()) == [Answer("w", "m", None if found else error)]
    assert made.state("m") is (State.INSERTED if found else State.UNKNOWN)
    if found:
        with pytest.raises(InvalidParams):
            made.arrive("other", "m", content("other"), keyed=True)


def test_a_message_in_doubt_whose_history_cannot_be_read() -> None:
    made = in_state(State.SUBMITTED)
    made.doubt("m", RuntimeDied())
    error = HistoryUnreadable()
    assert made.history_failed(error) == [Answer("w", "m", error)]
    assert made.state("m") is State.UNKNOWN


@pytest.mark.parametrize("found", [True, False])
def test_a_retry_of_a_message_in_doubt_is_served_as_a_new_one(found: bool) -> None:
    made = in_state(State.DOUBTED)
    made.arrive("again", "m", content(), keyed=True)
    answers = made.learn({"m"} if found else set())
    if found:
        assert answers == [Answer("w", "m"), Answer("again", "m")]
        return
    assert cancelled(answers) == ["w"]
    prompt = made.submit_next()
    assert prompt is not None
    assert made.stored("m") == [Answer("again", "m")]


def test_a_read_that_began_before_a_doubt_teaches_nothing() -> None:
    made = in_state(State.SUBMITTED)
    reading = made.reading
    made.doubt("m", RuntimeDied())
    assert made.learn(set(), reading) == []
    assert not made.history_known
    assert made.state("m") is State.DOUBTED
    assert made.learn({"m"}, made.reading) == [Answer("w", "m")]


@pytest.mark.parametrize("found", [True, False])
def test_learning_the_history(found: bool) -> None:
    made = in_state(State.CHECKING)
    made.arrive("second", "m", content("hello"), keyed=True)
    assert made.needs_history
    answers = made.learn({"m", "x"} if found else {"x"})
    assert answers == ([Answer("w", "m"), Answer("second", "m")] if found else [])
    assert made.state("m") is (State.INSERTED if found else State.HELD)
    assert made.history_known
    assert made.arrive("third", "x", content("anything"), keyed=True) == [Answer("third", "x")]


def test_an_unreadable_history_refuses_those_that_wait_for_it_alone() -> None:
    made = table(None)
    made.arrive("keyed", "k", content(), keyed=True)
    made.arrive("plain", "p", content(), keyed=False)
    error = HistoryUnreadable()
    assert made.history_failed(error) == [Answer("keyed", "k", error)]
    assert not made.history_known
    assert made.state("p") is State.HELD


def test_a_submitted_message_in_a_history_that_is_read_waits_for_the_runtimes_own_word() -> None:
    made = table(None)
    made.arrive("plain", "p", content(), keyed=False)
    made.submit_next()
    assert made.learn({"p"}) == []
    assert made.submitted is not None
    assert made.stored("p") == [Answer("plain", "p")]


def test_one_message_is_submitted_at_a_time_oldest_first() -> None:
    made = table()
    for name in "abc":
        made.arrive(name, name, content(name), keyed=True)
    made.work_started()
    assert made.submit_next() is None
    made.work_ended()
    order = []
    while (prompt := made.submit_next()) is not None:
        order.append(prompt.message_id)
        assert made.next_held is None
        made.stored(prompt.message_id)
        assert made.submit_next() is None, "stored, and the work goes on"
        assert made.busy
        made.work_ended()
    assert order == ["a", "b", "c"]


def test_work_that_ends_before_the_outcome_is_known_frees_nothing() -> None:
    made = in_state(State.SUBMITTED)
    made.arrive("next", "n", content(), keyed=True)
    made.work_ended()
    assert made.submit_next() is None
    made.stored("m")
    assert made.submit_next() is None, "its own work has not ended"
    made.work_ended()
    assert made.submit_next() is not None


def test_a_withdrawal_leaves_other_work_running() -> None:
    made = in_state(State.SUBMITTED)
    made.arrive("next", "n", content(), keyed=True)
    made.work_started()
    made.withdrawn("m")
    assert made.busy
    assert made.submit_next() is None
    made.work_ended()
    assert made.submit_next() is not None


def test_a_withdrawal_of_all_that_runs_lets_the_next_one_go() -> None:
    made = in_state(State.SUBMITTED)
    made.arrive("next", "n", content(), keyed=True)
    made.withdrawn("m")
    assert made.submit_next() is not None


def test_whether_too_many_wait_is_said_of_messages_that_are_not_stored() -> None:
    made = table(None)
    for n in range(MAX_UNSTORED + 2):
        assert made.arrive(f"w{n}", f"m{n}", content(), keyed=True) == []
    stored = ["m1", f"m{MAX_UNSTORED + 1}"]
    assert made.learn(set(stored)) == [Answer(f"w{name[1:]}", name) for name in stored]
    assert len(made) == MAX_UNSTORED


def test_too_many_of_an_unread_history_are_refused_when_it_was_read() -> None:
    made = table(None)
    for n in range(MAX_UNSTORED + 1):
        made.arrive(f"w{n}", f"m{n}", content(), keyed=True)
    (answer,) = made.learn(set())
    assert answer.waiter == f"w{MAX_UNSTORED}"
    assert isinstance(answer.error, PromptRefused)
    assert len(made) == MAX_UNSTORED


@pytest.mark.parametrize("extra", [{"annotations": None}, {"_meta": {"trace": "1"}}, {"_meta": None}])
def test_what_says_nothing_about_a_prompt_does_not_make_it_another(extra: dict[str, Any]) -> None:
    made = in_state(State.INSERTED)
    assert made.arrive("again", "m", [{**content()[0], **extra}], keyed=True) == [Answer("again", "m")]
    assert made.arrive("again", "m", ({**content()[0], **extra},), keyed=True) == [Answer("again", "m")]


def test_what_waits_is_bounded() -> None:
    made = table()
    for n in range(MAX_UNSTORED):
        made.arrive(f"w{n}", f"m{n}", content(), keyed=True)
    with pytest.raises(PromptRefused):
        made.arrive("more", "more", content(), keyed=True)
    assert made.arrive("retry", "m0", content(), keyed=True) == []
    assert len(made) == MAX_UNSTORED


def test_lone_surrogates_can_be_compared() -> None:
    made = table()
    made.arrive("w", "m", content("\ud83d"), keyed=True)
    made.arrive("again", "m", content("\ud83d"), keyed=True)
    with pytest.raises(InvalidParams):
        made.arrive("other", "m", content("\ud83e"), keyed=True)


KEYS = st.sampled_from(["k1", "k2", "k3"])


class PromptTableMachine(RuleBasedStateMachine):
    """A session in one process: requests, cancellations, the runtime and the history in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: set[str] = set()
        self.table: PromptTable[int] = PromptTable(None)
        self.last = 0
        self.texts: dict[str, str] = {}
        self.waiting: dict[int, str] = {}
        """Requests without an answer, and the message of each."""
        self.reading: tuple[int, set[str]] | None = None
        """A read of the history under way: what it will tell."""

    def take(self, answers: list[Answer[int]]) -> None:
        outcomes: dict[str, set[str]] = {}
        for answer in answers:
            assert self.waiting.pop(answer.waiter) == answer.message_id, "answered once, and for its own message"
            outcomes.setdefault(answer.message_id, set()).add(type(answer.error).__name__)
            if answer.error is None:
                assert answer.message_id in self.disk, "an answer with an id means that it is stored"
            elif not isinstance(answer.error, HistoryUnreadable):
                assert answer.message_id not in self.disk, "an error means that it is not"
        assert all(len(kinds) == 1 for kinds in outcomes.values()), "equal answers for one message"
        again = outcomes.keys() & set(self.waiting.values())
        assert all(outcomes[message_id] <= {"RequestCancelled", "RuntimeDied"} for message_id in again), (
            "all requests of a message together, but those that came after it was given up"
        )

    @rule(key=KEYS, text=st.sampled_from(["hello", "other"]))
    def prompt(self, key: str, text: str) -> None:
        self.last += 1
        waiter = self.last
        pending = key in self.waiting.values()
        self.waiting[waiter] = key
        try:
            self.take(self.table.arrive(waiter, key, content(text), keyed=True))
        except InvalidParams:
            del self.waiting[waiter]
            assert self.texts[key] != text
            assert pending or key in self.disk
            return
        if not pending and key not in self.disk:
            self.texts[key] = text

    @rule()
    def prompt_without_a_key(self) -> None:
        self.last += 1
        self.waiting[self.last] = f"fresh-{self.last}"
        self.take(self.table.arrive(self.last, f"fresh-{self.last}", content(), keyed=False))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiter = data.draw(st.integers(1, max(1, self.last)))
        answers, submitted = self.table.cancel(waiter)
        self.take(answers)
        self.give_back(submitted, taken_back=data.draw(st.booleans()))

    @rule(taken_back=st.booleans())
    def cancel_all(self, taken_back: bool) -> None:
        answers, submitted = self.table.cancel_all("enough")
        self.take(answers)
        self.give_back(submitted, taken_back=taken_back)

    def give_back(self, submitted: str | None, *, taken_back: bool) -> None:
        if submitted is not None and taken_back:
            self.take(self.table.withdrawn(submitted))
            assert self.table.state(submitted) is State.UNKNOWN

    @precondition(lambda self: not self.table.history_known)
    @rule(works=st.booleans())
    def read_history(self, works: bool) -> None:
        self.take(self.table.learn(set(self.disk)) if works else self.table.history_failed(HistoryUnreadable()))

    @rule()
    def begin_to_read(self) -> None:
        """As a replay does, which takes its time."""
        self.reading = self.table.reading, set(self.disk)

    @precondition(lambda self: self.reading is not None and not self.table.history_known)
    @rule()
    def end_reading(self) -> None:
        assert self.reading is not None
        reading, ids = self.reading
        self.reading = None
        self.take(self.table.learn(ids, reading))

    @rule()
    def submit(self) -> None:
        before = self.table.submitted
        prompt = self.table.submit_next()
        if prompt is not None:
            assert before is None
            assert prompt.message_id not in self.disk, "nothing is inserted twice"

    @precondition(lambda self: self.table.submitted is not None)
    @rule(stored=st.booleans())
    def outcome(self, stored: bool) -> None:
        prompt = self.table.submitted
        assert prompt is not None
        if stored:
            assert prompt.message_id not in self.disk
            self.disk.add(prompt.message_id)
            self.take(self.table.stored(prompt.message_id))
        else:
            self.take(self.table.refused(prompt.message_id, RuntimeDied()))
            self.table.work_ended()

    @precondition(lambda self: self.table.submitted is not None)
    @rule(stored=st.booleans())
    def doubt(self, stored: bool) -> None:
        """The runtime ends, and nobody can tell."""
        prompt = self.table.submitted
        assert prompt is not None
        if stored:
            self.disk.add(prompt.message_id)
        self.table.doubt(prompt.message_id, RuntimeDied())
        self.table.work_ended()

    @rule()
    def work_starts(self) -> None:
        self.table.work_started()

    @rule()
    def work_ends(self) -> None:
        self.table.work_ended()

    @precondition(lambda self: not self.waiting)
    @rule()
    def restart(self) -> None:
        """The next process knows what is stored, and nothing else."""
        self.table = PromptTable(None)
        self.texts = {}
        self.reading = None

    @invariant()
    def one_submitted_at_most(self) -> None:
        states = [self.table.state(message_id) for message_id in set(self.waiting.values())]
        assert states.count(State.SUBMITTED) <= 1
        assert not {State.UNKNOWN, State.INSERTED} & set(states), "what waits is known, and what is stored is answered"

    @invariant()
    def what_is_stored_is_known(self) -> None:
        if self.table.history_known:
            assert all(self.table.state(message_id) is State.INSERTED for message_id in self.disk)

    def teardown(self) -> None:
        """After anything, all is answered and a new prompt goes through (I9, I12)."""
        if not self.table.history_known:
            self.take(self.table.learn(set(self.disk)))
        self.last += 1
        self.waiting[self.last] = "final"
        self.take(self.table.arrive(self.last, "final", content(), keyed=True))
        for _ in range(self.last + 1):
            if self.table.submitted is None:
                self.table.work_ended()
                if self.table.submit_next() is None:
                    break
            self.outcome(stored=True)
        assert self.waiting == {}
        assert self.table.state("final") is State.INSERTED


TestPromptTable = PromptTableMachine.TestCase
TestPromptTable.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
