"""Shell calls as terminals: what each form of a result says of output and end."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sayagain_claude.translate import results, terminals
from translate.rows import call, result


def finish(row: dict[str, Any], name: str = "Bash") -> dict[str, Any] | None:
    [found] = results.tool_results(row)
    return terminals.finished(call("t1", name, command="c"), found)


def printed(update: dict[str, Any] | None) -> str | None:
    assert update is not None
    return base64.b64decode(update["output"]["data"]).decode() if "output" in update else None


def content(row: dict[str, Any]) -> list[Any]:
    [found] = results.tool_results(row)
    return results.finished(call("t1", "Bash", command="c"), found, "/project")["content"]


TERMINAL = {"type": "terminal", "terminalId": "t1"}


def test_a_terminal_is_announced_with_its_command_and_folder() -> None:
    assert terminals.opened(call("t1", "Bash", command="ls"), "/project") == {
        "sessionUpdate": "terminal_update",
        "terminalId": "t1",
        "command": "ls",
        "cwd": "/project",
    }
    assert terminals.opened(call("t1", "Read", file_path="/a"), "/project") is None


def test_output_and_exit_status_of_a_command() -> None:
    structured = {"stdout": "out\n", "stderr": "err", "interrupted": False}
    update = finish(result("t1", "out\nerr", structured))
    assert printed(update) == "out\nerr\n"
    assert update is not None
    assert update["exitStatus"] == {"exitCode": 0}
    assert content(result("t1", "out", structured)) == [TERMINAL]


def test_a_failed_command_has_its_output_and_exit_code() -> None:
    row = result("t1", "Exit code 3\nout", "Error: Exit code 3\nout", is_error=True)
    update = finish(row)
    assert update is not None
    assert (printed(update), update["exitStatus"]) == ("out\n", {"exitCode": 3})
    assert content(row) == [TERMINAL]


def test_exit_code_1_that_is_no_failure() -> None:
    structured = {"stdout": "", "stderr": "", "returnCodeInterpretation": "No matches found"}
    update = finish(result("t1", "", structured))
    assert update is not None
    assert (printed(update), update["exitStatus"]) == ("", {"exitCode": 1})


def test_an_interrupted_command_was_killed() -> None:
    update = finish(result("t1", "out", {"stdout": "out", "stderr": "", "interrupted": True}))
    assert update is not None
    assert update["exitStatus"] == {"signal": "SIGKILL"}


@pytest.mark.parametrize(
    "text",
    [
        "The user doesn't want to proceed with this tool use. X",
        "[Request interrupted by user for tool use]",
        "Permission for this tool use was denied.",
    ],
)
def test_a_command_that_never_ran_has_no_output(text: str) -> None:
    row = result("t1", text, is_error=True)
    assert finish(row) == {"sessionUpdate": "terminal_update", "terminalId": "t1", "exitStatus": {}}
    assert content(row) == [TERMINAL]


def test_an_error_that_is_no_output_is_shown_beside_the_terminal() -> None:
    row = result("t1", "<tool_use_error>No such option</tool_use_error>", is_error=True)
    [terminal, error] = content(row)
    assert terminal == TERMINAL
    assert error["content"]["text"] == "```\nNo such option\n```"


def test_a_picture_is_shown_as_one() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    row = result("t1", [image], {"stdout": "data:image/png;base64,AAAA", "stderr": "", "isImage": True})
    update = finish(row)
    assert update is not None
    assert (printed(update), update["exitStatus"]) == (None, {"exitCode": 0})
    [terminal, shown] = content(row)
    assert terminal == TERMINAL
    assert shown["content"] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("(Bash completed with no output)", ""),
        ("<system-reminder>be good</system-reminder>", ""),
        ("out\nShell cwd was reset to /project", "out\n"),
        ("     1\tkept as it is", "     1\tkept as it is\n"),
    ],
)
def test_words_for_the_model_are_no_output(text: str, output: str) -> None:
    # Without a structured result: so are the results of subagents' calls.
    assert printed(finish(result("t1", text))) == output


def test_the_note_on_the_shells_folder_is_no_output() -> None:
    structured = {"stdout": "/tmp", "stderr": "\nShell cwd was reset to /project"}
    assert printed(finish(result("t1", "/tmp\nShell cwd was reset to /project", structured))) == "/tmp\n"


def test_output_that_quotes_the_harness_stays() -> None:
    quoted = "(Bash completed with no output)\n<system-reminder>x</system-reminder>"
    assert printed(finish(result("t1", quoted, {"stdout": quoted, "stderr": ""}))) == f"{quoted}\n"


@pytest.mark.parametrize(
    ("text", "structured", "output"),
    [
        ("Command running in background with ID: b1. Output is being written to: /x", {"backgroundTaskId": "b1"}, None),
        ("Command running in background with ID: b1. Output is being written to: /x", None, None),
        ("a\nCommand did not complete within its 1s timeout and was moved to the background (ID: b1). X", None, "a\n"),
        ("a\nCommand did …", {"stdout": "a", "stderr": "", "backgroundTaskId": "b1"}, "a\n"),
    ],
)
def test_a_command_in_the_background_goes_on(text: str, structured: Any, output: str | None) -> None:
    if structured is not None:
        structured = {"stdout": "", "stderr": ""} | structured
    update = finish(result("t1", text, structured))
    assert (None if update is None else printed(update)) == output
    assert update is None or "exitStatus" not in update


@pytest.mark.parametrize(
    ("status", "summary", "end"),
    [
        ("completed", 'Background command "x" completed (exit code 0)', {"exitCode": 0}),
        ("failed", 'Background command "x" failed with exit code 7', {"exitCode": 7}),
        ("stopped", "x", {"signal": "SIGKILL"}),
        ("killed", 'Task "x" was stopped by the user', {"signal": "SIGKILL"}),
        ("failed", "?", {}),
    ],
)
def test_the_end_of_a_command_in_the_background(status: str, summary: str, end: dict[str, Any]) -> None:
    assert terminals.ended("t1", status, summary)["exitStatus"] == end
