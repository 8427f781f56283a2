"""What the user should hear that is no part of the conversation: ``notice`` updates, each once (RES-7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sayagain.protocol.notices import GivenNotices, notice_from
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text

__all__ = ["Notices", "notice"]

notice: Final = partial(notice_from, "Claude Code")


def _informational(frame: Json) -> Block | None:
    # "info" is shown in the CLI's transcript mode only; a blocked prompt is answered as an error instead.
    level, text = frame.get("level"), as_text(frame.get("content"))
    if level == "info" or not text.strip() or "prompt_submit_outcome" in frame:
        return None
    return notice("warning" if level == "warning" else "info", text)


def _api_retry(frame: Json) -> Block | None:
    if frame.get("attempt") != 1:
        return None
    error, status = as_text(frame.get("error")).replace("_", " "), frame.get("error_status")
    what = f"{error or 'no answer'} ({status})" if type(status) is int else error or "no answer"
    return notice("warning", "The model service did not answer; trying again", f"Reason: {what}.")


def _mirror_error(_frame: Json) -> Block | None:
    return notice("error", "Some of the session's history could not be mirrored")


def _fallback(frame: Json) -> Block | None:
    before, after = as_text(frame.get("original_model")), as_text(frame.get("fallback_model"))
    text = as_text(frame.get("content"))
    if after:
        return notice("warning", f"Switched from {before or 'the chosen model'} to {after}", text)
    return notice("warning", text or "The model refused to answer")


def _notification(frame: Json) -> Block | None:
    if frame.get("priority") not in ("high", "immediate") or not as_text(frame.get("text")).strip():
        return None
    return notice("info", as_text(frame["text"]))


def _status(frame: Json) -> Block | None:
    if frame.get("status") == "compacting":
        # Its entity comes at the boundary: only there is the id known that a replay gives it too.
        return None if _growing(frame) else notice("info", "Compacting the conversation")
    if frame.get("compact_result") == "failed":
        return notice("warning", "The conversation could not be compacted", as_text(frame.get("compact_error")))
    return None


def _growing(frame: Json) -> bool:
    count = frame.get("compact_output_chars")
    return type(count) is int and count > 0


_SUBTYPES: Final[dict[str, Callable[[Json], Block | None]]] = {
    "informational": _informational,
    "api_retry": _api_retry,
    "mirror_error": _mirror_error,
    "model_fallback": _fallback,
    "model_refusal_fallback": _fallback,
    "model_refusal_no_fallback": _fallback,
    "model_consent_fallback": _fallback,
    "notification": _notification,
    "status": _status,
}

_REPEATABLE: Final = frozenset({"api_retry", "status"})
"""Their notices are worth giving each time: each is another event, not the same news again."""


def _reset(moment: object) -> str:
    """When a limit ends: ``moment`` is in seconds since 1970."""
    if not isinstance(moment, int | float) or isinstance(moment, bool):
        return ""
    try:
        return f"It resets at {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC."
    except (ValueError, OverflowError, OSError):
        return ""


_SERVER_STATES: Final = {"failed": "failed to start", "needs-auth": "needs you to sign in"}


class Notices:
    """Makes notices from frames, and remembers which were given."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given = GivenNotices()

    def system(self, subtype: str, frame: Json) -> list[Block]:
        """The notices in a ``system`` frame."""
        if subtype == "init":
            return self._servers(frame)
        make = _SUBTYPES.get(subtype)
        update = make(frame) if make else None
        if update is None or (subtype not in _REPEATABLE and not self._given.first(f"{subtype} {update['title']}")):
            return []
        return [update]

    def rate_limit(self, frame: Json) -> list[Block]:
        """The notice in a ``rate_limit_event``: when a limit is near, and when it is reached."""
        info = as_mapping(frame.get("rate_limit_info"))
        status, kind = info.get("status"), as_text(info.get("rateLimitType")).replace("_", " ")
        if status not in ("allowed_warning", "rejected") or not self._given.first(
            f"limit {status} {kind} {info.get('resetsAt')}"
        ):
            return []
        name = f"{kind} limit" if kind else "usage limit"
        if status == "rejected":
            return [notice("error", f"The {name} is reached", _reset(info.get("resetsAt")))]
        return [notice("warning", f"The {name} is nearly reached", _reset(info.get("resetsAt")))]

    def _servers(self, frame: Json) -> list[Block]:
        updates: list[Block] = []
        for server in map(as_mapping, as_list(frame.get("mcp_servers"))):
            name, state = as_text(server.get("name")), _SERVER_STATES.get(as_text(server.get("status")))
            if name and state and self._given.first(f"server {name} {state}"):
                updates.append(notice("warning", f"MCP server {name} {state}"))
        return updates
