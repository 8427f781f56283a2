"""What a runtime can do: all that ``initialize`` needs to know of it, and therefore small to import."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RuntimeCapabilities"]


@dataclass(frozen=True, slots=True)
class RuntimeCapabilities:
    """What this runtime can do beyond the baseline; the agent advertises just that (INI-4, INI-7, INI-8).

    ``title``, ``archive`` and ``auth_status`` are about the methods of these names: without one, its method is never
    called.
    """

    image: bool = False
    audio: bool = False
    embedded_context: bool = False
    mcp_stdio: bool = False
    mcp_http: bool = False
    fork: bool = False
    delete: bool = False
    additional_directories: bool = False
    title: bool = False
    archive: bool = False
    auth_status: bool = False
    system_prompt_modes: frozenset[str] = frozenset()
