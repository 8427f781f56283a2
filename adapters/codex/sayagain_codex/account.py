"""The account of the app-server, asked for before a prompt can be stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sayagain.errors import AuthRequired
from sayagain_codex import auth
from sayagain_codex.app_server import AppServer, AppServerError, Leaving
from sayagain_codex.server import Servers

__all__ = ["Account"]


class Account:
    """What ``account/read`` last said, until Codex says that it changed.

    ``unread`` says why Codex does not use its configuration, when that is so.
    """

    def __init__(self, servers: Servers, env: Mapping[str, str], *, unread: Callable[[], str | None]) -> None:
        self._servers = servers
        self._env = env
        self._unread = unread
        self._told: Mapping[str, Any] = {}
        self._checked: AppServer | None = None
        self._changes = 0

    async def require(self, server: AppServer) -> AppServer:
        """The app-server that is signed in, as far as it needs to be; raises :class:`~sayagain.errors.AuthRequired`.

        It may be another one: a login that was made in a terminal meanwhile is seen by a new process alone (measured).
        Raises what :meth:`Servers.get <sayagain_codex.server.Servers.get>` raises too.
        """
        while self._checked is not server:
            changes = self._changes
            try:
                found: AppServer | None = server
                if not await self.signed_in(server):
                    found = await self._servers.look_again(server, self.signed_in)
            except Leaving:
                server = await self._servers.get()
                continue
            if found is None:
                # With Codex's defaults in its place the user's provider, which may need no account, is not in use.
                raise AuthRequired(". ".join(filter(None, (auth.why_not(self._told, self._env), self._unread()))))
            server = found
            if self._changes == changes:
                self._checked = found
        return server

    async def signed_in(self, server: AppServer) -> bool:
        """Whether Codex could ask a model."""
        return auth.signed_in(await self.read(server))

    async def read(self, server: AppServer) -> Mapping[str, Any]:
        """The answer to ``account/read``, or what stands for one where Codex cannot use the login that is stored."""
        try:
            self._told = await server.request("account/read", {})
        except AppServerError as error:
            self._told = auth.refused(error.message)
        return self._told

    def changed(self) -> None:
        """Somebody signed in or out: what was read before says nothing any more."""
        self._checked = None
        self._changes += 1
