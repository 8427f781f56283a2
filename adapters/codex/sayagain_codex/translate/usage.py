"""Tokens in context as ``usage_update``, each change once (UPD-9)."""

from __future__ import annotations

from typing import Final

from sayagain.protocol.loose import Block, Json, as_count, as_mapping

__all__ = ["turn_usage", "usage_update"]

_FIELDS: Final = {
    "totalTokens": "totalTokens",
    "inputTokens": "inputTokens",
    "outputTokens": "outputTokens",
    "thoughtTokens": "reasoningOutputTokens",
    "cachedReadTokens": "cachedInputTokens",
    "cachedWriteTokens": "cacheWriteInputTokens",
}


def _count(value: object) -> int:
    return max(as_count(value) or 0, 0)


def usage_update(params: Json) -> Block | None:
    """The update for ``thread/tokenUsage/updated``; ``None`` while the window's size is unknown.

    ``last`` is the latest model call: all that it read and wrote is what the context now holds.
    """
    usage = as_mapping(params.get("tokenUsage"))
    size = _count(usage.get("modelContextWindow"))
    if not size:
        return None
    used = _count(as_mapping(usage.get("last")).get("totalTokens"))
    return {"sessionUpdate": "usage_update", "used": used, "size": size}


def turn_usage(before: Json, after: Json) -> Block | None:
    """The ``usage`` of an idle state: what the thread's ``total`` grew by; ``None`` when it did not."""
    spent = {name: _count(after.get(field)) - _count(before.get(field)) for name, field in _FIELDS.items()}
    return spent if spent["totalTokens"] > 0 and min(spent.values()) >= 0 else None
