from __future__ import annotations

import pytest

from sayagain.testing.scrubber import Scrubber, is_placeholder, strings_in

PATHS = {"/tmp/x1/home": "/home/user", "box": "host"}
ID = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f9"


def scrubber(*ours: str) -> Scrubber:
    return Scrubber("test", PATHS, ours)


def test_prose_becomes_a_placeholder_of_its_length() -> None:
    assert scrubber().scrub({"description": "Use this tool whenever you like."}) == {
        "description": "<placeholder 32 chars>"
    }


@pytest.mark.parametrize("text", ["", "tool_use", "claude-opus-5-5", "  ", "\n"])
def test_identifiers_and_blanks_stay(text: str) -> None:
    assert scrubber().scrub(text) == text


@pytest.mark.parametrize("text", ["Say hello.", "1\tSay hello.\n2\tAnd bye.", "+Say hello.\n-And bye."])
def test_our_texts_stay_also_in_listings_and_patches(text: str) -> None:
    assert scrubber("Say hello.", "And bye.").scrub(text) == text


def test_our_lines_stay_inside_foreign_ones() -> None:
    assert scrubber("Child report.").scrub("Frame of words\nand more\n  Child report.\nend of the frame") == (
        "<placeholder 23 chars>\n  Child report.\n<placeholder 16 chars>"
    )


def test_known_tags_stay_and_what_they_hold_does_not() -> None:
    text = "Mine.<system-reminder>\nDo what <status> says.\nMine.\n</system-reminder>"
    assert scrubber("Mine.").scrub(text) == "Mine.<system-reminder>\n<placeholder 28 chars>\n</system-reminder>"
    assert scrubber().scrub("<command-name>/x</command-name> and prose") == (
        "<command-name>/x</command-name> <placeholder 9 chars>"
    )


def test_only_the_beginning_of_a_marker_stays() -> None:
    text = "The user doesn't want to proceed with this tool use, so stop."
    assert scrubber().scrub(text) == "The user doesn't want to proceed <placeholder 29 chars>"
    assert scrubber().scrub("[Request interrupted by user]") == "[Request interrupted by user]"
    assert scrubber("broken").scrub("Exit code 3\nbroken") == "Exit code 3\nbroken"


def test_paths_folder_names_and_hosts_become_neutral() -> None:
    clean = scrubber().scrub(
        {
            "cwd": "/tmp/x1/home/project",
            "file": "/tmp/x1/home/.claude/projects/-tmp-x1-home-project/a.jsonl",
            "on": "box",
        }
    )
    assert clean == {
        "cwd": "/home/user/project",
        "file": "/home/user/.claude/projects/-home-user-project/a.jsonl",
        "on": "host",
    }


def test_identifiers_are_renamed_alike_everywhere_and_in_every_run() -> None:
    one, two = scrubber(), scrubber()
    record = {"uuid": ID, "file": f"{ID}.jsonl", "agent": "a0123456789abcdef"}
    clean = one.scrub(record)
    assert clean["uuid"] != ID
    assert clean["file"] == f"{clean['uuid']}.jsonl"
    assert one.scrub(record) == clean == two.scrub(record)
    assert len(clean["agent"]) == 17
    assert Scrubber("other", PATHS, ()).scrub(ID) != clean["uuid"]


def test_clocks_keep_their_order_and_nothing_else() -> None:
    records = [
        {"timestamp": "2031-05-05T10:00:00.500Z"},
        {"timestamp": "2031-05-05T10:00:00.100Z", "sentAtMs": 1935741600200},
    ]
    one = scrubber()
    one.learn(records)
    clean = one.scrub(records)
    assert clean[0]["timestamp"] == "2026-01-01T00:00:00.020Z"
    assert clean[1] == {"timestamp": "2026-01-01T00:00:00.000Z", "sentAtMs": 1767225600010}
    assert one.scrub({"duration_ms": 873, "pid": 99, "numTurns": 3}) == {"duration_ms": 1, "pid": 4242, "numTurns": 3}


def test_copies_of_requests_are_dropped() -> None:
    rows = [{"type": "api-request-blob"}, {"type": "user"}]
    assert [row for row in rows if scrubber().keeps_row(row)] == [{"type": "user"}]
    assert scrubber().scrub({"entries": rows}) == {"entries": [{"type": "user"}]}


def test_attachments_keep_their_shape_unless_they_carry_a_prompt() -> None:
    ours = scrubber("Second.")
    assert ours.scrub(
        {"attachment": {"type": "skill_listing", "content": "Long list here", "names": ["a"], "count": 1}}
    ) == {"attachment": {"type": "skill_listing", "content": "<placeholder 14 chars>", "names": [], "count": 1}}
    queued = {"attachment": {"type": "queued_command", "prompt": [{"type": "text", "text": "Second."}]}}
    assert ours.scrub(queued) == queued


def test_placeholders_are_told_from_text() -> None:
    assert is_placeholder("<system-reminder>\n<placeholder 9 chars>\n</system-reminder>")
    assert not is_placeholder("<placeholder 9 chars> and more")
    assert list(strings_in({"a": ["b", {"c": 1}]})) == ["a", "b", "c"]
