"""Which updates can be a part of a session's history."""

from __future__ import annotations

from typing import Final

__all__ = ["NOT_HISTORY"]

NOT_HISTORY: Final = frozenset(
    {
        "available_commands_update",
        "config_option_update",
        "notice",
        "session_info_update",
        "state_update",
        "usage_update",
    }
)
"""Kinds that tell what holds now, and are never a part of it (RPL-4). A kind that is not known may be one."""
