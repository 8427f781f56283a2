"""What one session's agent is just saying: deltas as chunks, and what whole frames add to them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from sayagain_claude.translate.blocks import Block, Json, as_text, clean_text
from sayagain_claude.translate.messages import TEXT_KINDS, RunKind, Runs

__all__ = ["MessageStream"]

_CHUNK: Final[dict[RunKind, str]] = {
    "agent_message": "agent_message_chunk",
    "agent_thought": "agent_thought_chunk",
}
_FIELD: Final[dict[RunKind, str]] = {"agent_message": "text", "agent_thought": "thinking"}


@dataclass(slots=True)
class _Streamed:
    """A text or thinking block as it streamed, until the whole frame of it claims it."""

    kind: RunKind
    parts: list[str] = field(default_factory=list[str])
    run_id: str | None = None


class MessageStream:
    """The current message of one session; an earlier one leaves nothing behind."""

    __slots__ = ("_open", "_unclaimed", "runs")

    def __init__(self) -> None:
        self.runs = Runs("")
        self._open: _Streamed | None = None
        self._unclaimed: deque[_Streamed] = deque()

    def message(self, message_id: str) -> None:
        """The message that comes now; nothing changes when it is the same as before."""
        if self.runs.message_id != message_id:
            self.runs = Runs(message_id)
            self._open = None
            self._unclaimed.clear()

    def block_started(self, block: Json) -> Block | None:
        """A block begins to stream: a chunk when it has text already."""
        kind = TEXT_KINDS.get(as_text(block.get("type")))
        if kind is None:
            self._open = None
            return None
        self._open = _Streamed(kind)
        self._unclaimed.append(self._open)
        return self.delta(block)

    def block_stopped(self) -> None:
        """The open block is complete."""
        self._open = None

    def turn_ended(self) -> None:
        """No whole frame claims what streamed last: it was cut off."""
        self._open = None
        self._unclaimed.clear()

    def delta(self, delta: Json) -> Block | None:
        """The chunk for a delta of the open block. Called for each few characters of an answer."""
        block = self._open
        if block is None:
            return None
        text = delta.get(_FIELD[block.kind])
        if not isinstance(text, str):
            return None
        block.parts.append(text)
        if block.run_id is None:
            # A block of blanks alone is not stored (code), so blanks wait for what follows them.
            if not text or text.isspace():
                return None
            text = "".join(block.parts)
            block.run_id = self.runs.run(block.kind)
        return _chunk(block.kind, block.run_id, clean_text(text))

    def whole(self, kind: RunKind, text: str) -> Block | None:
        """The chunk for what a whole block adds to what was streamed of it: mostly nothing."""
        run_id = None
        while self._unclaimed:
            streamed = self._unclaimed.popleft()
            if streamed.kind == kind:
                if streamed.run_id is not None:
                    shown = clean_text("".join(streamed.parts))
                    text = text[len(shown) :] if text.startswith(shown) else ""
                    run_id = streamed.run_id
                break
        if not text or (run_id is None and text.isspace()):
            return None
        return _chunk(kind, run_id or self.runs.run(kind), text)


def _chunk(kind: RunKind, run_id: str, text: str) -> Block:
    return {"sessionUpdate": _CHUNK[kind], "messageId": run_id, "content": {"type": "text", "text": text}}
