"""What the CLI asks of its user, as the request that the client can answer. Pure.

A permission, a question of the model, a form or page of an MCP server: each by the best means that the client has, and
each with the one function that makes the CLI's answer of the client's result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sayagain_claude.translate import elicitations
from sayagain_claude.translate.blocks import Block, Json, as_mapping, as_text
from sayagain_claude.translate.notices import notice
from sayagain_claude.translate.permissions import (
    answered_questions,
    permission_request,
    permission_response,
    single_choices,
    unanswered_questions,
)

__all__ = ["Asked", "Settled", "ask_mcp", "ask_tool"]

PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"

_CHOICES: Final = 8
"""Values that still make a list of buttons."""


def _nothing_more(_: Json | None) -> Asked | None:
    return None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the client; ``reply`` makes the CLI's answer of its result (``None``: there was none).

    ``tool_call_id`` is the call that waits for the answer, when it is one. ``then`` is what has to be asked next, after
    this result and before the CLI is answered.
    """

    method: str
    params: Block
    reply: Callable[[Json | None], Block]
    tool_call_id: str = ""
    then: Callable[[Json | None], Asked | None] = _nothing_more


@dataclass(frozen=True, slots=True)
class Settled:
    """An answer that needs no client, and what the user should hear of it."""

    response: Block
    update: Block


def ask_tool(
    session_id: str,
    request: Mapping[str, Any],
    *,
    capabilities: Json,
    cwd: str,
    tool_use: Json | None = None,
    before: str | None = None,
    modes: Sequence[str] = (),
) -> Asked:
    """A ``can_use_tool`` request. ``modes`` are those that the session offers; the rest as for a permission."""
    tool_call_id = as_text(request.get("tool_use_id"))
    if request.get("tool_name") == "AskUserQuestion" and elicitations.can(capabilities, "form"):
        params = elicitations.question_form(session_id, request)
        if params is not None:
            return Asked(ELICITATION, params, lambda result: _questions_reply(request, result), tool_call_id)
    params = permission_request(session_id, request, cwd=cwd, tool_use=tool_use, before=before, modes=modes)
    if request.get("tool_name") == "AskUserQuestion" and len(single_choices(request)) > 1:
        return _one_by_one(params, request, {})

    def reply(result: Json | None) -> Block:
        return permission_response(request, result, modes=modes)

    return Asked(PERMISSION, params, reply, tool_call_id)


def _questions_reply(request: Json, result: Json | None) -> Block:
    action = as_text((result or {}).get("action"))
    answers = elicitations.question_answers(request, (result or {}).get("content")) if action == "accept" else None
    if answers is not None:
        return answered_questions(request, answers)
    return unanswered_questions(in_chat=action == "decline")


def _one_by_one(params: Block, request: Json, answers: Mapping[str, str]) -> Asked:
    """Several questions for a client without forms: buttons for the next one, after ``answers`` to those before."""
    questions = single_choices(request)
    question = questions[len(answers)]
    alone = {**request, "input": {"questions": [question]}}
    shown = permission_request(params["sessionId"], alone, cwd="")
    counted = f"{shown['title']} ({len(answers) + 1}/{len(questions)})"
    params = {**params, "title": counted, "options": shown["options"]}

    def answered(result: Json | None) -> tuple[Block, dict[str, str]]:
        response = permission_response(alone, result)
        return response, {**answers, **as_mapping(as_mapping(response.get("updatedInput")).get("answers"))}

    def reply(result: Json | None) -> Block:
        response, known = answered(result)
        return response if response["behavior"] == "deny" else answered_questions(request, known)

    def then(result: Json | None) -> Asked | None:
        response, known = answered(result)
        if response["behavior"] == "deny" or len(known) == len(questions):
            return None
        return _one_by_one(params, request, known)

    return Asked(PERMISSION, params, reply, as_text(request.get("tool_use_id")), then)


