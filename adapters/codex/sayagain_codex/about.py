"""What ``initialize`` says of this runtime, apart from the ways to sign in. Imported before it is answered."""

from __future__ import annotations

from typing import Final

from sayagain.runtime.capabilities import RuntimeCapabilities

__all__ = ["CAPABILITIES", "NAME", "TITLE"]

NAME: Final = "codex"
TITLE: Final = "Codex"

CAPABILITIES: Final = RuntimeCapabilities(
    image=True,
    embedded_context=True,
    mcp_stdio=True,
    mcp_http=True,
    fork=True,
    delete=True,
    additional_directories=True,
    title=True,
    archive=True,
    auth_status=True,
    system_prompt_modes=frozenset({"append", "override"}),
)
