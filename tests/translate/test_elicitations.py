"""Questions as forms, and what may come back (ELI-1 to ELI-6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain_claude.translate.asks import Asked, Settled, ask_mcp, ask_tool
from sayagain_claude.translate.elicitations import asks_secret, checked, form_schema, question_answers, safe_url
from support_schema import fault_in, needs_oracles

FORMS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
RED_OR_BLUE = [{"label": "Red", "description": "Like a rose"}, {"label": "Blue"}]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "format": "email", "title": "Mail", "maxLength": 20},
        "code": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "format": ["uri"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
        "share": {"type": "number", "default": "much"},
        "sure": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["r", "b"], "enumNames": ["Red"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "minItems": 1, "maxItems": 2},
        "kinds": {"type": "array", "items": {"anyOf": [{"const": "k", "title": "K"}]}},
    },
    "required": ["mail", "unheard of"],
}


def questions(*asked: dict[str, Any]) -> dict[str, Any]:
    return {"tool_name": "AskUserQuestion", "tool_use_id": "t1", "input": {"questions": list(asked)}}


def question(text: str, *, several: bool = False, options: Any = RED_OR_BLUE) -> dict[str, Any]:
    return {"question": text, "header": "Colour", "multiSelect": several, "options": options}


def ask(request: dict[str, Any], capabilities: Any = None) -> Asked:
    return ask_tool("s", request, capabilities=FORMS if capabilities is None else capabilities, cwd="/project")


def server(schema: Any = SCHEMA, *, capabilities: Any = None, **more: Any) -> Asked | Settled:
    request = {"subtype": "elicitation", "mcp_server_name": "e", "message": "Well?", "requested_schema": schema, **more}
    return ask_mcp("s", request, capabilities=FORMS if capabilities is None else capabilities, elicitation_id="e1")


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


class TestQuestions:
    def test_one_question_is_a_choice_with_room_for_more(self) -> None:
        asked = ask(questions(question("Which?")))
        assert (asked.method, asked.tool_call_id) == ("elicitation/create", "t1")
        assert asked.params == {
            "mode": "form",
            "sessionId": "s",
            "toolCallId": "t1",
            "message": "Which?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "question_1": {
                        "type": "string",
                        "title": "Colour",
                        "description": "Which?",
                        "oneOf": [
                            {"const": "Red", "title": "Red", "description": "Like a rose"},
                            {"const": "Blue", "title": "Blue"},
                        ],
                    },
                    "question_1_other": {"type": "string", "title": "Colour: something else"},
                },
            },
        }

    @pytest.mark.parametrize(
        ("content", "answers"),
        [
            ({"question_1": "Red"}, {"One?": "Red"}),
            ({"question_1": "Red", "question_1_other": " Pink "}, {"One?": "Pink"}),
            ({"question_2": ["Red", "Blue"]}, {"Two?": "Red, Blue"}),
            ({"question_1": "", "question_2": ["Red"], "question_2_other": "Pink"}, {"Two?": "Red, Pink"}),
            ({"question_1_other": "A", "question_2_other": "B", "more": 1}, {"One?": "A", "Two?": "B"}),
            ({"question_2": []}, None),
            ({"question_1": "Green"}, None),
            ({"question_1": ["Red"]}, None),
            ({"question_2": "Red"}, None),
            ({"question_2": ["Green"]}, None),
            ({"question_1_other": 5}, None),
            ({}, None),
            ("Red", None),
            (None, None),
        ],
    )
    def test_answers_are_checked_again(self, content: Any, answers: Any) -> None:
        request = questions(question("One?"), question("Two?", several=True))
        assert question_answers(request, content) == answers
        response = ask(request).reply({"action": "accept", "content": content})
        if answers is None:
            assert response["behavior"] == "deny"
        else:
            assert response == {"behavior": "allow", "updatedInput": {**request["input"], "answers": answers}}

    @pytest.mark.parametrize("result", [None, {}, {"action": "decline"}, {"action": "cancel"}, {"action": "_x"}])
    def test_no_answer_is_a_refusal_that_goes_on(self, result: Any) -> None:
        response = ask(questions(question("Which?"))).reply(result)
        assert (response["behavior"], response["interrupt"]) == ("deny", False)

    def test_questions_without_choices_are_fields(self) -> None:
        properties = ask(questions(question("Which?", options=[]))).params["requestedSchema"]["properties"]
        assert properties == {"question_1_other": {"type": "string", "title": "Colour"}}

    @pytest.mark.parametrize(
        ("request_", "capabilities"),
        [
            (questions(question("Which?")), {}),
            (questions(question("Which?")), {"elicitation": {"url": {}}}),
            (questions(question("Which?")), {"elicitation": {"form": None}}),
            (questions(), FORMS),
            (questions({"question": 5}), FORMS),
            ({"tool_name": "AskUserQuestion", "input": []}, FORMS),
            ({"tool_name": "Bash", "input": {"command": "ls"}}, FORMS),
        ],
    )
    def test_everything_else_is_a_permission(self, request_: Any, capabilities: Any) -> None:
        assert ask(request_, capabilities).method == "session/request_permission"


class TestQuestionsWithoutForms:
    def chosen(self, option: str) -> dict[str, Any]:
        return {"outcome": {"outcome": "selected", "optionId": option}}

    def test_single_choices_are_asked_one_after_the_other(self) -> None:
        request = questions(question("One?"), question("Two?"))
        first = ask(request, {})
        assert (first.method, first.params["title"]) == ("session/request_permission", "One? (1/2)")
        assert [option["name"] for option in first.params["options"]] == ["Red", "Blue", "Answer in the chat"]
        second = first.then(self.chosen("answer_1"))
        assert second is not None
        assert second.params["title"] == "Two? (2/2)"
        assert second.params["subject"] == first.params["subject"]
        assert second.then(self.chosen("answer_0")) is None
        response = second.reply(self.chosen("answer_0"))
        answers = {"One?": "Blue", "Two?": "Red"}
        assert response == {"behavior": "allow", "updatedInput": {**request["input"], "answers": answers}}

    @pytest.mark.parametrize("result", [None, {}, {"outcome": {"outcome": "cancelled"}}])
    def test_one_without_an_answer_ends_them_all(self, result: Any) -> None:
        first = ask(questions(question("One?"), question("Two?")), {})
        for end in (result, self.chosen("reject_once"), self.chosen("answer_2")):
            assert first.then(end) is None
            assert first.reply(end)["behavior"] == "deny"

    def test_several_choices_are_left_to_the_chat(self) -> None:
        asked = ask(questions(question("One?"), question("Two?", several=True)), {})
        assert [option["optionId"] for option in asked.params["options"]] == ["reject_once"]


class TestServers:
    def test_a_servers_form_is_shown_in_its_order(self) -> None:
        asked = server(property_order=["sure", "mail", "nothing", 5])
        assert isinstance(asked, Asked)
        schema = asked.params["requestedSchema"]
        assert list(schema["properties"])[:3] == ["sure", "mail", "code"]
        assert schema["required"] == ["mail"]
        assert schema["properties"]["count"]["default"] == 2
        assert "default" not in schema["properties"]["share"]
        assert schema["properties"]["colour"]["oneOf"] == [
            {"const": "r", "title": "Red"},
            {"const": "b", "title": "b"},
        ]
        assert schema["properties"]["tags"]["items"] == {
            "anyOf": [{"const": "x", "title": "x"}, {"const": "y", "title": "y"}]
        }

    @pytest.mark.parametrize(
        ("content", "fits"),
        [
            ({"mail": "a@b"}, True),
            ({"mail": "a@b", "count": 3.0, "share": 0.5, "sure": False, "colour": "b", "tags": ["x"]}, True),
            ({}, False),
            ({"mail": None}, False),
            ({"mail": "a" * 21}, False),
            ({"mail": "a", "code": "A1"}, False),
            ({"mail": "a", "code": "a"}, False),
            ({"mail": "a", "code": ""}, True),
            ({"mail": "a", "count": 4}, False),
            ({"mail": "a", "count": 1.5}, False),
            ({"mail": "a", "count": True}, False),
            ({"mail": "a", "count": "2"}, False),
            ({"mail": "a", "share": float("nan")}, False),
            ({"mail": "a", "share": float("inf")}, False),
            ({"mail": "a", "sure": 1}, False),
            ({"mail": "a", "colour": "Red"}, False),
            ({"mail": "a", "tags": []}, False),
            ({"mail": "a", "tags": ["x", "y", "x"]}, False),
            ({"mail": "a", "tags": ["z"]}, False),
            ({"mail": "a", "tags": "x"}, False),
            ({"mail": "a", "size": "s", "kinds": ["k"]}, True),
        ],
    )
    def test_answers_are_checked_again(self, content: Any, fits: bool) -> None:
        asked = server()
        assert isinstance(asked, Asked)
        response = asked.reply({"action": "accept", "content": content})
        assert response["action"] == ("accept" if fits else "cancel")
        if "count" in content and fits:
            assert response["content"]["count"] == 3
            assert type(response["content"]["count"]) is int

    def test_what_was_not_asked_for_is_left_out(self) -> None:
        assert checked(form_schema(SCHEMA) or {}, {"mail": "a", "other": 1}) == {"mail": "a"}

    @pytest.mark.parametrize("action", ["decline", "cancel", "_later", None])
    def test_no_is_passed_on(self, action: Any) -> None:
        asked = server()
        assert isinstance(asked, Asked)
        assert asked.reply({"action": action})["action"] == ("decline" if action == "decline" else "cancel")
        assert asked.reply(None) == {"action": "cancel"}

    @pytest.mark.parametrize(
        "field",
        [{"type": "object"}, {"type": "array", "items": {"type": "string"}}, {}, 5, {"type": ["string", "null"]}],
    )
    def test_what_no_form_can_show_is_declined(self, field: Any) -> None:
        settled = server({"properties": {"f": field}})
        assert isinstance(settled, Settled)
        assert settled.response == {"action": "decline"}

    @pytest.mark.parametrize(
        ("name", "field", "secret"),
        [
            ("password", {}, True),
            ("userPassword", {}, True),
            ("api_key", {}, True),
            ("apiKey", {}, True),
            ("accessToken", {}, True),
            ("x", {"title": "Your secret"}, True),
            ("x", {"format": "password"}, True),
            ("x", {"writeOnly": True}, True),
            ("pin", {}, True),
            ("max_tokens", {"type": "integer"}, False),
            ("spinner", {}, False),
            ("keyboard", {}, False),
            ("hasPassword", {"type": "boolean"}, False),
        ],
    )
    def test_secrets_are_never_asked_for(self, name: str, field: dict[str, Any], secret: bool) -> None:
        schema = {"properties": {name: {"type": "string", **field}}}
        assert asks_secret(schema) is secret
        assert isinstance(server(schema), Settled if secret else Asked)

    @pytest.mark.parametrize(
        ("url", "safe"),
        [
            ("https://example.com/a?b=c", True),
            ("http://localhost:8080/", True),
            ("http://127.0.0.1/", True),
            ("http://[::1]/", True),
            ("http://example.com", False),
            ("https://user:pass@example.com", False),
            ("https://user@example.com", False),
            ("javascript:alert(1)", False),
            ("file:///etc/passwd", False),
            ("https://", False),
            ("https://[", False),
            ("https://a b", False),
            ("https://example.com/\n", False),
            ("", False),
        ],
    )
    def test_only_safe_pages_are_opened(self, url: str, safe: bool) -> None:
        assert safe_url(url) is safe
        asked = server(mode="url", url=url)
        assert isinstance(asked, Asked if safe else Settled)
        if isinstance(asked, Asked):
            assert asked.params["elicitationId"] == "e1"
            assert asked.reply({"action": "accept", "content": {}}) == {"action": "accept"}


class TestWithoutForms:
    @pytest.mark.parametrize(
        ("schema", "options", "option", "answer"),
        [
            ({}, ["accept", "decline"], "accept", accept()),
            ({}, ["accept", "decline"], "decline", {"action": "decline"}),
            ({}, ["accept", "decline"], "yes", {"action": "cancel"}),
            ({"properties": {"sure": {"type": "boolean"}}}, ["yes", "no", "decline"], "no", accept(sure=False)),
            (
                {"properties": {"c": {"type": "string", "enum": ["r", "b"]}}, "required": ["c"]},
                ["choice_0", "choice_1", "decline"],
                "choice_1",
                accept(c="b"),
            ),
        ],
    )
    def test_one_choice_is_a_row_of_buttons(self, schema: Any, options: Any, option: str, answer: Any) -> None:
        asked = server(schema, capabilities={})
        assert isinstance(asked, Asked)
        assert [entry["optionId"] for entry in asked.params["options"]] == options
        assert asked.reply({"outcome": {"outcome": "selected", "optionId": option}}) == answer
        assert asked.reply({"outcome": {"outcome": "cancelled"}}) == {"action": "cancel"}
        assert asked.reply(None) == {"action": "cancel"}

    @pytest.mark.parametrize("schema", [SCHEMA, {"properties": {"name": {"type": "string"}}}])
    def test_more_is_declined_and_the_user_told(self, schema: Any) -> None:
        settled = server(schema, capabilities={})
        assert isinstance(settled, Settled)
        assert settled.response == {"action": "decline"}
        assert settled.update["sessionUpdate"] == "notice"

    def test_a_page_is_named(self) -> None:
        asked = server(capabilities={}, mode="url", url="https://example.com/go")
        assert isinstance(asked, Asked)
        assert "https://example.com/go" in asked.params["description"]


@needs_oracles
@pytest.mark.parametrize(
    "asked",
    [
        ask(questions(question("One?"), question("Two?", several=True), question("Three?", options=[]))),
        server(),
        server(mode="url", url="https://example.com"),
        server({}, capabilities={}),
    ],
)
def test_every_request_is_valid(asked: Any) -> None:
    name = "CreateElicitationRequest" if asked.method == "elicitation/create" else "RequestPermissionRequest"
    assert fault_in(name, asked.params) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*"ab", *SCHEMA["properties"]]), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["type", "title", "enum", "oneOf", "items", "anyOf", "default", "minimum", "minLength", "const"])
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "array", "object"])
FIELDS = st.dictionaries(KEYS, JSON | TYPES, max_size=5)


@given(schema=JSON | st.fixed_dictionaries({"properties": st.dictionaries(st.text(max_size=3), FIELDS)}), content=JSON)
def test_nothing_that_a_server_or_a_client_says_raises(schema: Any, content: Any) -> None:
    for capabilities in (FORMS, {}):
        asked = server(schema, capabilities=capabilities)
        if isinstance(asked, Asked):
            asked.reply({"action": "accept", "content": content})
            asked.reply(content if isinstance(content, dict) else None)
    ask(questions(question("?"), question("!", several=True))).reply({"action": "accept", "content": content})
