"""``can_use_tool`` control requests as ``session/request_permission``, and the client's outcome as their answer.

Everything but an option that was offered and allows is a refusal (PER-3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain_claude.translate import diffs
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, fenced
from sayagain_claude.translate.harness import DECLINED, DISMISSED, IN_CHAT
from sayagain_claude.translate.notebooks import edited_notebook
from sayagain_claude.translate.tools import absolute_path, mcp_name, started, tool_kind

__all__ = [
    "answered_questions",
    "permission_request",
    "permission_response",
    "single_choices",
    "unanswered_questions",
]

ALLOW_ONCE: Final = "allow_once"
ALLOW_ALWAYS: Final = "allow_always"
ALLOW_MODE: Final = "allow_mode"
REJECT: Final = "reject_once"
ANSWER: Final = "answer_"
PLAN: Final = "plan_"

_PLAN_MODES: Final = {
    "auto": "Yes, and use auto mode",
    "acceptEdits": "Yes, and accept all edits",
    "bypassPermissions": "Yes, and bypass permissions",
}
"""The modes to go on in after a plan, by preference. The CLI suggests none (measured); its own dialog offers these."""

_MODES: Final = {"acceptEdits": "accept all edits", "bypassPermissions": "allow everything", "auto": "decide by itself"}
_COMMANDS: Final = frozenset({"Bash", "PowerShell"})
_VERBS: Final = {"Read": "reading", "Edit": "editing", "Write": "writing", "Skill": "the skill"}
_LASTING: Final = {
    "session": "in this session",
    "cliArg": "in this session",
    "userSettings": "in all projects",
    "localSettings": "in this project",
    "projectSettings": "in this project",
}


def permission_request(
    session_id: str,
    request: Mapping[str, Any],
    *,
    cwd: str,
    tool_use: Mapping[str, Any] | None = None,
    before: str | None = None,
    modes: Sequence[str] = ("acceptEdits",),
) -> dict[str, Any]:
    """The params of ``session/request_permission`` (PER-1, PER-4).

    ``session_id`` is the child's when the request has an ``agent_id``. ``tool_use`` is the call's block, whose input
    a request may lack (measured: ``ExitPlanMode``). ``before`` is the text of the file that an edit is about, when
    the caller could read it (``""``: no such file yet): the patch then shows the exact diff before it is approved.
    ``modes`` are those that the session offers: an approved plan may go on in one of them.
    """
    name = as_text(request.get("tool_name"))
    input_ = as_mapping(request.get("input")) or as_mapping((tool_use or {}).get("input"))
    call = started({"id": request.get("tool_use_id"), "name": name, "input": input_}, cwd)
    del call["sessionUpdate"]
    call["status"] = "pending"
    diff = _preview(name, input_, cwd, before)
    if diff is not None:
        call["content"] = [diff]
    params: dict[str, Any] = {
        "sessionId": session_id,
        "title": _title(name, call["title"]),
        "subject": {"type": "tool_call", "toolCall": call},
        "options": _options(name, request, input_, modes),
    }
    description = as_text(request.get("decision_reason")) or as_text(request.get("description"))
    if description and description != as_text(call["title"]):
        params["description"] = description
    return params


def permission_response(
    request: Mapping[str, Any], result: Mapping[str, Any] | None, *, modes: Sequence[str] = ("acceptEdits",)
) -> dict[str, Any]:
    """The ``response`` of the control response for a client's result; ``None`` when it failed or was cancelled.

    ``modes`` as in the request.
    """
    name, input_ = as_text(request.get("tool_name")), as_mapping(request.get("input"))
    outcome = as_mapping((result or {}).get("outcome"))
    chosen = as_text(outcome.get("optionId")) if outcome.get("outcome") == "selected" else ""
    if chosen not in {option["optionId"] for option in _options(name, request, input_, modes)}:
        return _deny(DISMISSED)
    if chosen == REJECT:
        # Whoever sends a plan back has something to say about it: the turn ends, as in the CLI itself.
        return _deny(IN_CHAT if name == "AskUserQuestion" else DECLINED, interrupt=name == "ExitPlanMode")
    if chosen.startswith(ANSWER):
        question = _questions(input_)[0]
        return answered_questions(request, {as_text(question.get("question")): _labels(question)[_number(chosen)]})
    allowed: dict[str, Any] = {"behavior": "allow", "updatedInput": dict(input_)}
    if chosen.startswith(PLAN):
        mode = chosen.removeprefix(PLAN)
        allowed["updatedPermissions"] = [{"type": "setMode", "mode": mode, "destination": "session"}]
    elif chosen in (ALLOW_ALWAYS, ALLOW_MODE):
        allowed["updatedPermissions"] = _suggested(request, modes=chosen == ALLOW_MODE)
    return allowed


def answered_questions(request: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, Any]:
    """The control response that gives an ``AskUserQuestion`` its answers, by question."""
    input_ = {**as_mapping(request.get("input")), "answers": dict(answers)}
    return {"behavior": "allow", "updatedInput": input_}


def unanswered_questions(*, in_chat: bool) -> dict[str, Any]:
    """The control response for an ``AskUserQuestion`` whose user would rather write, or said nothing."""
    return _deny(IN_CHAT if in_chat else DISMISSED)


def single_choices(request: Mapping[str, Any]) -> list[Json]:
    """The questions of an ``AskUserQuestion`` when each has one answer of several; else none.

    Buttons can answer them, one question after the other.
    """
    questions = _questions(as_mapping(request.get("input")))
    texts = [as_text(question.get("question")) for question in questions]
    buttons = all(question.get("multiSelect") is not True and any(_labels(question)) for question in questions)
    return questions if buttons and all(texts) and len(set(texts)) == len(texts) else []


def _number(option_id: str) -> int:
    return int(option_id.removeprefix(ANSWER))


def _deny(message: str, *, interrupt: bool = False) -> dict[str, Any]:
    return {"behavior": "deny", "message": message, "interrupt": interrupt}


def _title(name: str, call_title: str) -> str:
    if name == "ExitPlanMode":
        return "Approve this plan?"
    if name == "AskUserQuestion":
        return call_title
    if tool_kind(name) == "execute":
        return f"Run {call_title}?"
    # A title that is a mere name says nothing of what is done.
    return f"Allow {call_title}?" if call_title == name or mcp_name(name) else f"{call_title}?"


def _options(name: str, request: Json, input_: object, modes: Sequence[str]) -> list[Block]:
    if name == "AskUserQuestion":
        return _answers(as_mapping(input_))
    if name == "ExitPlanMode":
        return [
            *(_option(f"{PLAN}{mode}", label, "allow_always") for mode, label in _PLAN_MODES.items() if mode in modes),
            _option(ALLOW_ONCE, "Yes, and ask before each edit", "allow_once"),
            _option(REJECT, "No, keep planning", "reject_once"),
        ]
    options = [_option(ALLOW_ONCE, "Allow", "allow_once")]
    rules, mode_changes = _suggested(request, modes=False), _suggested(request, modes=True)
    if rules:
        options.append(_option(ALLOW_ALWAYS, _rules_label(rules), "allow_always"))
    if mode_changes:
        options.append(_option(ALLOW_MODE, _modes_label(mode_changes), "allow_always"))
    options.append(_option(REJECT, "Reject", "reject_once"))
    return options


def _option(option_id: str, name: str, kind: str) -> Block:
    return {"optionId": option_id, "name": name, "kind": kind}


def _answers(input_: Json) -> list[Block]:
    """The labels of one single-choice question as options; anything else is answered in the chat."""
    questions = _questions(input_)
    options: list[Block] = []
    if len(questions) == 1 and questions[0].get("multiSelect") is not True:
        labels = _labels(questions[0])
        options = [_option(f"{ANSWER}{index}", label, "allow_once") for index, label in enumerate(labels) if label]
    return [*options, _option(REJECT, "Answer in the chat", "reject_once")]


def _questions(input_: Json) -> list[Json]:
    return [as_mapping(question) for question in as_list(input_.get("questions"))]


def _labels(question: Json) -> list[str]:
    return [as_text(as_mapping(option).get("label")) for option in as_list(question.get("options"))]


def _suggested(request: Json, *, modes: bool) -> list[Json]:
    """The CLI's suggestions: changes of the mode, or all others, which belong together."""
    suggestions = [as_mapping(suggestion) for suggestion in as_list(request.get("permission_suggestions"))]
    return [
        suggestion
        for suggestion in suggestions
        if suggestion
        and (suggestion.get("type") == "setMode") is modes
        # What denies or asks is no part of an allowance.
        and suggestion.get("behavior", "allow") == "allow"
    ]


