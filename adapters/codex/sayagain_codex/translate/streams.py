"""Text that grows live: what was streamed of an open item, and whether it is what the item ends with."""

from __future__ import annotations

import hashlib

from sayagain.protocol.loose import Block
from sayagain_codex.translate.blocks import text_block

__all__ = ["Digest", "TextStream"]


class Digest:
    """A text's length and hash: enough to compare output of any size with what was sent of it."""

    __slots__ = ("_hash", "_length")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._length = 0

    def add(self, text: str) -> None:
        """The text goes on."""
        self._hash.update(text.encode("utf-8"))
        self._length += len(text)

    def equals(self, text: str) -> bool:
        """Whether all that was added is ``text``."""
        if self._length != len(text):
            return False
        return self._hash.digest() == hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()

    def covers(self, text: str) -> bool:
        """Whether ``text`` has nothing new: it is what was added, or shorter than that."""
        return self._length > len(text) or self.equals(text)


class TextStream:
    """Chunks of one message or thought, with a blank line between its parts.

    ``again`` says that another one had the id, whose text this one's takes the place of.
    """

    __slots__ = ("_again", "_digest", "_item_id", "_kind", "_part", "_started")

    def __init__(self, kind: str, item_id: str, *, again: bool = False) -> None:
        self._again = again
        self._kind = kind
        self._item_id = item_id
        self._digest = Digest()
        self._part: tuple[str, int] | None = None
        self._started = False

    def delta(self, text: str, part: tuple[str, int] = ("", 0)) -> list[Block]:
        """More of the text, in its ``part``."""
        if not text:
            return []
        if self._started and part != self._part:
            text = f"\n\n{text}"
        replaces = self._again and not self._started
        self._part, self._started = part, True
        self._digest.add(text)
        if replaces:
            return [{"sessionUpdate": self._kind, "messageId": self._item_id, "content": [text_block(text)]}]
        chunk: Block = {
            "sessionUpdate": f"{self._kind}_chunk",
            "messageId": self._item_id,
            "content": text_block(text),
        }
        return [chunk]

    def taken_back(self) -> list[Block]:
        """The text does not count: an empty message, when something was streamed of it."""
        if not self._started:
            return []
        return [{"sessionUpdate": self._kind, "messageId": self._item_id, "content": []}]

    def ended(self, text: str) -> bool:
        """Whether the chunks were the whole text."""
        return self._digest.equals(text)
