"""What a chat is to be with, and where its unconfirmed prompts are kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sayagain.processes.state import state_dir

__all__ = ["ChatOptions"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What to chat with, where, and whether to resume: an id, ``""`` for a list, ``None`` for a new session."""

    command: tuple[str, ...]
    name: str
    cwd: Path
    resume: str | None
    outbox: Path | None

    @property
    def outbox_path(self) -> Path:
        """One for each agent: its sessions mean nothing to another."""
        if self.outbox is not None:
            return self.outbox
        name = self.name
        if not name.isidentifier():
            name = hashlib.sha256("\0".join(self.command).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return state_dir() / f"chat-{name}.db"