def _rules_label(suggestions: Sequence[Json]) -> str:
    subjects: list[str] = []
    for suggestion in suggestions:
        rules = map(as_mapping, as_list(suggestion.get("rules")))
        subjects += [_rule(as_text(rule.get("toolName")), as_text(rule.get("ruleContent"))) for rule in rules]
        subjects += [f"access to {as_text(directory)}" for directory in as_list(suggestion.get("directories"))]
    lasting = _LASTING.get(as_text(suggestions[0].get("destination")), "")
    what = " and ".join(dict.fromkeys(subject for subject in subjects if subject)) or "this"
    return f"Always allow {what} {lasting}".strip()


def _rule(tool: str, content: str) -> str:
    """A rule in words: what the tool may do from now on without asking."""
    if not content:
        server, _, name = tool.removeprefix("mcp__").partition("__") if tool.startswith("mcp__") else ("", "", "")
        if name:
            return f"{name} of {server}"
        return f"all tools of {server}" if server else tool
    if tool in _COMMANDS:
        # Both forms of a prefix: "touch *" and the older "touch:*".
        prefix = content.removesuffix(":*").removesuffix(" *")
        return f"commands that begin with {prefix}" if prefix != content else f"the command {content}"
    if tool == "WebFetch":
        return f"fetching from {content.removeprefix('domain:')}"
    return f"{_VERBS[tool]} {content}" if tool in _VERBS else f"{tool}({content})"


