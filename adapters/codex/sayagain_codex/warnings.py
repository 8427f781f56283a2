"""What Codex has to say of its configuration: it says so before there is a session, and once."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final
from weakref import WeakSet

from sayagain.protocol.loose import as_text
from sayagain_codex.routes import Owner
from sayagain_codex.session import CodexSession
from sayagain_codex.values import without_values

__all__ = ["Warnings"]

Params = Mapping[str, Any]

_METHODS: Final = frozenset({"configWarning", "deprecationNotice"})


class Warnings:
    """Kept for the next session that a client opens. One that is only read has nobody to tell them to."""

    def __init__(self) -> None:
        self._opened: WeakSet[CodexSession] = WeakSet()
        self._unheard: list[tuple[str, Params]] = []

    def heard(self, method: str, params: Params, sessions: Set[Owner]) -> None:
        """A notification that belongs to no thread, which ``sessions`` hear by themselves."""
        heard = any(session in self._opened for session in sessions)
        if method in _METHODS and not heard and (method, params) not in self._unheard:
            self._unheard.append((method, params))

    def forget(self) -> None:
        """Another process starts: it has read the configuration anew, and says itself what is wrong with it."""
        self._unheard.clear()

    def opening(self, session: CodexSession) -> None:
        """A client opens this session; :meth:`tell` follows when it is open."""
        self._opened.add(session)

    def tell(self, session: CodexSession) -> None:
        """Tell it what nobody has heard."""
        for method, params in self._unheard:
            session.announced(method, params)
        self._unheard.clear()

    def unread(self) -> str | None:
        """What Codex says of a configuration that it could not read, and replaced by its defaults (measured).

        No value is in it. It is for an error, and told by that: a session that follows does not hear it, since it may
        be mended by then.
        """
        for warning in self._unheard:
            _, params = warning
            summary = as_text(params.get("summary"))
            # Of a file that is broken it tells the place; of what cannot be used, or not be read, the summary alone.
            if params.get("path") or "using defaults" in summary:
                self._unheard.remove(warning)
                return without_values(" ".join(filter(None, (summary, as_text(params.get("details"))))))
        return None
