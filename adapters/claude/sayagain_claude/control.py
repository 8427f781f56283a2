"""The CLI's control protocol: our requests to a running process, and its answers. No I/O.

Frames (measured, claude 2.1.332)::

    -> {"type": "control_request", "request_id": R, "request": {"subtype": S, ...}}
    <- {"type": "control_response", "response": {"subtype": "success", "request_id": R, "response": {...}}}
    <- {"type": "control_response", "response": {"subtype": "error", "request_id": R, "error": "..."}}

The CLI sends requests in the same form (``can_use_tool``) and takes them back with ``control_cancel_request``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from sayagain.errors import RuntimeDied, RuntimeFault

__all__ = ["ControlRefused", "PendingControl", "control_request", "error_response", "success_response", "user_frame"]


class ControlRefused(RuntimeFault):
    """The CLI answered a control request with an error. Its ``words`` may repeat what was requested, tokens too: they
    are for nobody but who made the request.
    """

    def __init__(self, words: str) -> None:
        super().__init__("Claude Code refused a control request")
        self.words = words


def control_request(request_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """A request of ours."""
    return {"type": "control_request", "request_id": request_id, "request": dict(request)}


def success_response(request_id: str, response: Mapping[str, Any]) -> dict[str, Any]:
    """Our answer to a request of the CLI."""
    return {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request_id, "response": dict(response)},
    }


def error_response(request_id: str, error: str) -> dict[str, Any]:
    """Our refusal of a request of the CLI."""
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}}


def user_frame(session_id: str, message_id: str, content: Any) -> dict[str, Any]:
    """A prompt. The CLI stores ``uuid`` as it is: that is the whole record of a key (measured)."""
    return {
        "type": "user",
        "uuid": message_id,
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": session_id,
    }


class _Pending:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.outcome: Mapping[str, Any] | RuntimeFault = RuntimeDied()


class PendingControl:
    """Our control requests that wait for an answer."""

    def __init__(self) -> None:
        self._last = 0
        self._pending: dict[str, _Pending] = {}

    @contextmanager
    def opened(self) -> Generator[str]:
        """A new request's id, which is waited for as long as this is open."""
        self._last += 1
        request_id = f"sayagain-{self._last}"
        self._pending[request_id] = _Pending()
        try:
            yield request_id
        finally:
            del self._pending[request_id]

    async def result(self, request_id: str) -> Mapping[str, Any]:
        """The answer's ``response``.

        Raises :class:`ControlRefused`, or :class:`~sayagain.errors.RuntimeDied` when the process ends first.
        """
        pending = self._pending[request_id]
        await pending.done.wait()
        if isinstance(pending.outcome, RuntimeFault):
            raise pending.outcome
        return pending.outcome

    def answer(self, frame: Mapping[str, Any]) -> None:
        """Take a ``control_response`` frame; one that nobody waits for is ignored."""
        response: Mapping[str, Any] = frame.get("response") or {}
        pending = self._pending.get(str(response.get("request_id")))
        if pending is None:
            return
        if response.get("subtype") == "success":
            pending.outcome = response.get("response") or {}
        else:
            pending.outcome = ControlRefused(str(response.get("error") or "refused by Claude Code"))
        pending.done.set()

    def end(self) -> None:
        """The process ended: nothing is answered any more."""
        for pending in self._pending.values():
            pending.done.set()
