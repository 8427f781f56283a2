"""Signing in and out, where the agent does it itself: with a key in memory, or in a browser."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel

from sayagain.errors import InvalidParams, RuntimeFault
from sayagain_codex import auth
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServer, Leaving
from sayagain_codex.server import Servers

__all__ = ["Login"]

LOGIN_PATIENCE: Final = 600.0
"""Seconds for the user to sign in with a browser."""

_NO_BROWSER: Final = "No browser can be opened here; sign in with the command: sayagain codex login"

Params = Mapping[str, Any]


class Login:
    """The login of all sessions. A key belongs to the process that was started for it, so another one is started."""

    def __init__(self, env: Mapping[str, str], servers: Servers, account: Account) -> None:
        self._env = env
        self._servers = servers
        self._account = account
        self._pages: set[_Page] = set()

    def heard(self, method: str, params: Params) -> None:
        """A notification that belongs to no thread."""
        if method == "account/updated":
            self._account.changed()
        elif method == "account/login/completed":
            for page in self._pages:
                if page.login_id == params.get("loginId"):
                    page.end(None if params.get("success") else str(params.get("error") or "The login failed"))

    async def sign_in(self, method_id: str) -> None:
        """By one of the ways that the agent serves itself (:func:`~sayagain_codex.auth.auth_methods`).

        Editors sign in again in each window, so a key that is in use already ends no work. Raises
        :class:`~sayagain.errors.InvalidParams` for other ways, and :class:`~sayagain.errors.RuntimeFault` when nobody
        signed in, or Codex refuses it.
        """
        if method_id == auth.API_KEY:
            await self._servers.sign_in(auth.api_key(self._env))
        elif method_id == auth.CHATGPT and not self._env.get("NO_BROWSER"):
            async with self._servers.for_login() as server:
                await self._with_browser(server)
        else:
            raise InvalidParams("methodId", "is no method that the agent serves itself")
        self._account.changed()

    async def sign_out(self) -> None:
        """The key in memory and the stored login are forgotten. Raises :class:`~sayagain.errors.RuntimeFault`."""
        # First: who keeps a login in memory does not see the one that is stored (measured).
        out = False
        while not out:
            server = await self._servers.sign_in(None)
            with suppress(Leaving):
                await server.request("account/logout", {})
                out = True
        self._account.changed()

    async def _with_browser(self, server: AppServer) -> None:
        page = _Page()
        self._pages.add(page)
        try:
            # It is known by its id alone: a login whose answer nobody takes would stay open.
            with anyio.CancelScope(shield=True):
                await server.request("account/login/start", {"type": "chatgpt"}, on_answer=page.began)
            await anyio.lowlevel.checkpoint()
            page.show()
            with anyio.move_on_after(LOGIN_PATIENCE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(page.ends_with, server)
                    await page.ended.wait()
                    tasks.cancel_scope.cancel()
        finally:
            self._pages.remove(page)
            if page.login_id is not None and not page.ended.is_set():
                with anyio.CancelScope(shield=True), suppress(RuntimeFault):
                    await server.request("account/login/cancel", {"loginId": page.login_id})
        if page.error is not None and not (server.leaving and await self._others_signed_in()):
            raise RuntimeFault(page.error)

    async def _others_signed_in(self) -> bool:
        """Whether another process took the place of the one that waited because there is a login now."""
        with suppress(RuntimeFault):
            return await self._account.signed_in(await self._servers.get())
        return False


class _Page:
    """A login in a browser that is under way. ``error`` is how it ended, or would end now."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.error: str | None = "Nobody signed in"
        self.login_id: str | None = None
        self._url = ""
        self._token = anyio.lowlevel.current_token()

    def began(self, answer: Params) -> None:
        """Codex waits for it; called by the reader, since its end may be the next thing that is read."""
        self.login_id, self._url = str(answer["loginId"]), str(answer["authUrl"])

    def show(self) -> None:
        """Open it. A browser that runs in a terminal is waited for by who opens it, which must not keep the agent from
        ending: so it is done by a thread of its own, and not by a worker."""
        threading.Thread(target=self._open, name="browser", daemon=True).start()

    def _open(self) -> None:
        import webbrowser  # costs 10 ms, and few need it

        try:
            opened = webbrowser.open(self._url)
        except webbrowser.Error:
            opened = False
        if not opened:
            # The loop may have ended meanwhile.
            with suppress(RuntimeError):
                anyio.from_thread.run_sync(self.end, _NO_BROWSER, token=self._token)

    async def ends_with(self, server: AppServer) -> None:
        """Who waits for the browser's answer is gone."""
        await server.gone.wait()
        self.end("Codex ended before somebody signed in")

    def end(self, error: str | None) -> None:
        """It is over; the first end counts."""
        if not self.ended.is_set():
            self.error = error
            self.ended.set()
