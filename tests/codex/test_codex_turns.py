"""The root thread's turns, told by notifications: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from sayagain.errors import AuthRequired, HistoryUnreadable, PromptRefused, RequestCancelled, RuntimeDied, to_wire
from sayagain.runtime.events import Foreground, Inserted, Rejected
from sayagain_codex.turns import Lost, Turns

USAGE = {"totalTokens": 5, "inputTokens": 3, "outputTokens": 2}


class Told:
    """What came out, in short words."""

    def __init__(self) -> None:
        self.background: list[Mapping[str, Any]] = []
        self.turns = Turns("s", background=lambda: self.background, usage=lambda: USAGE)
        self.words: list[str] = []
        self.events: list[Any] = []

    def take(self, events: Iterable[Any]) -> list[str]:
        new: list[str] = []
        for event in events:
            self.events.append(event)
            match event:
                case Foreground():
                    new.append(event.state + (f":{event.stop_reason}" if event.stop_reason else ""))
                case Inserted() | Rejected() | Lost():
                    new.append(f"{type(event).__name__}:{event.message_id}")
                case _:
                    raise AssertionError(event)
        self.words += new
        return new

    def notify(self, method: str, params: Mapping[str, Any]) -> list[str]:
        new = self.take(self.turns.stored()) if self.turns.is_proof(method, params) else []
        return new + self.take(self.turns.notification(method, params))

    def active(self, *flags: str) -> list[str]:
        return self.notify("thread/status/changed", {"status": {"type": "active", "activeFlags": list(flags)}})

    def started(self, turn_id: str = "t1") -> list[str]:
        return self.notify("turn/started", {"turn": {"id": turn_id}})

    def item(self, client_id: str | None, method: str = "item/completed") -> list[str]:
        return self.notify(method, {"item": {"type": "userMessage", "id": "i", "clientId": client_id}})

    def completed(self, turn_id: str = "t1", status: str = "completed", **more: Any) -> list[str]:
        return self.notify("turn/completed", {"turn": {"id": turn_id, "status": status, **more}})

    def submit(self, message_id: str = "m", turn_id: str = "t1") -> None:
        self.turns.submit(message_id)
        self.turns.taken({"turn": {"id": turn_id}})


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_turn_from_end_to_end(told: Told) -> None:
    told.submit()
    assert told.active() == ["running"]
    assert told.started() == []
    assert told.item("m", "item/started") == []
    assert told.item("other") == []
    assert told.item("m") == ["Inserted:m"]
    assert told.notify("thread/status/changed", {"status": {"type": "idle"}}) == []
    assert told.completed() == ["idle:end_turn"]
    assert told.events[-1].usage == USAGE
    assert told.turns.submitted is None


def test_waiting_for_the_user_is_told_by_flags(told: Told) -> None:
    told.submit()
    told.active()
    told.item("m")
    assert told.active("waitingOnApproval") == ["requires_action"]
    assert told.active() == ["running"]
    assert told.active("waitingOnUserInput") == ["requires_action"]
    assert told.completed() == ["idle:end_turn"]


def test_a_turn_that_starts_by_itself(told: Told) -> None:
    assert told.started("own") == ["running"]
    assert told.item(None) == []
    assert told.completed("own") == ["idle:end_turn"]


def test_a_turn_without_the_message_refuses_it(told: Told) -> None:
    told.turns.checked()
    assert not told.turns.suspect
    told.submit()
    told.started()
    assert told.completed() == ["Rejected:m", "idle:end_turn"]
    assert isinstance(told.events[-2].error, PromptRefused)
    assert told.turns.suspect


def test_a_hook_says_why(told: Told) -> None:
    told.submit()
    told.started()
    run = {"status": "blocked", "entries": [{"kind": "feedback", "text": "not this"}]}
    told.notify("hook/completed", {"run": run})
    told.completed()
    assert str(told.events[-2].error) == "not this"


def test_the_end_of_an_earlier_turn_is_no_word_on_the_message(told: Told) -> None:
    told.started("own")
    told.submit(turn_id="t2")
    assert told.completed("own") == ["idle:end_turn"]
    told.started("t2")
    assert told.item("m") == ["Inserted:m"]


def test_a_steer_that_vanishes_is_lost(told: Told) -> None:
    told.started("own")
    told.submit(turn_id="own")
    assert told.completed("own", "interrupted") == ["idle:cancelled", "Lost:m"]
    assert told.turns.submitted == "m"
    told.turns.taken({"turn": {"id": "t2"}})
    told.started("t2")
    assert told.item("m") == ["Inserted:m"]
    assert told.completed("t2") == ["idle:end_turn"]


def test_a_steer_that_is_stored_ends_with_its_turn(told: Told) -> None:
    told.started("own")
    told.submit(turn_id="own")
    assert told.item("m") == ["Inserted:m"]
    assert told.completed("own") == ["idle:end_turn"]


def test_a_steer_of_cancelled_work_is_cancelled(told: Told) -> None:
    told.started("own")
    told.submit(turn_id="own")
    told.turns.interrupt()
    assert told.completed("own", "interrupted") == ["Rejected:m", "idle:cancelled"]
    assert isinstance(told.events[-2].error, RequestCancelled)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ({"status": "completed"}, "end_turn"),
        ({"status": "interrupted"}, "cancelled"),
        ({"status": "failed", "error": {"message": "m"}}, "error"),
        ({"status": "failed"}, "error"),
    ],
)
def test_stop_reasons(told: Told, turn: dict[str, Any], reason: str) -> None:
    told.started()
    assert told.completed(**turn) == [f"idle:{reason}"]
    assert (told.events[-1].error is not None) == (reason == "error")


def test_a_cancelled_turn_that_ends_well_ended_well(told: Told) -> None:
    told.started()
    told.turns.interrupt()
    assert told.completed() == ["idle:end_turn"]
    told.started("t2")
    told.turns.interrupt()
    assert told.completed("t2", "failed", error={"message": "aborted"}) == ["idle:cancelled"]


@pytest.mark.parametrize(
    ("info", "auth"),
    [
        ("unauthorized", True),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, True),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 401}}, True),
        ({"httpConnectionFailed": {"httpStatusCode": 403}}, False),
        ({"httpConnectionFailed": None}, False),
        ("usageLimitExceeded", False),
        (None, False),
    ],
)
def test_which_errors_ask_for_a_login(told: Told, info: Any, auth: bool) -> None:
    told.started()
    told.completed(status="failed", error={"message": "m", "codexErrorInfo": info})
    assert (told.events[-1].error["code"] == AuthRequired.code) == auth


def test_death(told: Told) -> None:
    error = RuntimeDied("gone")
    assert told.take(told.turns.died(error)) == []
    told.started()
    assert told.take(told.turns.died(error)) == ["idle:error"]
    assert told.events[-1].error == to_wire(error)
    told.started("t2")
    told.turns.interrupt()
    assert told.take(told.turns.died(error)) == ["idle:cancelled"]
    assert told.completed("t2") == []


def test_a_late_outcome_is_followed_by_idle(told: Told) -> None:
    told.submit()
    assert told.take(told.turns.refused(RuntimeDied())) == ["Rejected:m", "idle"]
    told.submit("n")
    assert told.take([*told.turns.began(), *told.turns.stored()]) == ["running", "Inserted:n"]
    assert told.take(told.turns.died(RuntimeDied())) == ["idle:error"]


def test_local_commands_have_the_same_life(told: Told) -> None:
    told.turns.submit("m")
    assert told.take(told.turns.local({}, works=False)) == ["running", "Inserted:m", "idle:end_turn"]
    told.turns.submit("n")
    assert told.take(told.turns.local({}, works=True)) == ["running", "Inserted:n"]
    told.started()
    assert told.completed() == ["idle:end_turn"]


def test_the_background_is_on_every_state(told: Told) -> None:
    told.started()
    assert told.events[-1].background == []
    told.background = [{"type": "terminal", "terminalId": "x"}]
    told.completed()
    assert told.events[-1].background == told.background
    told.background = []
    told.take(told.turns.again(anew=True))
    assert (told.events[-1].state, told.events[-1].background) == ("idle", [])


@pytest.mark.parametrize("steered", [False, True])
def test_the_end_of_its_turn_says_nothing_while_a_message_is_looked_up(told: Told, steered: bool) -> None:
    if steered:
        told.active()
        told.started()
    told.submit()
    told.active()
    told.turns.confirming()
    assert told.completed() == ["idle:end_turn"]
    assert told.take(told.turns.stored()) == ["Inserted:m", "idle"]
    assert told.turns.submitted is None


@pytest.mark.parametrize("steered", [False, True])
def test_a_look_up_that_finds_nothing_is_refused_by_who_looked(told: Told, steered: bool) -> None:
    if steered:
        told.active()
        told.started()
    told.submit()
    told.active()
    told.turns.confirming()
    assert not told.turns.judged
    assert told.completed() == ["idle:end_turn"]
    assert told.turns.judged
    assert told.take(told.turns.refused(HistoryUnreadable())) == ["Rejected:m", "idle"]


def test_a_message_after_one_that_was_looked_up(told: Told) -> None:
    told.submit()
    told.active()
    told.turns.confirming()
    told.completed()
    told.take(told.turns.stored())
    told.submit("m2", "t2")
    told.active()
    assert told.completed("t2") == ["Rejected:m2", "idle:end_turn"]


REVIEW = {"turn": {"id": "r"}}
FAILED = {"error": {"message": "no repository"}}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("result", [REVIEW, {}])
def test_a_command_ends_with_what_failed_before_it_was_a_turn(told: Told, result: Any, early: bool) -> None:
    told.turns.submit("m")
    if early:
        assert told.completed("r", "failed", **FAILED) == []
        assert told.take(told.turns.local(result, works=True)) == ["running", "Inserted:m", "idle:error"]
    else:
        assert told.take(told.turns.local(result, works=True)) == ["running", "Inserted:m"]
        assert told.completed("r", "failed", **FAILED) == ["idle:error"]
    assert told.events[-1].error["message"] == "no repository"
    assert told.events[-1].usage is None
    assert told.turns.awaited is None


@pytest.mark.parametrize("early", [False, True])
def test_a_prompt_is_refused_by_what_failed_before_it_was_a_turn(told: Told, early: bool) -> None:
    told.turns.checked()
    told.turns.submit("m")
    if early:
        assert told.completed("t1", "failed", **FAILED) == []
        words = told.take(told.turns.taken({"turn": {"id": "t1"}}))
    else:
        told.turns.taken({"turn": {"id": "t1"}})
        words = told.completed("t1", "failed", **FAILED)
    assert words == ["Rejected:m", "idle"]
    assert str(told.events[0].error) == "no repository"
    assert told.turns.suspect


def test_a_review_ends_under_another_id(told: Told) -> None:
    told.turns.submit("m")
    told.take(told.turns.local(REVIEW, works=True))
    told.started("inner")
    assert told.completed("r") == ["idle:end_turn"]


def test_the_end_of_another_turn_ends_nothing(told: Told) -> None:
    told.submit(turn_id="t2")
    told.active()
    assert told.completed("t1", "failed", **FAILED) == []
    told.started("t2")
    assert told.item("m") == ["Inserted:m"]
    assert told.completed("t2") == ["idle:end_turn"]


def test_a_message_that_no_turn_takes_in_is_refused(told: Told) -> None:
    told.started("own")
    told.submit(turn_id="t2")
    assert told.notify("error", {"turnId": "t2", "willRetry": True, **FAILED}) == []
    assert told.notify("error", {"turnId": "t2", "willRetry": False, **FAILED}) == ["Rejected:m"]
    assert told.completed("own") == ["idle:end_turn"]


def test_work_that_nobody_waits_for_any_more(told: Told) -> None:
    assert told.take(told.turns.given_up(RuntimeDied("it goes on"))) == []
    told.started()
    told.turns.interrupt()
    assert told.take(told.turns.given_up(RuntimeDied("it goes on"))) == ["idle:error"]
