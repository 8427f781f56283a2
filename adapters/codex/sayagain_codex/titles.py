"""What a session is called: Codex's name for its thread, else its first prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sayagain.runtime.latest import INFO
from sayagain_codex.listing import title_of
from sayagain_codex.outbox import Outbox

__all__ = ["Titles"]

Params = Mapping[str, Any]


class Titles:
    """Gives a title where none was told yet; what Codex tells later comes from the translator."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def described(self, thread: Params) -> None:
        """Codex described the thread: newcomers are told its title."""
        self._first(title_of(thread))

    def prompted(self, parts: Sequence[Params]) -> None:
        """A session without a title is called by its first prompt, as ``session/list`` will call it."""
        update = self._first(title_of({"preview": " ".join(str(part.get("text", "")) for part in parts)}))
        if update is not None:
            self._outbox.update(update)

    def _first(self, title: str | None) -> Params | None:
        if title is None or self._outbox.knows(INFO):
            return None
        update = {"sessionUpdate": INFO, "title": title}
        self._outbox.remember(update)
        return update
