"""Signing in and out, and the account in use. ``auth/status`` and its update are unstable."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Known, Open, unique
from sayagain.protocol.v2.scalars import AuthMethodId, Object

__all__ = [
    "AuthAccount",
    "AuthMethod",
    "AuthMethodAgent",
    "AuthMethodTerminal",
    "AuthState",
    "AuthStatusResponse",
    "EnvVariable",
    "LoginAuthRequest",
    "UnknownAuthMethod",
]

AuthState: TypeAlias = Annotated[str, Known("authenticated", "unauthenticated", "not_required", "unknown")]


class EnvVariable(Object):
    """One environment variable of a command that the other side starts."""

    name: str
    value: str


class AuthMethodAgent(Object):
    """The agent signs in by itself, on ``auth/login``."""

    type: Literal["agent"]
    methodId: AuthMethodId
    name: str
    description: NotRequired[str | None]


class AuthMethodTerminal(Object):
    """The client runs the agent's own command with these extras in a terminal; never by ``auth/login`` (AUT-1)."""

    type: Literal["terminal"]
    methodId: AuthMethodId
    name: str
    description: NotRequired[str | None]
    args: NotRequired[list[str] | None]
    env: NotRequired[Annotated[list[EnvVariable], unique("name")] | None]


class UnknownAuthMethod(TypedDict):
    """A kind of method that this version does not know; a client can still name it."""

    type: str
    methodId: AuthMethodId
    name: str


AuthMethod: TypeAlias = Annotated[AuthMethodTerminal | AuthMethodAgent | UnknownAuthMethod, Open("type")]


class LoginAuthRequest(Object):
    """``auth/login``; an unknown or terminal method is refused (AUT-1)."""

    methodId: AuthMethodId


class AuthAccount(Object):
    """An account that the agent knows; ``active`` marks the one in use."""

    label: str
    active: NotRequired[bool | None]
    name: NotRequired[str | None]
    email: NotRequired[str | None]
    organization: NotRequired[str | None]


class AuthStatusResponse(Object):
    """The answer to ``auth/status``, and the params of ``auth/status_update``, sent on change only (AUT-2)."""

    state: AuthState
    accounts: NotRequired[list[AuthAccount]]
