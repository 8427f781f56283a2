"""The account of the app-server, asked for before a prompt can be stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sayagain.errors import AuthRequired
from sayagain_codex.app_server import AppServer
from sayagain_codex.auth import signed_in
from sayagain_codex.server import Servers

__all__ = ["Account"]


class Account:
    """What ``account/read`` last said, until Codex says that it changed.

    ``unread`` says why Codex does not use its configuration, when that is so; ``awaited`` whether somebody is about to
    finish a login in a browser, for which the process has to be there.
    """

    def __init__(self, servers: Servers, *, unread: Callable[[], str | None], awaited: Callable[[], bool]) -> None:
        self._servers = servers
        self._unread = unread
        self._awaited = awaited
        self._signed_in: AppServer | None = None

    async def require(self, server: AppServer) -> AppServer:
        """The app-server that is signed in, as far as it needs to be; raises :class:`~sayagain.errors.AuthRequired`.

        It may be another one: a login that was made in a terminal meanwhile is seen by a new process alone (measured),
        and without a login this one can do nothing that its end would disturb.
        """
        if self._signed_in is server:
            return server
        if not signed_in(await self.read(server)):
            if self._awaited():
                raise AuthRequired("Not signed in to Codex: a login in the browser is not finished")
            await self._servers.restart(server)
            server = await self._servers.get()
            if not signed_in(await self.read(server)):
                # With Codex's defaults in its place the user's provider, which may need no account, is not in use.
                raise AuthRequired(". ".join(filter(None, ("Not signed in to Codex", self._unread()))))
        self._signed_in = server
        return server

    async def read(self, server: AppServer) -> Mapping[str, Any]:
        """The answer to ``account/read``."""
        answer: Mapping[str, Any] = await server.request("account/read", {})
        return answer

    def changed(self) -> None:
        """Somebody signed in or out."""
        self._signed_in = None
