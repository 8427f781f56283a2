"""The foreground state: one idle for each piece of work, none invented (UPD-4, UPD-5, UPD-8, RES-9, RES-10)."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.agent.foreground import REPORTED, ForegroundMachine
from sayagain.runtime.events import Foreground, ForegroundState

STATES: tuple[ForegroundState, ...] = get_args(ForegroundState)


def machine(state: ForegroundState, background: list[dict[str, Any]] | None = None) -> ForegroundMachine:
    made = ForegroundMachine()
    if state != "idle" or background is not None:
        made.report(Foreground("s", state, background=background))
    return made


def test_every_pair_of_states_is_decided() -> None:
    assert set(REPORTED) == {(before, after) for before in STATES for after in STATES}


@pytest.mark.parametrize(("before", "after"), sorted(REPORTED))
def test_a_change_is_reported_and_a_repetition_is_not(before: ForegroundState, after: ForegroundState) -> None:
    made = machine(before)
    update = made.report(Foreground("s", after, stop_reason="end_turn" if after == "idle" else None))
    if before == after:
        assert update is None
    else:
        expected = {"sessionUpdate": "state_update", "state": after}
        assert update == (expected | {"stopReason": "end_turn"} if after == "idle" else expected)
    assert made.active is (after != "idle")


def test_an_idle_has_its_reason_error_and_usage() -> None:
    error = {"code": -32603, "message": "down"}
    update = machine("running").report(
        Foreground("s", "idle", stop_reason="error", error=error, usage={"inputTokens": 1})
    )
    assert update == {
        "sessionUpdate": "state_update",
        "state": "idle",
        "stopReason": "error",
        "error": error,
        "usage": {"inputTokens": 1},
    }


def test_an_error_belongs_to_the_stop_reason_error_alone() -> None:
    update = machine("running").report(Foreground("s", "idle", stop_reason="end_turn", error={"code": 1}))
    assert update is not None
    assert "error" not in update


@pytest.mark.parametrize("state", STATES)
def test_a_change_of_the_background_alone_repeats_the_state(state: ForegroundState) -> None:
    made = machine(state, [])
    item = {"type": "tool_call", "toolCallId": "t"}
    event = Foreground("s", state, stop_reason="end_turn" if state == "idle" else None, background=[item])
    expected = {"sessionUpdate": "state_update", "state": state, "background": [item]}
    assert made.report(event) == expected, "without a stop reason: nothing ended"
    assert made.report(event) is None
    assert made.report(Foreground("s", state)) is None, "unknown leaves what is known"
    assert made.report(Foreground("s", state, background=[])) == {**expected, "background": []}


@pytest.mark.parametrize("state", STATES)
def test_a_background_that_nobody_knows_is_left_out(state: ForegroundState) -> None:
    assert "background" not in machine(state).snapshot()


@pytest.mark.parametrize(
    ("reason", "told"), [("end_turn", True), ("cancelled", True), ("refusal", True), ("error", False), (None, False)]
)
def test_the_snapshot_repeats_the_reason_but_no_error_and_no_usage(reason: str | None, told: bool) -> None:
    made = machine("running", [])
    made.report(Foreground("s", "idle", stop_reason=reason, error={"code": 1}, usage={"inputTokens": 1}))
    expected: dict[str, Any] = {"sessionUpdate": "state_update", "state": "idle", "background": []}
    assert made.snapshot() == (expected | {"stopReason": reason} if told else expected)


@pytest.mark.parametrize("state", ["running", "requires_action"])
def test_the_snapshot_of_work_has_no_reason_of_earlier_work(state: ForegroundState) -> None:
    made = machine("running")
    made.report(Foreground("s", "idle", stop_reason="cancelled"))
    made.report(Foreground("s", state))
    assert made.snapshot() == {"sessionUpdate": "state_update", "state": state}


@given(st.lists(st.sampled_from(STATES), max_size=30))
def test_idles_and_pieces_of_work_are_equally_many(states: list[ForegroundState]) -> None:
    made = ForegroundMachine()
    sent = [update["state"] for state in states if (update := made.report(Foreground("s", state))) is not None]
    work = sum(after != "idle" and before == "idle" for before, after in zip(["idle", *sent], sent, strict=False))
    assert sent.count("idle") == work - made.active
    assert all(before != after for before, after in zip(["idle", *sent], sent, strict=False))
