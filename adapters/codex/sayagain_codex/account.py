"""The account of the app-server, asked for before a prompt can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayagain.errors import AuthRequired
from sayagain_codex.app_server import AppServer
from sayagain_codex.auth import signed_in

__all__ = ["Account"]


class Account:
    """What ``account/read`` last said, until Codex says that it changed."""

    def __init__(self) -> None:
        self._server: AppServer | None = None

    async def require(self, server: AppServer) -> None:
        """Raise :class:`~sayagain.errors.AuthRequired` when Codex has no login and needs one."""
        if self._server is not server:
            if not signed_in(await self.read(server)):
                raise AuthRequired("Not signed in to Codex")
            self._server = server

    async def read(self, server: AppServer) -> Mapping[str, Any]:
        """The answer to ``account/read``."""
        answer: Mapping[str, Any] = await server.request("account/read", {})
        return answer

    def changed(self) -> None:
        """Somebody signed in or out."""
        self._server = None
