"""What the user should hear that is no part of the conversation: ``notice`` updates, each once (RES-7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sayagain.protocol.loose import Block, Json, as_count, as_mapping, as_text
from sayagain.protocol.notices import GivenNotices, notice_from
from sayagain_codex.values import without_addresses, without_values

__all__ = ["METHODS", "Notices", "notice"]

notice: Final = partial(notice_from, "Codex")


def _said(params: Json, name: str) -> str:
    """What Codex says of the configuration."""
    return without_values(as_text(params.get(name)))


def _warning(params: Json) -> Block | None:
    text = _said(params, "message")
    return notice("warning", text) if text.strip() else None


def _config(params: Json) -> Block | None:
    summary, path = _said(params, "summary"), as_text(params.get("path"))
    details = [_said(params, "details"), f"In {path}" if path else ""]
    return notice("warning", summary, "\n".join(details)) if summary.strip() else None


def _deprecation(params: Json) -> Block | None:
    summary = _said(params, "summary")
    return notice("info", summary, _said(params, "details")) if summary.strip() else None


def _rerouted(params: Json) -> Block | None:
    before, after = as_text(params.get("fromModel")), as_text(params.get("toModel"))
    return notice("warning", f"Switched from {before or 'the chosen model'} to {after}") if after else None


def _retry(params: Json) -> Block | None:
    # An error that is not retried ends the turn, and is told as its end.
    if params.get("willRetry") is not True:
        return None
    error = as_mapping(params.get("error"))
    details = as_text(error.get("additionalDetails")) or as_text(error.get("message"))
    return notice("warning", "The model service did not answer; trying again", without_addresses(details))


def _server(params: Json) -> Block | None:
    name = as_text(params.get("name"))
    if params.get("status") != "failed" or not name:
        return None
    error = without_addresses(as_text(params.get("error")))
    if params.get("failureReason") == "reauthenticationRequired":
        return notice("warning", f"MCP server {name} needs you to sign in", error)
    return notice("warning", f"MCP server {name} failed to start", error)


def _review(params: Json) -> Block | None:
    review = as_mapping(params.get("review"))
    outcome = {"denied": "denied", "timedOut": "did not decide in time on", "aborted": "gave up on"}.get(
        as_text(review.get("status"))
    )
    if outcome is None:
        return None
    action = as_mapping(params.get("action"))
    names = (as_text(action.get(name)) for name in ("command", "program", "host", "toolName"))
    what = next((text for text in names if text), "")
    title = f"The automatic review {outcome} {what or 'an action'}"
    return notice("warning", title, as_text(review.get("rationale")))


def _hook(params: Json) -> Block | None:
    run = as_mapping(params.get("run"))
    status = as_text(run.get("status"))
    if status not in ("failed", "blocked", "stopped"):
        return None
    outcome = {"failed": "failed", "blocked": "blocked an action", "stopped": "stopped the turn"}[status]
    name = as_text(run.get("eventName")) or "configured"
    return notice("warning", f"A {name} hook {outcome}", as_text(run.get("statusMessage")))


def _limits(params: Json) -> Block | None:
    limits = as_mapping(params.get("rateLimits"))
    window = max((as_mapping(limits.get(name)) for name in ("primary", "secondary")), key=_used)
    if _used(window) < _NEARLY:
        return None
    minutes = as_count(window.get("windowDurationMins")) or 0
    name = "usage limit"
    if minutes >= 60:
        name = f"{minutes // 1440}-day limit" if minutes >= 1440 else f"{minutes // 60}-hour limit"
    if _used(window) >= 100:
        return notice("error", f"The {name} is reached")
    return notice("warning", f"The {name} is nearly reached")


def _used(window: Json) -> float:
    """The percentage of a limit that is used."""
    used = window.get("usedPercent")
    return used if isinstance(used, int | float) and not isinstance(used, bool) else 0


METHODS: Final[Mapping[str, Callable[[Json], Block | None]]] = {
    "warning": _warning,
    "guardianWarning": _warning,
    "configWarning": _config,
    "deprecationNotice": _deprecation,
    "model/rerouted": _rerouted,
    "error": _retry,
    "mcpServer/startupStatus/updated": _server,
    "item/autoApprovalReview/completed": _review,
    "hook/completed": _hook,
    "account/rateLimits/updated": _limits,
}
"""Notifications that make notices."""

_NEARLY: Final = 90
"""Percentage of a usage limit from which on the user should know."""

_EVENTS: Final = frozenset({"error", "item/autoApprovalReview/completed", "hook/completed"})
"""Their notices are worth giving once a turn: each turn's is another event, not the same news again."""


def _resets(params: Json) -> str:
    """When a limit begins anew: its notices then are news again."""
    limits = as_mapping(params.get("rateLimits"))
    return " ".join(str(as_mapping(limits.get(name)).get("resetsAt")) for name in ("primary", "secondary") if limits)


class Notices:
    """Makes notices from notifications, and remembers which were given."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given = GivenNotices()

    def notification(self, method: str, params: Json) -> Block | None:
        """The notice that a notification makes; ``None`` for one that was given, and for those without."""
        make = METHODS.get(method)
        update = make(params) if make else None
        if update is None:
            return None
        turn = as_text(params.get("turnId")) if method in _EVENTS else _resets(params)
        about = "" if method == "error" else update.get("description", "")
        # Not the method: of the configuration Codex tells the same as `configWarning`, and to each thread as `warning`.
        key = "\n".join((turn, update["title"], about))
        return update if self._given.first(key) else None
