"""The last word on what belongs to a session as a whole, for clients that come later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["INFO", "Latest"]

INFO: Final = "session_info_update"

_KINDS: Final = frozenset({INFO, "usage_update", "available_commands_update"})


class Latest:
    """Title, usage and commands as last reported: the newest update of each kind."""

    __slots__ = ("_updates",)

    def __init__(self) -> None:
        self._updates: dict[str, Mapping[str, Any]] = {}

    def remember(self, update: Mapping[str, Any]) -> bool:
        """Keep an update; false when it is of no kind that belongs here."""
        kind = update["sessionUpdate"]
        if kind not in _KINDS:
            return False
        # What the session's information leaves out stays as it was; other updates are whole.
        self._updates[kind] = {**self._updates.get(kind, {}), **update} if kind == INFO else update
        return True

    def of(self, kind: str) -> Mapping[str, Any] | None:
        """The update of this kind, if there was one."""
        return self._updates.get(kind)

    def snapshot(self) -> Sequence[Mapping[str, Any]]:
        """All of them."""
        return list(self._updates.values())
