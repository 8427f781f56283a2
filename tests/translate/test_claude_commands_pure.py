"""Slash commands without a CLI: which are offered, which are refused, and how they are sent (UPD-11)."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain_claude.commands import available_commands, refusal, with_command_last
from support_wire import text

LINK = {"type": "resource_link", "name": "a b", "uri": "file:///a"}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}


def command(name: Any, *, builtin: bool = True, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "About", "argumentHint": "", "builtin": builtin, **more}


def test_the_list_has_each_name_once_and_nothing_that_does_not_work() -> None:
    commands = [
        command("compact", argumentHint="<what>"),
        command("compact"),
        command("clear"),
        command("login"),
        command("heapdump"),
        command("__inside"),
        command("with space"),
        command("/slash"),
        command(5),
        "text",
        command("login", builtin=False, description=None),
        command("new", builtin=False),
        command("color", builtin=False),
    ]
    assert available_commands(commands) == [
        {"type": "command", "name": "compact", "description": "About", "input": {"type": "text", "hint": "<what>"}},
        {"type": "command", "name": "login", "description": ""},
        {"type": "command", "name": "color", "description": "About"},
    ]
    assert available_commands(None) == []


@pytest.mark.parametrize(
    ("listed", "typed"),
    [
        ("mine:greet (MCP)", "mcp__mine__greet"),
        ("my server.x:greet (MCP)", "mcp__my_server_x__greet"),
        ("mine:greet them (MCP)", None),
        ("mine:greet", "mine:greet"),
    ],
)
def test_a_servers_prompt_has_the_name_that_the_cli_takes(listed: str, typed: str | None) -> None:
    assert [entry["name"] for entry in available_commands([command(listed)])] == ([typed] if typed else [])


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ([text("/clear")], True),
        ([text("  /clear\nmore")], True),
        ([text("words"), text("/reset now")], True),
        ([text("/clear"), IMAGE], True),
        ([text("/clear"), text("words")], False),
        ([text("/clearly")], False),
        ([text("clear")], False),
        ([text("/")], False),
        ([text("")], False),
        ([IMAGE], False),
        ([], False),
    ],
)
def test_the_last_text_is_the_command(content: list[dict[str, Any]], refused: bool) -> None:
    reason = refusal(content)
    assert (reason is not None) is refused
    assert reason is None or "start a new session" in reason


def test_a_command_of_the_users_own_is_not_refused() -> None:
    assert refusal([text("/login")]) is not None
    assert refusal([text("/login")], {"login"}) is None


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ([text("/do it")], [text("/do it")]),
        ([text("/do "), LINK, text(" well")], [text("/do [@a b](file:///a) well")]),
        ([text("/do this"), IMAGE, LINK], [IMAGE, text("/do this[@a b](file:///a)")]),
        ([text("/other "), LINK], [text("/other "), LINK]),
        ([text("words"), LINK], [text("words"), LINK]),
        ([LINK, text("/do it")], [LINK, text("/do it")]),
    ],
)
def test_a_command_is_sent_with_all_that_belongs_to_it(content: Any, sent: Any) -> None:
    assert list(with_command_last(content, {"do"})) == sent
