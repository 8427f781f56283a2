"""The versions of ACP that the agent, the client, the check and the demo speak: one place says it."""

from __future__ import annotations

from typing import Final

__all__ = ["PROTOCOL_VERSION", "SUPPORTED_VERSIONS"]

PROTOCOL_VERSION: Final = 2
"""Which a client of ours asks for: the one that :mod:`sayagain.protocol.v2` describes."""

SUPPORTED_VERSIONS: Final = (PROTOCOL_VERSION,)
"""All that an agent of ours can be asked for (INI-1)."""
