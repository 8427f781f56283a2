"""Every v2 method, stable and unstable, with its types.

Types are named, not imported, so that a table of all methods costs nothing before a method is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["METHODS", "Kind", "Method", "Side", "served"]

Kind: TypeAlias = Literal["request", "notification"]

Side: TypeAlias = Literal["agent", "client", "proxy", "both"]
"""Who serves the method. ``proxy``: a component in a chain, or the conductor for it."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method. ``params`` and ``result`` are ``module.Type`` in this package; ``None`` is any JSON value.

    ``result`` of a notification is ``None`` too: it has none.
    """

    name: str
    side: Side
    kind: Kind
    stable: bool
    params: str
    result: str | None = None

    def params_type(self) -> Any:
        """The type to validate ``params`` with; imports its module."""
        return _load(self.params)

    def result_type(self) -> Any:
        """The type to validate a ``result`` with; imports its module."""
        return Any if self.result is None else _load(self.result)


@cache
def _load(name: str) -> Any:
    module, _, attribute = name.partition(".")
    return getattr(import_module(f"sayagain.protocol.v2.{module}"), attribute)


def _request(name: str, side: Side, params: str, result: str | None, *, stable: bool = True) -> Method:
    return Method(name, side, "request", stable, params, result)


def _notification(name: str, side: Side, params: str, *, stable: bool = True) -> Method:
    return Method(name, side, "notification", stable, params)


_EMPTY: Final = "scalars.Object"
_SESSION: Final = "sessions.SessionReference"

METHODS: Final = (
    _request("initialize", "agent", "initialize.InitializeRequest", "initialize.InitializeResponse"),
    _request("auth/login", "agent", "auth.LoginAuthRequest", _EMPTY),
    _request("auth/logout", "agent", _EMPTY, _EMPTY),
    _request("auth/status", "agent", _EMPTY, "auth.AuthStatusResponse", stable=False),
    _request("providers/list", "agent", _EMPTY, "providers.ListProvidersResponse", stable=False),
    _request("providers/set", "agent", "providers.SetProviderRequest", _EMPTY, stable=False),
    _request("providers/disable", "agent", "providers.DisableProviderRequest", _EMPTY, stable=False),
    _request("session/new", "agent", "sessions.NewSessionRequest", "sessions.NewSessionResponse"),
    _request("session/list", "agent", "sessions.ListSessionsRequest", "sessions.ListSessionsResponse"),
    _request("session/resume", "agent", "sessions.ResumeSessionRequest", "sessions.ResumeSessionResponse"),
    _request("session/fork", "agent", "sessions.ForkSessionRequest", "sessions.ForkSessionResponse", stable=False),
    _request("session/close", "agent", _SESSION, _EMPTY),
    _request("session/delete", "agent", _SESSION, _EMPTY),
    _request("session/archive", "agent", _SESSION, _EMPTY, stable=False),
    _request("session/unarchive", "agent", _SESSION, _EMPTY, stable=False),
    _request("session/status", "agent", _SESSION, "sessions.SessionStatusResponse", stable=False),
    _request(
        "session/set_title",
        "agent",
        "sessions.SetSessionTitleRequest",
        "sessions.SetSessionTitleResponse",
        stable=False,
    ),
    _request(
        "session/set_config_option",
        "agent",
        "config_options.SetSessionConfigOptionRequest",
        "config_options.SetSessionConfigOptionResponse",
    ),
    _request("session/prompt", "agent", "prompts.PromptRequest", "prompts.PromptResponse"),
    _request("tool_call/cancel", "agent", "tools.CancelToolCallRequest", _EMPTY),
    _request("terminal/cancel", "agent", "terminals.CancelTerminalRequest", _EMPTY),
    _notification("session/cancel", "agent", _SESSION),
    _notification("mcp/message", "agent", "mcp.MessageMcpRequest", stable=False),
    _request(
        "session/request_permission",
        "client",
        "permissions.RequestPermissionRequest",
        "permissions.RequestPermissionResponse",
    ),
    _request(
        "elicitation/create", "client", "elicitation.CreateElicitationRequest", "elicitation.CreateElicitationResponse"
    ),
    _request("mcp/message", "client", "mcp.MessageMcpRequest", "mcp.MessageMcpResponse", stable=False),
    _notification("session/update", "client", "updates.UpdateSessionNotification"),
    _notification("elicitation/complete", "client", "elicitation.CompleteElicitationNotification"),
    _notification("auth/status_update", "client", "auth.AuthStatusResponse", stable=False),
    _notification("$/cancel_request", "both", "requests.CancelRequestNotification"),
    _request(
        "proxy/initialize", "proxy", "initialize.InitializeRequest", "initialize.InitializeResponse", stable=False
    ),
    _request("proxy/successor", "proxy", "requests.ProxySuccessorRequest", None, stable=False),
    _notification("proxy/successor", "proxy", "requests.ProxySuccessorRequest", stable=False),
)


@cache
def served(side: Side, kind: Kind) -> Mapping[str, Method]:
    """The methods of a kind that a side serves, by name; what both sides serve included."""
    return MappingProxyType({m.name: m for m in METHODS if m.kind == kind and m.side in (side, "both")})
