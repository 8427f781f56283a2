"""Context and cost: the ``usage_update`` of a session."""

from __future__ import annotations

from sayagain_claude.translate.blocks import Block, Json, as_mapping, as_text

__all__ = ["UsageMeter"]


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


class UsageMeter:
    """Follows the tokens in context, and reports each change once.

    The size of the context window is known from the first ``result`` on (``modelUsage``); nothing is reported before,
    since a size is required and a guess would be wrong for models with another one (UPD-9).
    """

    __slots__ = ("_cost", "_model", "_reported", "_size", "_used", "_used_before_output")

    def __init__(self) -> None:
        self._size = 0
        self._used = 0
        self._used_before_output = 0
        self._cost: float | None = None
        self._model = ""
        self._reported: tuple[int, int, float | None] | None = None

    def message_started(self, message: Json) -> None:
        """A model call begins: ``message`` of ``message_start``."""
        usage = as_mapping(message.get("usage"))
        self._model = as_text(message.get("model")) or self._model
        self._used_before_output = sum(
            _count(usage.get(name))
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
        self._used = self._used_before_output

    def message_ended(self, usage: Json) -> Block | None:
        """A model call ends: ``usage`` of ``message_delta``."""
        self._used = self._used_before_output + _count(usage.get("output_tokens"))
        return self._update()

    def compacted(self, metadata: Json) -> Block | None:
        """A compaction ended: ``compact_metadata``."""
        if "post_tokens" in metadata:
            self._used = _count(metadata["post_tokens"])
        return self._update()

    def turn_ended(self, result: Json) -> Block | None:
        """A ``result`` frame: the window's size and the session's cost."""
        models = as_mapping(result.get("modelUsage"))
        entry = as_mapping(models.get(self._model))
        if not entry and len(models) == 1:
            entry = as_mapping(next(iter(models.values())))
        self._size = _count(entry.get("contextWindow")) or self._size
        cost = result.get("total_cost_usd")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf"):
            self._cost = round(cost, 9)  # sums of floats end in noise
        return self._update()

    def _update(self) -> Block | None:
        state = (self._used, self._size, self._cost)
        if not self._size or state == self._reported:
            return None
        self._reported = state
        update: Block = {"sessionUpdate": "usage_update", "used": self._used, "size": self._size}
        if self._cost is not None:
            update["cost"] = {"amount": self._cost, "currency": "USD"}
        return update
