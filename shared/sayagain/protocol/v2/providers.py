"""Model providers that a client can configure; unstable."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, NotRequired, TypeAlias

from sayagain.protocol.v2.markers import Known
from sayagain.protocol.v2.scalars import Object, ProviderId, Uri

__all__ = [
    "DisableProviderRequest",
    "ListProvidersResponse",
    "LlmProtocol",
    "ProviderCurrentConfig",
    "ProviderInfo",
    "SetProviderRequest",
]

LlmProtocol: TypeAlias = Annotated[str, Known("anthropic", "openai", "azure", "vertex", "bedrock")]


class ProviderCurrentConfig(Object):
    """The configuration in force, without its headers: they may be secrets."""

    apiType: LlmProtocol
    baseUrl: Uri


class ProviderInfo(Object):
    """A provider; a ``required`` one cannot be disabled. ``current`` is ``null`` or left out while it is disabled."""

    providerId: ProviderId
    supported: list[LlmProtocol]
    required: bool
    current: NotRequired[ProviderCurrentConfig | None]


class ListProvidersResponse(Object):
    """The answer to ``providers/list``."""

    providers: list[ProviderInfo]


class SetProviderRequest(Object):
    """``providers/set``: replaces all of a provider's configuration."""

    providerId: ProviderId
    apiType: LlmProtocol
    baseUrl: Uri
    headers: NotRequired[dict[str, str]]


class DisableProviderRequest(Object):
    """``providers/disable``."""

    providerId: ProviderId
