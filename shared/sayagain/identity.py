"""Message ids from keys, and ids of sessions and their children (design section 2).

The derived id *is* the idempotency record: the runtime stores it with the message in one step, so there is no table
and no file of ours that could disagree with the history. UUIDv5 is one-way: an id in a replay is no echo of a key
(KEY-10).
"""

from __future__ import annotations

import uuid
from typing import Final

from sayagain.errors import InvalidParams

__all__ = [
    "KEY_LENGTH",
    "child_session_id",
    "derive_message_id",
    "fresh_message_id",
    "new_session_id",
    "root_session_id",
    "validate_key",
]

KEY_LENGTH: Final = 255
"""Longest key, in code points, as JSON Schema counts ``maxLength`` (KEY-1)."""


def validate_key(value: object, field: str = "idempotencyKey") -> str | None:
    """The key in ``value``; ``None`` for ``None`` (KEY-1).

    Raises :class:`~sayagain.errors.InvalidParams` for anything but a string of 1 to 255 code points that can be
    encoded as UTF-8. A malformed key is never taken for an absent one.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidParams(field, "must be a string of 1 to 255 characters, or null")
    if not 1 <= len(value) <= KEY_LENGTH:
        raise InvalidParams(field, f"must have 1 to 255 characters, has {len(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParams(field, "has a lone surrogate, which UTF-8 cannot encode") from None
    return value


def derive_message_id(session_id: str, key: str) -> str:
    """The id of the message that ``key`` names in the session (KEY-11): ``uuid5(UUID(session_id), key)``.

    A session id that is no UUID gets a namespace of its own, so that runtimes are free in their choice of ids.
    """
    try:
        namespace = uuid.UUID(session_id)
    except ValueError:
        namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sayagain:session:{session_id}")
    return str(uuid.uuid5(namespace, key))


def fresh_message_id() -> str:
    """An id for a message without a key: UUIDv7, so that ids sort by time in logs."""
    # Imports importlib.metadata, which nothing before the first prompt needs.
    from uuid6 import uuid7

    return str(uuid7())


def new_session_id() -> str:
    """An id for a session whose id is ours to choose: UUIDv4, the form that Claude Code accepts."""
    return str(uuid.uuid4())


def child_session_id(root_session_id: str, runtime_id: str) -> str:
    """The id of a subagent session: stable over replays, unique under its root (SUB-2)."""
    return f"{root_session_id}.{runtime_id}"


def root_session_id(session_id: str) -> str | None:
    """The root of a child session's id as :func:`child_session_id` makes it; ``None`` for one that is no child's."""
    root, dot, _ = session_id.rpartition(".")
    return root if dot else None
