"""What clients that come later are told of a session as a whole."""

from __future__ import annotations

from sayagain.runtime.latest import INFO, Latest


def test_the_newest_update_of_each_kind_is_kept() -> None:
    latest = Latest()
    assert latest.remember({"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": {"amount": 1}})
    assert latest.remember({"sessionUpdate": "usage_update", "used": 2, "size": 9})
    assert latest.snapshot() == [{"sessionUpdate": "usage_update", "used": 2, "size": 9}]


def test_what_the_information_leaves_out_stays() -> None:
    latest = Latest()
    latest.remember({"sessionUpdate": INFO, "title": "Work"})
    latest.remember({"sessionUpdate": INFO, "updatedAt": "2026-01-01T00:00:00Z"})
    assert latest.of(INFO) == {"sessionUpdate": INFO, "title": "Work", "updatedAt": "2026-01-01T00:00:00Z"}


def test_what_is_said_in_the_session_is_history() -> None:
    latest = Latest()
    assert not latest.remember({"sessionUpdate": "agent_message", "messageId": "m", "content": []})
    assert latest.snapshot() == []
