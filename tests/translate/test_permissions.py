"""Permission requests and what an outcome means (PER-1 to PER-4)."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain_claude.translate.permissions import permission_request, permission_response
from support_schema import fault_in, needs_oracles

RULE = {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch *"}], "destination": "localSettings"}
FOLDER = {"type": "addDirectories", "directories": ["/project"], "destination": "session"}
MODE = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def request(name: str = "Bash", suggestions: Any = (), **input_: Any) -> dict[str, Any]:
    return {
        "subtype": "can_use_tool",
        "tool_name": name,
        "input": input_ or {"command": "touch x"},
        "description": "Make x",
        "permission_suggestions": list(suggestions),
        "tool_use_id": "t1",
    }


def ask(asked: dict[str, Any], **more: Any) -> dict[str, Any]:
    return permission_request("s", asked, cwd="/project", **more)


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


def names(params: dict[str, Any]) -> dict[str, str]:
    return {option["optionId"]: option["name"] for option in params["options"]}


def test_a_command_is_asked_for_with_the_whole_call() -> None:
    params = ask(request(suggestions=[RULE, FOLDER, MODE]))
    assert params["sessionId"] == "s"
    assert params["title"] == "Run touch x?"
    assert params["description"] == "Make x"
    call = params["subject"]["toolCall"]
    assert (call["toolCallId"], call["kind"], call["rawInput"]) == ("t1", "execute", {"command": "touch x"})
    assert "sessionUpdate" not in call
    assert names(params) == {
        "allow_once": "Allow",
        "allow_always": "Always allow commands that begin with touch and access to /project in this project",
        "allow_mode": "Allow, and accept all edits in this session",
        "reject_once": "Reject",
    }
    assert [option["kind"] for option in params["options"]] == [
        "allow_once",
        "allow_always",
        "allow_always",
        "reject_once",
    ]


@pytest.mark.parametrize(
    ("tool", "content", "label"),
    [
        ("Bash", "npm test", "the command npm test"),
        ("Bash", "git log:*", "commands that begin with git log"),
        ("Bash", None, "Bash"),
        ("WebFetch", "domain:example.com", "fetching from example.com"),
        ("Read", "//tmp/**", "reading //tmp/**"),
        ("Skill", "greet", "the skill greet"),
        ("mcp__server__tool", None, "tool of server"),
        ("mcp__server", None, "all tools of server"),
        ("Agent", "Explore", "Agent(Explore)"),
    ],
)
def test_a_rule_is_put_in_words(tool: str, content: str | None, label: str) -> None:
    rule = {"toolName": tool} | ({"ruleContent": content} if content else {})
    suggestion = {"type": "addRules", "rules": [rule, rule], "behavior": "allow", "destination": "userSettings"}
    shown = names(ask(request(suggestions=[suggestion])))
    assert shown["allow_always"] == f"Always allow {label} in all projects"


def test_what_denies_is_no_allowance() -> None:
    asked = request(suggestions=[{**RULE, "behavior": "deny"}])
    assert list(names(ask(asked))) == ["allow_once", "reject_once"]


def test_each_allowing_option_applies_what_its_name_says() -> None:
    asked = request(suggestions=[RULE, FOLDER, MODE])
    once = permission_response(asked, selected("allow_once"))
    assert once == {"behavior": "allow", "updatedInput": {"command": "touch x"}}
    assert permission_response(asked, selected("allow_always"))["updatedPermissions"] == [RULE, FOLDER]
    assert permission_response(asked, selected("allow_mode"))["updatedPermissions"] == [MODE]


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        {},
        {"outcome": {"outcome": "cancelled"}},
        {"outcome": {"outcome": "approved", "optionId": "allow_once"}},
        {"outcome": {"outcome": "_later", "optionId": "allow_once"}},
        {"outcome": "selected", "optionId": "allow_once"},
        selected("allow_everything"),
        selected("allow_always"),  # not offered: the CLI suggested nothing
        {"outcome": {"outcome": "selected", "optionId": ["allow_once"]}},
        selected("reject_once"),
    ],
)
def test_everything_else_is_a_refusal(outcome: Any) -> None:
    response = permission_response(request(), outcome)
    assert response["behavior"] == "deny"
    assert response["message"]
    assert response["interrupt"] is False


def test_an_edit_is_shown_exactly_when_the_file_is_known() -> None:
    asked = request("Edit", file_path="/project/a.txt", old_string="b", new_string="B", replace_all=True)
    [diff] = ask(asked, before="a\nb\nb\n")["subject"]["toolCall"]["content"]
    assert diff["patch"]["text"].endswith("@@ -1,3 +1,3 @@\n a\n-b\n-b\n+B\n+B\n")
    [snippet] = ask(asked)["subject"]["toolCall"]["content"]
    assert snippet["content"]["text"] == "```diff\n-b\n+B\n```"


def test_a_new_file_is_shown_as_added() -> None:
    asked = request("Write", file_path="/project/new.txt", content="x\n")
    [diff] = ask(asked, before="")["subject"]["toolCall"]["content"]
    assert diff["changes"][0]["operation"] == "add"


def test_a_plan_comes_from_the_call_since_the_request_lacks_it() -> None:
    asked = {"tool_name": "ExitPlanMode", "input": {}, "tool_use_id": "t1", "requires_user_interaction": True}
    params = ask(asked, tool_use={"input": {"plan": "# Plan"}})
    assert params["title"] == "Approve this plan?"
    assert params["subject"]["toolCall"]["content"][0]["content"]["text"] == "# Plan"
    assert names(params) == {
        "plan_acceptEdits": "Yes, and accept all edits",
        "allow_once": "Yes, and ask before each edit",
        "reject_once": "No, keep planning",
    }
    assert permission_response(asked, selected("plan_acceptEdits"))["updatedPermissions"] == [MODE]


def test_an_approved_plan_goes_on_in_any_mode_that_the_session_offers() -> None:
    asked = {"tool_name": "ExitPlanMode", "input": {}, "tool_use_id": "t1"}
    modes = ["default", "acceptEdits", "plan", "auto", "bypassPermissions"]
    assert list(names(ask(asked, modes=modes))) == [
        "plan_auto",
        "plan_acceptEdits",
        "plan_bypassPermissions",
        "allow_once",
        "reject_once",
    ]
    allowed = permission_response(asked, selected("plan_auto"), modes=modes)
    assert allowed["updatedPermissions"] == [{"type": "setMode", "mode": "auto", "destination": "session"}]
    assert permission_response(asked, selected("plan_auto"))["behavior"] == "deny"
    assert "updatedPermissions" not in permission_response(asked, selected("allow_once"), modes=modes)


def test_a_plan_that_is_sent_back_ends_the_turn() -> None:
    asked = {"tool_name": "ExitPlanMode", "input": {}, "tool_use_id": "t1"}
    response = permission_response(asked, selected("reject_once"))
    assert (response["behavior"], response["interrupt"]) == ("deny", True)
    assert permission_response(asked, None)["interrupt"] is False


def test_one_question_is_answered_by_an_option() -> None:
    question = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}], "multiSelect": False}
    asked = request("AskUserQuestion", questions=[question])
    params = ask(asked)
    assert params["title"] == "Which?"
    assert names(params) == {"answer_0": "A", "answer_1": "B", "reject_once": "Answer in the chat"}
    allowed = permission_response(asked, selected("answer_1"))
    assert allowed["updatedInput"]["answers"] == {"Which?": "B"}
    assert permission_response(asked, selected("answer_2"))["behavior"] == "deny"


def test_several_questions_are_left_to_the_chat() -> None:
    question = {"question": "Which?", "options": [{"label": "A"}]}
    asked = request("AskUserQuestion", questions=[question, question])
    assert list(names(ask(asked))) == ["reject_once"]


MALFORMED = [
    {},
    {"tool_name": 5, "input": [], "permission_suggestions": "x", "tool_use_id": None},
    request("AskUserQuestion", questions=[{"options": [3, {"label": 4}]}]),
    request("Edit", file_path=3, old_string=[], new_string={}),
    request(suggestions=[RULE | {"rules": [1]}, {"type": 3}, None]),
]


@needs_oracles
@pytest.mark.parametrize("asked", [*MALFORMED, request(suggestions=[RULE, FOLDER, MODE])])
def test_every_request_is_valid(asked: dict[str, Any]) -> None:
    assert fault_in("RequestPermissionRequest", ask(asked)) is None


@pytest.mark.parametrize("asked", MALFORMED)
def test_malformed_requests_do_not_raise(asked: dict[str, Any]) -> None:
    assert ask(asked)["options"]
    for option in ("allow_once", "answer_0", "reject_once"):
        assert permission_response(asked, selected(option))["behavior"] in ("allow", "deny")
