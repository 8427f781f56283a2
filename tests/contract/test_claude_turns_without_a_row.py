"""What the CLI's frames say of a message that gets no row. Recorded shapes, no process."""

from __future__ import annotations

import pytest

from sayagain_claude.turns import Turns


def lifecycle(state: str, message_id: str = "mine") -> dict[str, str]:
    return {"type": "command_lifecycle", "command_uuid": message_id, "state": state}


@pytest.mark.parametrize(
    ("states", "over"),
    [
        (["queued"], False),
        (["queued", "cancelled"], True),
        (["cancelled"], True),
        (["queued", "started"], False),
        (["queued", "started", "completed"], True),
        (["queued", "started", "cancelled"], True),
        (["completed"], False),
    ],
)
def test_a_message_is_over_when_it_is_cancelled_or_done(states: list[str], over: bool) -> None:
    turns = Turns("session")
    turns.submit("mine")
    told = [turns.over_without_row(frame) for frame in map(lifecycle, states) if not list(turns.frame(frame))]
    assert told == [False] * (len(states) - 1) + [over]


def test_the_end_of_another_message_says_nothing_of_this_one() -> None:
    turns = Turns("session")
    turns.submit("mine")
    assert not turns.over_without_row(lifecycle("cancelled", "another"))
