"""Approvals and elicitations: what the user is asked, and what Codex is answered."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain_codex.translate import approvals
from support_schema import fault_in, needs_oracles

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
PERMISSIONS = "item/permissions/requestApproval"
INPUT = "item/tool/requestUserInput"
ELICITATION = "mcpServer/elicitation/request"
FORMS = {"elicitation": {"form": {}, "url": {}}}

ITEM = {
    "type": "commandExecution",
    "id": "i",
    "command": "bash -lc 'rm x'",
    "cwd": "/w",
    "status": "inProgress",
    "commandActions": [],
}
AMENDMENT = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["rm", "x"]}}


def network(host: str, action: str) -> dict[str, Any]:
    return {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": host, "action": action}}}


def ask(method: str, params: dict[str, Any], item: Any = None, capabilities: Any = FORMS) -> dict[str, Any]:
    asked = approvals.request("s", method, params, item=item, cwd="/w", capabilities=capabilities)
    assert asked is not None
    name, request = asked
    assert request["sessionId"] == "s"
    return {"method": name, **request}


def choose(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


# Commands


def test_a_command_is_asked_for_with_all_that_codex_offers() -> None:
    params = {"itemId": "i", "command": "bash -lc 'rm x'", "cwd": "/w", "reason": "May I?"}
    asked = ask(COMMAND, {**params, "availableDecisions": ["accept", AMENDMENT, "cancel"]}, ITEM)
    assert asked["method"] == "session/request_permission"
    assert (asked["title"], asked["description"]) == ("Run rm x?", "May I?")
    assert asked["subject"]["toolCall"]["toolCallId"] == "i"
    assert asked["subject"]["toolCall"]["status"] == "pending"
    assert [(option["optionId"], option["kind"]) for option in asked["options"]] == [
        ("accept", "allow_once"),
        ("acceptWithExecpolicyAmendment", "allow_always"),
        ("decline", "reject_once"),
        ("cancel", "reject_once"),
    ]
    assert asked["options"][1]["name"] == "Always allow commands that start with `rm x`"


@pytest.mark.parametrize(
    ("result", "decision"),
    [
        (choose("accept"), "accept"),
        (choose("acceptWithExecpolicyAmendment"), AMENDMENT),
        (choose("applyNetworkPolicyAmendment:0"), network("a.example", "allow")),
        (choose("applyNetworkPolicyAmendment:1"), network("b.example", "deny")),
        (choose("decline"), "decline"),
        (choose("cancel"), "cancel"),
        (choose("acceptForSession"), "decline"),  # not offered
        ({"outcome": {"outcome": "cancelled"}}, "decline"),
        ({"outcome": {"outcome": "later", "optionId": "accept"}}, "decline"),
        ({}, "decline"),
        (None, "decline"),
    ],
)
def test_only_an_offered_option_allows(result: Any, decision: Any) -> None:
    offered = ["accept", AMENDMENT, network("a.example", "allow"), network("b.example", "deny"), "cancel"]
    assert approvals.response(COMMAND, {"availableDecisions": offered}, result) == {"decision": decision}


def test_an_older_server_lists_nothing() -> None:
    params = {"command": "x", "proposedExecpolicyAmendment": ["x"]}
    asked = ask(COMMAND, params)
    assert [option["optionId"] for option in asked["options"]] == [
        "accept",
        "acceptForSession",
        "acceptWithExecpolicyAmendment",
        "decline",
        "cancel",
    ]
    assert "subject" not in asked  # a call that nobody started would never end
    answer = approvals.response(COMMAND, params, choose("acceptWithExecpolicyAmendment"))
    assert answer == {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["x"]}}}


def test_network_access_and_input_are_named() -> None:
    context = {"networkApprovalContext": {"host": "a.example", "protocol": "https"}}
    offered = ["accept", network("a.example", "allow"), network("a.example", "deny"), "cancel"]
    asked = ask(COMMAND, {**context, "availableDecisions": offered}, ITEM)
    assert asked["title"] == "Allow network access to a.example?"
    assert [option["kind"] for option in asked["options"]] == [
        "allow_once",
        "allow_always",
        "reject_always",
        "reject_once",
        "reject_once",
    ]
    assert ask(COMMAND, {"kind": "writeStdin"}, ITEM)["title"] == "Send input to the running command?"


# Files and permissions


def test_a_patch_is_asked_for_with_its_changes() -> None:
    item = {
        "type": "fileChange",
        "id": "i",
        "status": "inProgress",
        "changes": [{"path": "/w/a", "kind": {"type": "add"}, "diff": "x\n"}],
    }
    asked = ask(FILES, {"itemId": "i", "reason": None, "grantRoot": None}, item)
    assert asked["title"] == "Write a?"
    assert asked["subject"]["toolCall"]["content"][0]["changes"] == [
        {"operation": "add", "path": "/w/a", "fileType": "text"}
    ]
    assert ask(FILES, {"grantRoot": "/x"})["title"] == "Allow changes in /x?"
    assert approvals.response(FILES, {}, choose("acceptForSession")) == {"decision": "acceptForSession"}
    assert approvals.response(FILES, {}, None) == {"decision": "decline"}


def test_permissions_are_granted_as_they_were_wanted() -> None:
    wanted = {"network": {"enabled": True}, "fileSystem": {"read": ["/r"], "write": ["/x"]}}
    params = {"reason": "To build", "permissions": wanted}
    asked = ask(PERMISSIONS, params)
    assert asked["description"] == "To build\n\n- network access\n- read /r\n- write /x"
    turn = approvals.response(PERMISSIONS, params, choose("accept"))
    assert turn == {"permissions": wanted, "scope": "turn"}
    assert approvals.response(PERMISSIONS, params, choose("acceptForSession"))["scope"] == "session"
    assert approvals.response(PERMISSIONS, params, None) == {"permissions": {}, "scope": "turn"}


# Tools of MCP servers

TOOL = {
    "serverName": "s",
    "mode": "form",
    "message": "Allow it?",
    "_meta": {"codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"], "tool_params": {}},
    "requestedSchema": {"type": "object", "properties": {}},
}


def test_a_tool_of_a_server_is_a_permission() -> None:
    item = {"type": "mcpToolCall", "id": "i", "server": "s", "tool": "t", "status": "inProgress"}
    asked = ask(ELICITATION, TOOL, item, capabilities={})
    assert asked["method"] == "session/request_permission"
    assert (asked["title"], asked["description"]) == ("Allow s: t?", "Allow it?")
    assert [option["optionId"] for option in asked["options"]] == [
        "accept",
        "acceptForSession",
        "acceptAlways",
        "decline",
        "cancel",
    ]


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("accept", {"action": "accept", "content": {}, "_meta": None}),
        ("acceptForSession", {"action": "accept", "content": {}, "_meta": {"persist": "session"}}),
        ("acceptAlways", {"action": "accept", "content": {}, "_meta": {"persist": "always"}}),
        ("decline", {"action": "decline", "content": None, "_meta": None}),
        ("cancel", {"action": "cancel", "content": None, "_meta": None}),
        ("x", {"action": "decline", "content": None, "_meta": None}),
    ],
)
def test_the_answers_for_a_tool(option: str, answer: dict[str, Any]) -> None:
    assert approvals.response(ELICITATION, TOOL, choose(option)) == answer
    once = {**TOOL, "_meta": {"codex_approval_kind": "mcp_tool_call"}}
    if option in ("acceptForSession", "acceptAlways"):
        assert approvals.response(ELICITATION, once, choose(option))["action"] == "decline"


# Elicitations

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 1},
        "kind": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        "size": {"type": "integer", "minimum": 0},
        "ok": {"type": "boolean", "default": True},
        "many": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
        "odd": {"type": "null"},
    },
    "required": ["name"],
}
FORM = {"serverName": "s", "mode": "form", "_meta": None, "message": "Who?", "requestedSchema": SCHEMA}


def test_a_form_of_a_server_is_a_form() -> None:
    asked = ask(ELICITATION, FORM)
    assert asked["method"] == "elicitation/create"
    properties = asked["requestedSchema"]["properties"]
    assert properties["kind"]["oneOf"] == [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
    assert properties["name"] == {"type": "string", "title": "Name", "minLength": 1}
    assert "odd" not in properties
    assert asked["requestedSchema"]["required"] == ["name"]


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (
            {"action": "accept", "content": {"name": "n", "kind": "b", "size": 1, "ok": False, "many": ["x"]}},
            {"action": "accept", "content": {"name": "n", "kind": "b", "size": 1, "ok": False, "many": ["x"]}},
        ),
        (
            {"action": "accept", "content": {"name": "n", "kind": "c", "size": True, "many": ["y"], "more": 1}},
            {"action": "accept", "content": {"name": "n"}},
        ),
        ({"action": "accept", "content": {}}, {"action": "decline", "content": None}),
        ({"action": "accept"}, {"action": "decline", "content": None}),
        ({"action": "decline"}, {"action": "decline", "content": None}),
        ({"action": "cancel"}, {"action": "cancel", "content": None}),
        ({"action": "later"}, {"action": "cancel", "content": None}),
        (None, {"action": "decline", "content": None}),
    ],
)
def test_the_answers_for_a_form(result: Any, answer: dict[str, Any]) -> None:
    assert approvals.response(ELICITATION, FORM, result) == {**answer, "_meta": None}


@pytest.mark.parametrize(
    ("field", "fit", "unfit"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["ab", ""]),
        ({"type": "string", "pattern": "(unclosed"}, ["anything"], []),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, ["b"], ["B", "c"]),
        ({"type": "integer", "minimum": 1, "maximum": 5}, [1, 5], [0, 6, 99]),
        ({"type": "number", "minimum": 0.5, "maximum": 1.5}, [0.5, 1], [0.4, 2, float("nan")]),
        ({"type": "number", "minimum": "odd", "maximum": None}, [7], []),
        (
            {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 1, "maxItems": 2},
            [["x"], ["x", "y"]],
            [[], ["x", "y", "z"]],
        ),
    ],
)
def test_an_answer_outside_of_the_limits_is_none(field: dict[str, Any], fit: list[Any], unfit: list[Any]) -> None:
    for required, action in ((["it"], "decline"), ([], "accept")):
        params = {**FORM, "requestedSchema": {"type": "object", "properties": {"it": field}, "required": required}}
        for value in fit:
            response = approvals.response(ELICITATION, params, {"action": "accept", "content": {"it": value}})
            assert response["content"] == {"it": value}
        for value in unfit:
            response = approvals.response(ELICITATION, params, {"action": "accept", "content": {"it": value}})
            assert (response["action"], response["content"] or {}) == (action, {})


def test_a_page_is_a_page() -> None:
    params = {
        "serverName": "s",
        "mode": "url",
        "_meta": None,
        "message": "Go",
        "url": "https://x",
        "elicitationId": "e",
    }
    asked = ask(ELICITATION, params)
    assert (asked["mode"], asked["url"], asked["elicitationId"]) == ("url", "https://x", "e")
    assert approvals.response(ELICITATION, params, {"action": "accept"})["action"] == "accept"


@pytest.mark.parametrize("mode", ["form", "url", "openai/form", "openai/userVerification", None])
def test_what_the_client_cannot_ask_is_declined(mode: Any) -> None:
    params = {**FORM, "mode": mode, "url": "https://x", "elicitationId": "e"}
    assert approvals.request("s", ELICITATION, params, item=None, capabilities={}) is None
    assert approvals.response(ELICITATION, params, None)["action"] == "decline"


def test_a_form_that_requires_what_has_no_field_is_declined() -> None:
    params = {**FORM, "requestedSchema": {**SCHEMA, "required": ["odd"]}}
    assert approvals.request("s", ELICITATION, params, item=None, capabilities=FORMS) is None


def test_a_form_that_requires_nonsense_is_declined() -> None:
    params = {**FORM, "requestedSchema": {**SCHEMA, "required": ["name", {}]}}
    assert (
        approvals.response(ELICITATION, params, {"action": "accept", "content": {"name": "n"}})["action"] == "decline"
    )


# The model's questions

QUESTION = {
    "id": "q",
    "header": "Colour",
    "question": "Which?",
    "isOther": True,
    "isSecret": False,
    "options": [{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": ""}],
}


def test_questions_are_a_form() -> None:
    asked = ask(INPUT, {"questions": [QUESTION, {"id": "r", "header": "Why", "question": "Why?", "options": None}]})
    schema = asked["requestedSchema"]
    assert list(schema["properties"]) == ["q", "q.other", "r"]
    assert schema["properties"]["q"]["oneOf"][0] == {"const": "Red", "title": "Red", "description": "Warm"}
    assert schema["required"] == ["r"]


@pytest.mark.parametrize(
    ("result", "answers"),
    [
        ({"action": "accept", "content": {"q": "Red"}}, ["Red"]),
        ({"action": "accept", "content": {"q": "Red", "q.other": "Green"}}, ["Green"]),
        ({"action": "accept", "content": {"q": "Purple"}}, []),
        ({"action": "accept", "content": {"q": 3}}, []),
        ({"action": "decline", "content": {"q": "Red"}}, []),
        (choose("Blue"), ["Blue"]),
        (choose("Green"), []),
        (None, []),
    ],
)
def test_the_answers_to_a_question(result: Any, answers: list[str]) -> None:
    assert approvals.response(INPUT, {"questions": [QUESTION]}, result) == {"answers": {"q": {"answers": answers}}}


def test_one_choice_is_a_permission_where_there_are_no_forms() -> None:
    asked = ask(INPUT, {"questions": [QUESTION]}, capabilities={})
    assert asked["method"] == "session/request_permission"
    assert [option["name"] for option in asked["options"]] == ["Red", "Blue"]
    several = {"questions": [QUESTION, {**QUESTION, "id": "r"}]}
    assert approvals.request("s", INPUT, several, item=None, capabilities={}) is None


def test_a_secret_has_no_place_in_a_form() -> None:
    params = {"questions": [{**QUESTION, "isSecret": True}]}
    assert approvals.request("s", INPUT, params, item=None, capabilities=FORMS) is None
    answer = approvals.response(INPUT, params, {"action": "accept", "content": {"q": "Red"}})
    assert answer == {"answers": {"q": {"answers": []}}}


def test_other_requests_are_not_questions() -> None:
    assert approvals.request("s", "currentTime/read", {}, item=None) is None
    assert "currentTime/read" not in approvals.METHODS


@needs_oracles
@pytest.mark.parametrize(
    ("method", "params", "item"),
    [
        (COMMAND, {"availableDecisions": ["accept", AMENDMENT, network("h", "deny"), 3, {}]}, ITEM),
        (FILES, {}, None),
        (PERMISSIONS, {"permissions": {}}, None),
        (ELICITATION, TOOL, None),
        (ELICITATION, FORM, None),
        (INPUT, {"questions": [QUESTION]}, None),
    ],
)
def test_requests_are_valid(method: str, params: dict[str, Any], item: Any) -> None:
    asked = approvals.request("s", method, params, item=item, cwd="/w", capabilities=FORMS)
    assert asked is not None
    names = {"session/request_permission": "RequestPermissionRequest", "elicitation/create": "CreateElicitationRequest"}
    assert fault_in(names[asked[0]], asked[1]) is None
