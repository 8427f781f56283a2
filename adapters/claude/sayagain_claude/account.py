"""Signing in: what the CLI says of its account, and the ways in (rules section 14)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["auth_methods", "auth_status", "signed_in"]


def signed_in(account: Mapping[str, Any]) -> bool:
    """Whether the CLI could ask a model, by the ``account`` of its ``initialize`` answer (measured).

    With no credential at all a prompt would be stored first and fail then. Other providers than Anthropic's own bring
    credentials that the CLI does not list here.
    """
    if account.get("apiProvider", "firstParty") != "firstParty":
        return True
    return account.get("tokenSource") not in (None, "none") or account.get("apiKeySource") not in (None, "none")


def auth_status(output: bytes) -> Mapping[str, Any]:
    """The result of ``auth/status`` from what ``claude auth status --json`` printed: display information only."""
    try:
        status = json.loads(output)
    except ValueError:
        return {"state": "unknown"}
    if not isinstance(status, dict):
        return {"state": "unknown"}
    fields = cast("dict[str, Any]", status)
    if fields.get("loggedIn") is not True:
        return {"state": "unauthenticated"}
    account: dict[str, Any] = {"label": _words(fields.get("authMethod")) or "Claude Code", "active": True}
    for ours, theirs in (("email", "email"), ("organization", "orgName")):
        if text := fields.get(theirs):
            account[ours] = str(text)
    return {"state": "authenticated", "accounts": [account]}


def _words(method: object) -> str:
    return str(method).replace("_", " ") if isinstance(method, str) else ""


def auth_methods(client_capabilities: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The CLI's terminal logins, for clients that can run them (INI-6). ``args`` follow our own command line."""
    auth = client_capabilities.get("auth")
    if not isinstance(auth, Mapping) or auth.get("terminal") is None:  # pyright: ignore[reportUnknownMemberType]
        return ()
    return (
        {
            "type": "terminal",
            "methodId": "claude-subscription",
            "name": "Claude subscription",
            "description": "Sign in with a Claude Pro, Max, Team or Enterprise plan",
            "args": ["login", "--claudeai"],
        },
        {
            "type": "terminal",
            "methodId": "anthropic-console",
            "name": "Anthropic Console",
            "description": "Sign in with API usage billing",
            "args": ["login", "--console"],
        },
    )
