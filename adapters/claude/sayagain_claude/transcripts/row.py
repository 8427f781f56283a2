"""What a stored row is: one table of predicates, each with the fact behind it.

Pure, and without I/O. The first predicate of the row's type that holds decides. Measured on Claude Code
2.1.332; older rows that lack a field are told by their content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from sayagain.protocol.loose import as_list, as_mapping

__all__ = ["Row", "RowKind", "classify", "row_message_ids", "row_text"]

Row: TypeAlias = Mapping[str, Any]
"""A stored row as parsed, in the CLI's own form."""

_Predicate: TypeAlias = Callable[[Row], bool]

_INTERRUPTIONS: Final = frozenset({"[Request interrupted by user]", "[Request interrupted by user for tool use]"})


class RowKind(Enum):
    """The kinds of rows. Whether a row belongs to a subagent (``isSidechain``) is another matter."""

    PROMPT = "prompt"
    """A user message that a client submitted, or that a user typed into the CLI itself."""
    FOLDED_PROMPT = "folded_prompt"
    """A prompt that was taken into a running turn: an attachment, without any user row."""
    COMMAND = "command"
    """A slash command that the CLI handled itself; the row has the client's id, its content is markup."""
    UNAVAILABLE_COMMAND = "unavailable_command"
    """A slash command that this environment lacks; the id is in ``submitUuid``."""
    COMMAND_OUTPUT = "command_output"
    """What a local command printed, within ``<local-command-stdout>`` or ``-stderr``."""
    TOOL_RESULT = "tool_result"
    INTERRUPTION = "interruption"
    """``[Request interrupted by user]``, also with ``for tool use``."""
    COMPACT_SUMMARY = "compact_summary"
    """The summary that replaces what came before for the model; never a user's text."""
    TASK_NOTIFICATION = "task_notification"
    """News of a background task, written for the model."""
    META = "meta"
    """Any other user row that the harness made for the model: caveats, continuations, reminders."""
    ASSISTANT = "assistant"
    """One content block of an answer (sometimes several)."""
    NO_RESPONSE = "no_response"
    """The filler that the CLI adds when a session resumes after an unanswered prompt."""
    API_ERROR_MESSAGE = "api_error_message"
    """An API error, worded by the CLI as an answer."""
    API_ERROR = "api_error"
    """One failed attempt, before a retry."""
    COMPACT_BOUNDARY = "compact_boundary"
    ATTACHMENT = "attachment"
    """Context that the CLI attached for the model."""
    SYSTEM = "system"
    BOOKKEEPING = "bookkeeping"
    """No part of the conversation: queue operations, titles, costs, requests, and types not known here."""


def _content(row: Row) -> object:
    return as_mapping(row.get("message")).get("content")


def _blocks(content: object) -> list[Mapping[str, Any]]:
    return [as_mapping(block) for block in as_list(content)]


def _attachment(row: Row) -> Mapping[str, Any]:
    return as_mapping(row.get("attachment"))


