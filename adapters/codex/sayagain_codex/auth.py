"""Signing in: Codex's own account state, and the ways in (rules section 14).

Codex refuses nothing without a login: the turn fails later, when the prompt is stored already (measured). So the
account is asked for before a prompt is given. The environment's API keys are ignored by the app-server (measured): one
is used only when the client asks for it, and stays in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.errors import RuntimeFault
from sayagain.protocol.loose import as_mapping, as_text
from sayagain_codex.command import API_KEY_VARIABLES, home

__all__ = ["API_KEY", "CHATGPT", "api_key", "auth_methods", "auth_status", "refused", "signed_in", "why_not"]

Params = Mapping[str, Any]

API_KEY: Final = "api-key"
CHATGPT: Final = "chatgpt"


class ApiKeyMissing(RuntimeFault):
    """There is no API key in the environment."""

    reason = "api_key_missing"

    @property
    def data(self) -> Params:
        return {"reason": self.reason, "envVars": list(API_KEY_VARIABLES)}

    def __str__(self) -> str:
        return f"No API key: the agent must be started with {' or '.join(API_KEY_VARIABLES)} in its environment"


def signed_in(account: Params) -> bool:
    """Whether Codex could ask a model, by its answer to ``account/read``."""
    return account.get("account") is not None or account.get("requiresOpenaiAuth") is not True


def refused(error: str) -> Params:
    """What an error of Codex stands for as the answer to ``account/read``: nobody is signed in.

    It is one of a stored login that Codex reads and cannot use. Where no account is needed Codex does not look at it,
    so one is needed (measured).
    """
    return {"account": None, "requiresOpenaiAuth": True, "error": error}


def why_not(account: Params, env: Mapping[str, str]) -> str:
    """What to tell who is not :func:`signed_in`, by the same answer.

    A login that it cannot read Codex takes for none, without a word (measured): the file that it stands in is named.
    """
    stored, why = home(env) / "auth.json", as_text(account.get("error"))
    if not (why or stored.exists()):
        return "Not signed in to Codex"
    told = f"Not signed in to Codex: {stored} holds no login that it can use"
    return f"{told} ({why})" if why else told


def api_key(env: Mapping[str, str]) -> str:
    """The API key of the environment."""
    for name in API_KEY_VARIABLES:
        if value := env.get(name, "").strip():
            return value
    raise ApiKeyMissing


def auth_methods(env: Mapping[str, str], client_capabilities: Params) -> Sequence[Params]:
    """The ways in; terminal ones only for clients that can run them (INI-6). ``args`` follow our own command line."""
    methods: list[Params] = [
        {
            "type": "agent",
            "methodId": API_KEY,
            "name": "API key",
            "description": f"Use the key in {' or '.join(API_KEY_VARIABLES)}; it is kept in memory",
        }
    ]
    if not env.get("NO_BROWSER"):
        methods.append(
            {
                "type": "agent",
                "methodId": CHATGPT,
                "name": "ChatGPT",
                "description": "Sign in with a ChatGPT plan in the browser of this machine",
            }
        )
    if as_mapping(client_capabilities.get("auth")).get("terminal") is not None:
        methods += [
            {
                "type": "terminal",
                "methodId": "chatgpt-terminal",
                "name": "ChatGPT (terminal)",
                "description": "Sign in with a ChatGPT plan: codex login",
                "args": ["login"],
            },
            {
                "type": "terminal",
                "methodId": "chatgpt-device-code",
                "name": "ChatGPT (device code)",
                "description": "Sign in on another device: codex login --device-auth",
                "args": ["login", "--device-auth"],
            },
        ]
    return methods


def auth_status(account: Params) -> Params:
    """The result of ``auth/status``, by the answer to ``account/read``."""
    found = as_mapping(account.get("account"))
    if not found:
        return {"state": "unauthenticated" if account.get("requiresOpenaiAuth") else "not_required", "accounts": []}
    email = as_text(found.get("email"))
    label = {"apiKey": "API key", "amazonBedrock": "Amazon Bedrock"}.get(as_text(found.get("type")), "ChatGPT")
    entry: dict[str, Any] = {"label": label, "active": True}
    if email:
        entry |= {"label": email, "email": email}
    return {"state": "authenticated", "accounts": [entry]}