def ask_mcp(session_id: str, request: Json, *, capabilities: Json, elicitation_id: str) -> Asked | Settled:
    """An MCP server's ``elicitation``. ``elicitation_id`` is unique on the connection."""
    server = as_text(request.get("mcp_server_name")) or "An MCP server"
    message = as_text(request.get("message")) or f"{server} needs your input"
    if request.get("mode") == "url":
        url = as_text(request.get("url"))
        if not elicitations.safe_url(url):
            return _declined(server, "wanted to open a page whose address is not safe")
        if elicitations.can(capabilities, "url"):
            params = elicitations.url_request(session_id, elicitation_id, message, url)
            return Asked(ELICITATION, params, lambda result: {"action": _action(result)})
        options = {"accept": "I have opened it", "decline": "No"}
        return _buttons(session_id, server, f"{message}\n\nOpen this page in a browser: {url}", options, {})
    raw = as_mapping(request.get("requested_schema"))
    if elicitations.asks_secret(raw):
        return _declined(server, "asked for a secret; those must not be typed into a form")
    schema = elicitations.form_schema(raw, request.get("property_order"))
    if schema is None:
        return _declined(server, "asked for input in a form that cannot be shown here")
    if elicitations.can(capabilities, "form"):
        params = elicitations.form(session_id, f"{server}: {message}", schema)
        return Asked(ELICITATION, params, lambda result: _form_reply(schema, result))
    return _without_form(session_id, server, message, schema)


def _form_reply(schema: Json, result: Json | None) -> Block:
    action = _action(result)
    if action != "accept":
        return {"action": action}
    values = elicitations.checked(schema, (result or {}).get("content"))
    return {"action": "cancel"} if values is None else {"action": "accept", "content": values}


def _action(result: Json | None) -> str:
    action = as_text((result or {}).get("action"))
    return action if action in ("accept", "decline") else "cancel"


def _without_form(session_id: str, server: str, message: str, schema: Json) -> Asked | Settled:
    """Buttons, where the form is one choice or nothing but a yes."""
    fields = as_mapping(schema["properties"])
    if not schema.get("required") and len(fields) != 1:
        return _buttons(session_id, server, message, {"accept": "Accept", "decline": "Decline"}, {})
    contents: dict[str, Block] = {}
    options: dict[str, str] = {}
    if len(fields) == 1:
        [(name, field)] = fields.items()
        if field["type"] == "boolean":
            options, contents = {"yes": "Yes", "no": "No"}, {"yes": {name: True}, "no": {name: False}}
        elif len(choices := field.get("oneOf") or ()) in range(1, _CHOICES + 1):
            options = {f"choice_{number}": choice["title"] for number, choice in enumerate(choices)}
            contents = {f"choice_{number}": {name: choice["const"]} for number, choice in enumerate(choices)}
    if not options:
        return _declined(server, "asked for input, and this client cannot show forms")
    return _buttons(session_id, server, message, options | {"decline": "Decline"}, contents)


def _buttons(
    session_id: str, server: str, message: str, options: Mapping[str, str], contents: Mapping[str, Block]
) -> Asked:
    params: Block = {
        "sessionId": session_id,
        "title": f"{server} asks for your input",
        "description": message,
        "options": [
            {"optionId": key, "name": name, "kind": "reject_once" if key == "decline" else "allow_once"}
            for key, name in options.items()
        ],
    }

    def reply(result: Json | None) -> Block:
        outcome = as_mapping((result or {}).get("outcome"))
        chosen = as_text(outcome.get("optionId")) if outcome.get("outcome") == "selected" else ""
        if chosen not in options:
            return {"action": "cancel"}
        if chosen == "decline":
            return {"action": "decline"}
        return {"action": "accept", "content": contents.get(chosen, {})}

    return Asked(PERMISSION, params, reply)


def _declined(server: str, why: str) -> Settled:
    return Settled({"action": "decline"}, notice("warning", f"The MCP server {server} {why}"))
