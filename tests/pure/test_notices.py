"""Notices: what they say, and that each is given once."""

from __future__ import annotations

from sayagain.protocol import notices
from sayagain.protocol.notices import GivenNotices, notice_from


def test_a_title_of_many_lines_goes_on_in_the_description() -> None:
    assert notice_from("Claude Code", "warning", " First\nSecond\n", "Third") == {
        "sessionUpdate": "notice",
        "severity": "warning",
        "title": "First",
        "description": "Second\nThird",
    }


def test_there_is_always_a_title() -> None:
    assert notice_from("Codex", "info", "  ") == {"sessionUpdate": "notice", "severity": "info", "title": "Codex"}


def test_each_is_given_once_and_the_oldest_are_forgotten() -> None:
    given = GivenNotices()
    keys = [str(number) for number in range(notices._REMEMBERED + 1)]
    assert [given.first(key) for key in (keys[0], keys[0], *keys[1:])] == [True, False] + [True] * len(keys[1:])
    assert not given.first(keys[-1])
    assert given.first(keys[0])