def row_text(row: Row) -> str:
    """The text of a user, assistant, system or folded-prompt row: a string, or its text blocks joined by newlines."""
    kind = row.get("type")
    if kind == "attachment":
        content = _attachment(row).get("prompt")
    else:
        content = row.get("content") if kind == "system" else _content(row)
    if isinstance(content, str):
        return content
    texts = (block.get("text") for block in _blocks(content) if block.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def _has_tool_result(row: Row) -> bool:
    content = _content(row)
    return not isinstance(content, str) and any(block.get("type") == "tool_result" for block in _blocks(content))


def _starts(row: Row, *beginnings: str) -> bool:
    return row_text(row).lstrip().startswith(beginnings)


def _is_true(name: str) -> _Predicate:
    return lambda row: row.get(name) is True


def _always(_row: Row) -> bool:
    return True


def _is_submitted(row: Row) -> bool:
    return row.get("promptSource") == "sdk" and row.get("isMeta") is not True


def _is_task_notification(row: Row) -> bool:
    return as_mapping(row.get("origin")).get("kind") == "task-notification" or _starts(row, "<task-notification>")


def _is_folded_prompt(row: Row) -> bool:
    attachment = _attachment(row)
    return isinstance(attachment.get("source_uuid"), str) and attachment.get("commandMode") != "task-notification"


def _is_no_response(row: Row) -> bool:
    return (
        as_mapping(row.get("message")).get("model") == "<synthetic>"
        and row_text(row).strip() == "No response requested."
    )


_KINDS: Final[Mapping[str, Sequence[tuple[RowKind, _Predicate]]]] = {
    "user": (
        # Most frequent, and nothing else has such a block.
        (RowKind.TOOL_RESULT, _has_tool_result),
        (RowKind.COMPACT_SUMMARY, _is_true("isCompactSummary")),
        # Only what a client sent over stdin is marked so: a prompt that quotes the markup below stays a prompt.
        (RowKind.PROMPT, _is_submitted),
        (RowKind.TASK_NOTIFICATION, _is_task_notification),
        (RowKind.META, _is_true("isMeta")),
        # A command has its client's id but no promptSource; its text is replaced by markup.
        (RowKind.COMMAND, lambda row: _starts(row, "<command-name>", "<command-message>")),
        (RowKind.COMMAND_OUTPUT, lambda row: _starts(row, "<local-command-stdout>", "<local-command-stderr>")),
        (RowKind.INTERRUPTION, lambda row: row_text(row).strip() in _INTERRUPTIONS),
        # How the CLI marks what it writes itself; older versions mark less, and are told by their text.
        (RowKind.META, _is_true("isVisibleInTranscriptOnly")),
        (RowKind.META, lambda row: row.get("rowSource") == "harness"),
        (RowKind.META, lambda row: row.get("promptSource") == "system"),
        (RowKind.META, lambda row: _starts(row, "<local-command-caveat>")),
        # A user at the CLI's own prompt, or another client.
        (RowKind.PROMPT, _always),
    ),
    "assistant": (
        (RowKind.API_ERROR_MESSAGE, _is_true("isApiErrorMessage")),
        # Only the CLI itself writes the model "<synthetic>".
        (RowKind.NO_RESPONSE, _is_no_response),
        (RowKind.ASSISTANT, _always),
    ),
    "attachment": (
        (RowKind.FOLDED_PROMPT, _is_folded_prompt),
        (RowKind.ATTACHMENT, _always),
    ),
    "system": (
        (RowKind.COMPACT_BOUNDARY, lambda row: row.get("subtype") == "compact_boundary"),
        (RowKind.API_ERROR, lambda row: row.get("subtype") == "api_error"),
        # The command and its output are rows of the same subtype; the id is on the command's alone.
        (RowKind.UNAVAILABLE_COMMAND, lambda row: isinstance(row.get("submitUuid"), str)),
        (RowKind.COMMAND_OUTPUT, lambda row: row.get("subtype") == "local_command"),
        (RowKind.SYSTEM, _always),
    ),
}


def classify(row: Row) -> RowKind:
    """The kind of a stored row; :attr:`RowKind.BOOKKEEPING` for every type that is no part of the conversation."""
    kind = row.get("type")
    predicates = _KINDS.get(kind, ()) if isinstance(kind, str) else ()
    return next((kind for kind, holds in predicates if holds(row)), RowKind.BOOKKEEPING)


def row_message_ids(row: Row) -> tuple[str, ...]:
    """The ids under which a retry of the row's message must be recognised; the one to replay it with comes first.

    All the places where the CLI puts the id of a submitted message (measured): ``uuid`` of a user row, whatever made
    it, since one id too many is harmless; ``sentAsUuid`` and ``mergedSendUuids`` of the same; ``source_uuid`` of a
    prompt that was folded into a turn; ``submitUuid`` of a command that is not available. Tool results have none.
    Subagents' rows and rows with another ``sessionId`` count too: what came before a resume may bear another id, and
    ids that derive from our session id cannot be met by chance.
    """
    kind = row.get("type")
    if kind == "user":
        if _has_tool_result(row):
            return ()
        ids = [row.get("uuid")]
        if "sentAsUuid" in row or "mergedSendUuids" in row:
            ids += [row.get("sentAsUuid"), *as_list(row.get("mergedSendUuids"))]
    elif kind == "attachment":
        ids = [_attachment(row).get("source_uuid")]
    elif kind == "system":
        ids = [row.get("submitUuid")]
    else:
        return ()
    strings = [value for value in ids if isinstance(value, str) and value]
    return tuple(dict.fromkeys(strings) if len(strings) > 1 else strings)