def _modes_label(suggestions: Sequence[Json]) -> str:
    mode = as_text(suggestions[0].get("mode"))
    lasting = _LASTING.get(as_text(suggestions[0].get("destination")), "")
    return f"Allow, and {_MODES.get(mode, f'switch to {mode} mode')} {lasting}".strip()


def _preview(name: str, input_: Json, cwd: str, before: str | None) -> Block | None:
    path = absolute_path(input_.get("notebook_path" if name == "NotebookEdit" else "file_path"), cwd)
    if path is None or name not in ("Write", "Edit", "NotebookEdit"):
        return None
    if name == "NotebookEdit":
        edited = edited_notebook(before, input_) if before else None
        if edited is not None:
            return diffs.text_diff(path, before, edited)
        source = as_text(input_.get("new_source"))
        return fenced(source) if source else None
    missing = before == ""
    if name == "Write":
        after = input_.get("content")
        if not isinstance(after, str):
            return None
        if before is None:
            return fenced(as_text(after))
        return diffs.text_diff(path, None if missing else before, as_text(after))
    old, new = input_.get("old_string"), input_.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        if missing and not old:
            return diffs.text_diff(path, None, as_text(new))
        if before and old and old in before:
            count = -1 if input_.get("replace_all") is True else 1
            return diffs.text_diff(path, before, before.replace(old, as_text(new), count))
        lines = [f"-{line}" for line in as_text(old).split("\n")] + [f"+{line}" for line in as_text(new).split("\n")]
        return fenced("\n".join(lines), "diff")
    return None
