"""What a user is asked, where the call is no everyday tool's: in plain words, with what it is about."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain_claude.translate.permissions import permission_request
from support_schema import fault_in, needs_oracles

DOMAIN = {
    "type": "addRules",
    "rules": [{"toolName": "WebFetch", "ruleContent": "domain:example.org"}],
    "behavior": "allow",
    "destination": "session",
}
SKILL = {
    "type": "addRules",
    "rules": [{"toolName": "Skill", "ruleContent": "greet"}],
    "behavior": "allow",
    "destination": "localSettings",
}

CASES: list[tuple[str, dict[str, Any], list[dict[str, Any]], str, list[str]]] = [
    ("EnterPlanMode", {}, [], "Enter plan mode?", ["Allow", "Reject"]),
    (
        "SandboxNetworkAccess",
        {"host": "example.org"},
        [DOMAIN],
        "Connect to example.org?",
        ["Allow", "Always allow fetching from example.org in this session", "Reject"],
    ),
    (
        "WebFetch",
        {"url": "https://example.org/a", "prompt": "What is it?"},
        [DOMAIN],
        "Fetch https://example.org/a?",
        ["Allow", "Always allow fetching from example.org in this session", "Reject"],
    ),
    (
        "Skill",
        {"skill": "greet"},
        [SKILL],
        "Load skill greet?",
        ["Allow", "Always allow the skill greet in this project", "Reject"],
    ),
    ("mcp__mine__echo", {"text": "x"}, [], "Allow mine: echo?", ["Allow", "Reject"]),
    ("Brand_new", {"a": 1}, [], "Allow Brand_new?", ["Allow", "Reject"]),
]


def asked(name: str, input_: dict[str, Any], suggestions: list[dict[str, Any]]) -> dict[str, Any]:
    request = {"tool_name": name, "tool_use_id": "t1", "input": input_, "permission_suggestions": suggestions}
    return permission_request("s1", request, cwd="/project")


@pytest.mark.parametrize(("name", "input_", "suggestions", "title", "options"), CASES, ids=[case[0] for case in CASES])
def test_a_question_says_what_it_is_about(
    name: str, input_: dict[str, Any], suggestions: list[dict[str, Any]], title: str, options: list[str]
) -> None:
    params = asked(name, input_, suggestions)
    assert params["title"] == title
    assert [option["name"] for option in params["options"]] == options
    assert params["subject"]["toolCall"]["rawInput"] == input_


@needs_oracles
@pytest.mark.parametrize(("name", "input_", "suggestions"), [case[:3] for case in CASES], ids=[c[0] for c in CASES])
def test_every_question_is_valid(name: str, input_: dict[str, Any], suggestions: list[dict[str, Any]]) -> None:
    assert fault_in("RequestPermissionRequest", asked(name, input_, suggestions)) is None
