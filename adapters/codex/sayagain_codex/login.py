"""Signing in and out, where the agent does it itself: with a key in memory, or in a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import anyio.to_thread

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain_codex import auth
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServer
from sayagain_codex.server import Servers

__all__ = ["Login"]

LOGIN_PATIENCE: Final = 600.0
"""Seconds for the user to sign in with a browser."""

Params = Mapping[str, Any]


class Login:
    """The login of all sessions. A key belongs to the process that was started for it, so another one is started."""

    def __init__(self, env: Mapping[str, str], servers: Servers, account: Account) -> None:
        self._env = env
        self._servers = servers
        self._account = account
        self._browsers: dict[str, _Browser] = {}

    @property
    def awaited(self) -> bool:
        """Whether a login in a browser is under way."""
        return bool(self._browsers)

    def heard(self, method: str, params: Params) -> None:
        """A notification that belongs to no thread."""
        if method == "account/updated":
            self._account.changed()
        elif method == "account/login/completed":
            browser = self._browsers.get(str(params.get("loginId")))
            if browser is not None:
                browser.error = None if params.get("success") else str(params.get("error") or "The login failed")
                browser.done.set()

    async def sign_in(self, method_id: str) -> None:
        """Editors sign in again in each window: the key that is in use must not end the work of the others."""
        if method_id == auth.API_KEY:
            await self._servers.sign_in(auth.api_key(self._env))
        elif method_id == auth.CHATGPT and not self._env.get("NO_BROWSER"):
            await self._with_browser(await self._servers.sign_in(None))
        else:
            raise InvalidParams("methodId", "is no method that the agent serves itself")
        self._account.changed()

    async def sign_out(self) -> None:
        """The key in memory and the stored login are forgotten."""
        # First: who keeps a login in memory does not see the one that is stored (measured).
        server = await self._servers.sign_in(None)
        await server.request("account/logout", {})
        self._account.changed()

    async def _with_browser(self, server: AppServer) -> None:
        import webbrowser  # costs 10 ms, and few need it

        started = await server.request("account/login/start", {"type": "chatgpt"})
        browser = self._browsers[started["loginId"]] = _Browser()
        try:
            await anyio.to_thread.run_sync(webbrowser.open, started["authUrl"])
            with anyio.move_on_after(LOGIN_PATIENCE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(browser.outlives, server)
                    await browser.done.wait()
                    tasks.cancel_scope.cancel()
        finally:
            del self._browsers[started["loginId"]]
            if not browser.done.is_set():
                with anyio.CancelScope(shield=True):
                    await server.request("account/login/cancel", {"loginId": started["loginId"]})
        if browser.error is not None:
            raise RuntimeFault(browser.error)


class _Browser:
    """A browser login under way."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: str | None = "Nobody signed in"

    async def outlives(self, server: AppServer) -> None:
        """Who waits for the browser's answer is gone."""
        await server.gone.wait()
        self.error = "Codex ended before somebody signed in"
        self.done.set()
