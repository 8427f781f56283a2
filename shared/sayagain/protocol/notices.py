"""``notice`` updates, and the memory that gives each of them once (RES-7)."""

from __future__ import annotations

from typing import Final

from sayagain.protocol.loose import Block

__all__ = ["GivenNotices", "notice_from"]

_REMEMBERED: Final = 256
"""How many notices are remembered as given; a session gives far fewer."""


def notice_from(speaker: str, severity: str, title: str, description: str = "") -> Block:
    """A notice; a long or many-lined title goes on in the description, and ``speaker`` stands in for none."""
    first, _, rest = title.strip().partition("\n")
    detail = "\n".join(part for part in (rest.strip(), description.strip()) if part)
    update: Block = {"sessionUpdate": "notice", "severity": severity, "title": first or speaker}
    if detail:
        update["description"] = detail
    return update


class GivenNotices:
    """Remembers the notices of one session, the newest of them."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[str, None] = {}

    def first(self, key: str) -> bool:
        """Whether this is the first notice with that key."""
        if key in self._given:
            return False
        if len(self._given) >= _REMEMBERED:
            del self._given[next(iter(self._given))]
        self._given[key] = None
        return True
