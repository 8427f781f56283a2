"""What a sender may do when the answer to a request is lost: the retry class of every v2 method, as data.

"Sending again" means the same method with the same params as a new JSON-RPC request, on the same or on another
connection, without knowing whether the first one arrived. The classes and the three methods named in them come from
the spec of keyed prompts (section "Give every method a retry class"); for the others the reason is given here, from
the rules of the method. A class is about the effect of the repeat alone: a safe repeat can still be answered with an
error that the first attempt caused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["RETRY", "RetryClass", "RetryRule"]


class RetryClass(Enum):
    """What happens when a request is sent again."""

    SAFE = "safe"
    """The second request changes nothing that the first has not changed: a program may send it again by itself."""

    KEYED = "keyed"
    """Safe with an ``idempotencyKey`` that is the same on every attempt; a duplicate without one."""

    DUPLICATING = "duplicating"
    """Every request makes something new. Sending again costs an unused duplicate, no repeated work."""

    DO_NOT_RESEND = "do_not_resend"
    """The repeat means something else, reaches another piece of work, or has no answer to wait for."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The class of one method, and why."""

    method: str
    retry_class: RetryClass
    reason: str


_SAFE: Final = (
    ("auth/logout", "The agent is signed out, however often it is asked."),
    ("auth/status", "It only reads, and never asks for a sign-in (AUT-2)."),
    ("providers/list", "It only reads."),
    (
        "providers/set",
        "It replaces all of a provider's configuration, so a repeat sets the same (last write wins).",
    ),
    ("providers/disable", "A disabled provider stays disabled."),
    ("session/list", "It only reads; a cursor names the same place again."),
    (
        "session/resume",
        "An active session is synchronized again (RES-13). A replaying one is sent again only when the first was "
        "answered or its connection ended: two markers on one session cannot be told apart.",
    ),
    ("session/close", "Closing a session that is not active succeeds (CLS-4)."),
    ("session/delete", "Deleting a session that is not there succeeds (DEL-1)."),
    ("session/archive", "Archiving an archived session succeeds (ARC-1)."),
    ("session/unarchive", "It only clears the archived mark and loads nothing (ARC-1)."),
    ("session/status", "It looks without side effects (STS-1)."),
    ("session/set_title", "It stores the title it names, so a repeat stores the same (last write wins)."),
    (
        "session/set_config_option",
        "It names a value, not a step, so a repeat sets the same (last write wins); the answer shows what holds now.",
    ),
    (
        "tool_call/cancel",
        "It names one tool call, and ids are not reused, so no other work is hit. Once that call is final the repeat "
        "is answered with -32602 (TC-4): the update tells how it ended.",
    ),
    (
        "terminal/cancel",
        "It names one terminal, and ids are not reused, so no other work is hit. Once that command ended the repeat "
        "is answered with -32602 (TC-4): the update tells how it ended.",
    ),
)

_KEYED: Final = (
    (
        "session/prompt",
        "With a key the message is inserted at most once, and every attempt gets its id (KEY-2). Without one a repeat "
        "inserts a second message and runs the work twice.",
    ),
)

_DUPLICATING: Final = (
    ("session/new", "Each request creates a session; one whose id nobody learned stays empty."),
    ("session/fork", "Each request creates another fork; one whose id nobody learned is never prompted."),
)

_DO_NOT_RESEND: Final = (
    (
        "initialize",
        "It opens a connection, once: a second one there is refused (RPC-7). A new connection negotiates for itself.",
    ),
    ("auth/login", "It may put the user through the sign-in a second time; ask whether it is still wanted."),
    (
        "session/request_permission",
        "The user would be asked twice, and an answer to the first could meet the second. After a lost connection the "
        "agent asks anew if, and only if, the question still stands (RES-8).",
    ),
    (
        "elicitation/create",
        "The user would be asked twice, and a form or page belongs to the connection that it was sent on (ELI-2).",
    ),
    (
        "mcp/message",
        "It carries a request to an MCP server, which may be a tool call with side effects: whether that can be "
        "repeated is for MCP to say. As a notification it is part of a stream that a repeat would double.",
    ),
    (
        "proxy/initialize",
        "It opens a connection to a proxy, once; a new connection negotiates for itself.",
    ),
    (
        "proxy/successor",
        "It carries another message, whose own class decides; only the sender of that one knows whether to repeat it.",
    ),
    (
        "session/cancel",
        "A notification has no answer to miss, and a late repeat would cancel work that began after the first.",
    ),
    (
        "session/update",
        "A notification has no answer to miss, and a repeated chunk is text twice. A resume with replay repairs gaps.",
    ),
    (
        "elicitation/complete",
        "A notification has no answer to miss, and it is for the connection that got the request (ELI-6).",
    ),
    ("auth/status_update", "A notification has no answer to miss; auth/status tells the current state."),
    (
        "$/cancel_request",
        "A notification has no answer to miss: that of the request it names comes anyway (CAN-5). The id may name "
        "another request by then, and names nothing on another connection.",
    ),
)


def _rules() -> Mapping[str, RetryRule]:
    classes = (
        (RetryClass.SAFE, _SAFE),
        (RetryClass.KEYED, _KEYED),
        (RetryClass.DUPLICATING, _DUPLICATING),
        (RetryClass.DO_NOT_RESEND, _DO_NOT_RESEND),
    )
    return MappingProxyType(
        {method: RetryRule(method, retry_class, reason) for retry_class, rows in classes for method, reason in rows}
    )


RETRY: Final = _rules()
"""The rule of each method, by name. A name that is a request and a notification (``mcp/message``) has one rule."""
