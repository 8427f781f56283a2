"""How work ends, where Codex tells it by halves: pure."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain_codex.endings import Endings

ERROR = {"message": "no repository"}
OWN = {"message": "the model is gone"}


@pytest.fixture
def endings() -> Endings:
    return Endings()


def error(turn_id: str, thread_id: str = "t", *, retry: bool = False, **error: Any) -> tuple[str, dict[str, Any]]:
    return "error", {"threadId": thread_id, "turnId": turn_id, "willRetry": retry, "error": error or ERROR}


def started(turn_id: str, thread_id: str = "t") -> tuple[str, dict[str, Any]]:
    return "turn/started", {"threadId": thread_id, "turn": {"id": turn_id}}


def completed(turn_id: str, status: str = "failed", error: Any = ERROR) -> tuple[str, dict[str, Any]]:
    return "turn/completed", {"threadId": "t", "turn": {"id": turn_id, "status": status, "error": error}}


def ending(endings: Endings, *notification: Any) -> tuple[str, Any]:
    ((method, params),) = endings.told(*completed(*notification))
    assert method == "turn/completed"
    return params["turn"]["status"], params["turn"]["error"]


def test_an_error_without_a_turn_is_an_end(endings: Endings) -> None:
    told, end = endings.told(*error("r"))
    assert told == error("r")
    assert end == (
        "turn/completed",
        {"threadId": "t", "turn": {"id": "r", "status": "failed", "error": ERROR, "items": []}},
    )


def test_the_error_of_a_turn_is_no_end_of_its_own(endings: Endings) -> None:
    endings.told(*started("t1"))
    assert endings.told(*error("t1")) == [error("t1")]
    # Nor does that of something else end it.
    assert endings.told(*error("r")) == [error("r")]
    assert len(endings.told(*error("r", "another thread"))) == 2
    assert endings.told(*error("r", "third", retry=True)) == [error("r", "third", retry=True)]


def test_a_turn_has_two_ids(endings: Endings) -> None:
    endings.told("turn/started", {"threadId": "t", "turn": {"id": "inner", "rootTurnId": "r"}})
    assert len(endings.told(*error("r"))) == 1
    assert len(endings.told(*error("inner", **OWN))) == 1
    assert ending(endings, "r", "failed", OWN) == ("failed", OWN)
    endings.told("turn/started", {"threadId": "t", "turn": {"id": "inner", "rootTurnId": "r"}})
    endings.told(*error("other"))
    assert ending(endings, "r") == ("completed", None)


def test_the_next_turn_is_not_failed_by_an_error_before_it(endings: Endings) -> None:
    endings.told(*error("r"))
    endings.told(*started("t1"))
    assert ending(endings, "t1") == ("completed", None)
    # It is forgotten with that.
    endings.told(*started("t2"))
    assert ending(endings, "t2") == ("failed", ERROR)


@pytest.mark.parametrize("errors", [["t1", "r"], ["r", "t1"]])
def test_a_turn_is_failed_by_its_own_error(endings: Endings, errors: list[str]) -> None:
    endings.told(*started("t1"))
    for turn_id in errors:
        endings.told(*error(turn_id, **(OWN if turn_id == "t1" else ERROR)))
    assert ending(endings, "t1") == ("failed", OWN)


def test_other_ends_stay_as_they_are(endings: Endings) -> None:
    endings.told(*error("r"))
    assert ending(endings, "t1", "interrupted", None) == ("interrupted", None)
    assert ending(endings, "t2") == ("failed", ERROR)
    endings.told(*error("r"))
    endings.clear()
    assert ending(endings, "t3") == ("failed", ERROR)


@pytest.mark.parametrize("method", ["error", "turn/started", "turn/completed"])
def test_odd_notifications_pass(endings: Endings, method: str) -> None:
    assert endings.told(method, {})[0][0] == method
