"""Requests of the app-server that need the client: approvals, questions, elicitations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sayagain.runtime.events import Ask, AskWithdrawn, RuntimeEvent
from sayagain_codex.app_server import RequestId
from sayagain_codex.translate import approvals
from sayagain_codex.translate.live import LiveTranslator

__all__ = ["Asks"]

Params = Mapping[str, Any]


class Asks:
    """The open requests of one session and its children, by the id that Codex gave them."""

    def __init__(self, translator: LiveTranslator, cwd: str, client_capabilities: Params) -> None:
        self._translator = translator
        self._cwd = cwd
        self._client = client_capabilities
        self._open: dict[str, tuple[RequestId, str, Params]] = {}
        # Of children that are not announced yet: nothing may bear their id before that (SUB-1).
        self._early: list[tuple[RequestId, str, Params]] = []

    def asked(self, request_id: RequestId, method: str, params: Params) -> Ask | Params | None:
        """The ask for the client; or the answer, when the client cannot be asked; ``None`` when it has to wait.

        A request that is sent again, as Codex does on a resume, is one that is open already.
        """
        ask_id = str(request_id)
        if ask_id in self._open:
            return None
        session_id = self._translator.session_of(str(params.get("threadId")))
        if session_id is None:
            self._early.append((request_id, method, params))
            return None
        item = self._translator.item_of(params)
        wanted = approvals.request(session_id, method, params, item=item, cwd=self._cwd, capabilities=self._client)
        if wanted is None:
            return approvals.response(method, params, None)
        self._open[ask_id] = (request_id, method, params)
        return Ask(ask_id, session_id, *wanted)

    def announced(self) -> Sequence[tuple[RequestId, Ask | Params | None]]:
        """Requests of children that may have been announced meanwhile, as from :meth:`asked`."""
        early, self._early = self._early, []
        return [(entry[0], self.asked(*entry)) for entry in early]

    def answer(self, ask_id: str, result: Params | None) -> tuple[RequestId, Params, Sequence[RuntimeEvent]] | None:
        """Codex's id and the response for the client's result, and what to tell then; ``None`` when it is too late."""
        entry = self._open.pop(ask_id, None)
        if entry is None:
            return None
        request_id, method, params = entry
        response = approvals.response(method, params, result)
        allowed = str(response.get("decision", "")).startswith("accept") or isinstance(response.get("decision"), dict)
        events: Sequence[RuntimeEvent] = self._translator.permitted(params) if allowed else ()
        return request_id, response, events

    def resolved(self, request_id: RequestId) -> Sequence[RuntimeEvent]:
        """Codex no longer waits: answered, or withdrawn by an interrupt."""
        return [AskWithdrawn(str(request_id))] if self._open.pop(str(request_id), None) else []

    def over(self, turn_id: str) -> Sequence[RuntimeEvent]:
        """The turn ended: what it asked no longer matters. Codex says so itself only after the end (measured)."""
        ids = [ask_id for ask_id, (_, _, params) in self._open.items() if params.get("turnId") == turn_id]
        for ask_id in ids:
            del self._open[ask_id]
        return [AskWithdrawn(ask_id) for ask_id in ids]

    def clear(self) -> Sequence[RuntimeEvent]:
        """The process is gone."""
        events = [AskWithdrawn(ask_id) for ask_id in self._open]
        self._open.clear()
        self._early.clear()
        return events
