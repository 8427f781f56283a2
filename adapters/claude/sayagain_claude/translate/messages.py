"""Ids of agent messages and thoughts: the same for a streamed block, a whole frame and a stored row.

An API message is one ACP message for each run of its text, and one thought for each run of its thinking. The first
run has the API message's id, ``msg_1`` and ``msg_1:thought``; a run that another block separated from it is
``msg_1:2``, ``msg_1:thought:2`` and so on. Empty blocks neither have a run nor separate two: a stream and a row do
not agree on those (measured: thinking that is not displayed has a row without text).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sayagain_claude.translate.blocks import Json, as_mapping, as_text
from sayagain_claude.translate.harness import NO_RESPONSE

__all__ = ["TEXT_KINDS", "RunKind", "Runs", "api_message_id", "block_text", "is_synthetic"]

RunKind: TypeAlias = Literal["agent_message", "agent_thought"]

TEXT_KINDS: Final[dict[str, RunKind]] = {"text": "agent_message", "thinking": "agent_thought"}
"""The API's block types that hold text, and what each is a run of."""

_SYNTHETIC: Final = "<synthetic>"


def is_synthetic(message: Json) -> bool:
    """Whether the CLI wrote the answer itself: the output of a local command, an API error, a filler."""
    return message.get("model") == _SYNTHETIC


def block_text(block: Json, *, synthetic: bool) -> str:
    """The text of a text or thinking block, as it is shown; a local command's output has a margin in its row only."""
    text = as_text(block.get("text" if block.get("type") == "text" else "thinking"))
    if synthetic:
        return "" if text == NO_RESPONSE else text.strip()
    return text


def api_message_id(message: object, fallback: object) -> str:
    """The id of an API message as frames and rows carry it.

    The id of a synthetic message is made up anew for each (measured: a local command's output has another one in its
    frame than its row has uuid), so there the uuid of the frame or row counts, which is the same in both.
    """
    fields = as_mapping(message)
    if is_synthetic(fields):
        return as_text(fallback) or as_text(fields.get("id"))
    return as_text(fields.get("id")) or as_text(fallback)


class Runs:
    """Counts the runs of one API message in the order of its blocks."""

    __slots__ = ("_counts", "_last", "message_id")

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self._last: RunKind | None = None
        self._counts: dict[RunKind, int] = {"agent_message": 0, "agent_thought": 0}

    def run(self, kind: RunKind) -> str:
        """The id for text of this kind that comes now."""
        if self._last != kind:
            self._last = kind
            self._counts[kind] += 1
        count = self._counts[kind]
        base = f"{self.message_id}:thought" if kind == "agent_thought" else self.message_id
        return base if count == 1 else f"{base}:{count}"

    def separate(self) -> None:
        """A block of another kind, such as a tool call, stands here."""
        self._last = None
