"""Compactions: entities whose id is the uuid of the stored boundary.

The frame of a boundary has the row's uuid (measured), the status that says that one is under way has not. So a
compaction is an entity from its boundary on; before that, live, it is a notice.
"""

from __future__ import annotations

from sayagain_claude.translate.blocks import Block, text_block
from sayagain_claude.translate.harness import summary_text

__all__ = ["compaction"]


def compaction(compaction_id: str, summary: str | None) -> Block:
    """A finished compaction; ``summary`` is the message that the model goes on with."""
    update: Block = {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": "completed"}
    text = summary_text(summary) if summary else ""
    if text:
        update["summary"] = [text_block(text)]
    return update
