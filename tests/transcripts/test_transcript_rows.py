"""Each kind of row, told by the facts in its predicate."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.testing.transcripts import folded_prompt_row, prompt_row, turn_rows
from sayagain_claude.transcripts.row import RowKind, classify, row_text

SESSION = "11111111-2222-4333-8444-555555555555"
ID = "11111111-2222-5333-8444-555555555556"


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": ID, "message": {"role": "user", "content": content}, **fields}


def assistant(text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "model": fields.pop("model", "m"), "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message, **fields}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (user("Hello"), RowKind.PROMPT),
        (user([{"type": "text", "text": "Hello"}, {"type": "image"}]), RowKind.PROMPT),
        (prompt_row("<command-name>/x</command-name>", session_id=SESSION, message_id=ID), RowKind.PROMPT),
        (prompt_row("[Request interrupted by user]", session_id=SESSION, message_id=ID), RowKind.PROMPT),
        (prompt_row("x", session_id=SESSION, message_id=ID, isMeta=True), RowKind.META),
        (folded_prompt_row("x", session_id=SESSION, message_id=ID), RowKind.FOLDED_PROMPT),
        (user("<command-name>/cost</command-name>\n<command-message>cost</command-message>"), RowKind.COMMAND),
        (user("<command-message>cost</command-message>\n<command-name>/cost</command-name>"), RowKind.COMMAND),
        ({"type": "system", "subtype": "local_command", "submitUuid": ID}, RowKind.UNAVAILABLE_COMMAND),
        (
            {"type": "system", "subtype": "local_command", "content": "<local-command-stdout>x</local-command-stdout>"},
            RowKind.COMMAND_OUTPUT,
        ),
        (user("<local-command-stdout>x</local-command-stdout>"), RowKind.COMMAND_OUTPUT),
        (user("<local-command-stderr>x</local-command-stderr>"), RowKind.COMMAND_OUTPUT),
        (turn_rows(SESSION, 0)[3], RowKind.TOOL_RESULT),
        (user("[Request interrupted by user]"), RowKind.INTERRUPTION),
        (user([{"type": "text", "text": "[Request interrupted by user for tool use]"}]), RowKind.INTERRUPTION),
        (user("[Request interrupted by user] is what I saw"), RowKind.PROMPT),
        (user("Summary", isCompactSummary=True, isVisibleInTranscriptOnly=True), RowKind.COMPACT_SUMMARY),
        (user("<task-notification>x</task-notification>"), RowKind.TASK_NOTIFICATION),
        (user("x", origin={"kind": "task-notification"}, promptSource="system"), RowKind.TASK_NOTIFICATION),
        (user("x", isMeta=True), RowKind.META),
        (user("x", rowSource="harness"), RowKind.META),
        (user("x", promptSource="system"), RowKind.META),
        (user("<local-command-caveat>x</local-command-caveat>"), RowKind.META),
        (assistant("Hi"), RowKind.ASSISTANT),
        (assistant("No response requested.", model="<synthetic>"), RowKind.NO_RESPONSE),
        (assistant("No response requested."), RowKind.ASSISTANT),
        (assistant("API Error: 500", model="<synthetic>", isApiErrorMessage=True), RowKind.API_ERROR_MESSAGE),
        ({"type": "system", "subtype": "api_error"}, RowKind.API_ERROR),
        ({"type": "system", "subtype": "compact_boundary"}, RowKind.COMPACT_BOUNDARY),
        ({"type": "system", "subtype": "informational"}, RowKind.SYSTEM),
        ({"type": "attachment", "attachment": {"type": "date"}}, RowKind.ATTACHMENT),
        (
            {"type": "attachment", "attachment": {"source_uuid": ID, "commandMode": "task-notification"}},
            RowKind.ATTACHMENT,
        ),
        ({"type": "attachment"}, RowKind.ATTACHMENT),
        ({"type": "queue-operation"}, RowKind.BOOKKEEPING),
        ({"type": "never heard of"}, RowKind.BOOKKEEPING),
        ({"type": ["user"]}, RowKind.BOOKKEEPING),
        ({}, RowKind.BOOKKEEPING),
        ({"type": "user", "message": None}, RowKind.PROMPT),
        ({"type": "assistant", "message": [1]}, RowKind.ASSISTANT),
    ],
)
def test_kind(row: dict[str, Any], kind: RowKind) -> None:
    assert classify(row) is kind


def test_text_of_rows() -> None:
    assert (
        row_text(user([{"type": "text", "text": "a"}, 1, {"type": "image"}, {"type": "text", "text": "b"}])) == "a\nb"
    )
    assert row_text(folded_prompt_row("x", session_id=SESSION, message_id=ID)) == "x"
    assert row_text({"type": "system", "content": "/status"}) == "/status"
    assert row_text({"type": "user", "message": {"content": 1}}) == ""
