"""What a session offers: options and commands, kept as Codex tells them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from sayagain.errors import InvalidParams, PromptRefused, RuntimeFault
from sayagain.protocol.loose import as_list
from sayagain_codex.app_server import AppServer, AppServerError
from sayagain_codex.commands import Skills, refusal
from sayagain_codex.options import Options
from sayagain_codex.outbox import Outbox

__all__ = ["Offers"]

logger = logging.getLogger(__name__)

OFFER_PATIENCE: Final = 0.3
"""Seconds for Codex to list its models, which takes it 2 ms from its cache (measured); later ones come as an event."""

SETTING_PATIENCE: Final = 2.0
"""Seconds for a setting to be told after its request was answered: it comes with the answer (measured)."""

Params = Mapping[str, Any]


class Offers:
    """The options and commands of one thread."""

    def __init__(self, thread_id: str, outbox: Outbox) -> None:
        self._thread_id = thread_id
        self._outbox = outbox
        self._options = Options()
        self._given: Sequence[Params] | None = None
        """The options as a client has them: as they were when the session was opened, or told last."""
        self._changed = anyio.Event()
        self._models = anyio.Event()
        self._skills = anyio.Event()
        self._commands: Sequence[Params] = ()
        self.skills = Skills()

    def options(self) -> Sequence[Params]:
        """The options in wire form."""
        return self._options.wire()

    def opened(self) -> None:
        """The answer that opens the session is about to be made: changes of the options after this are told."""
        self._given = self._options.wire()

    def loaded(self, result: Params) -> None:
        """The answer to what loaded the thread."""
        self._options.loaded(result)
        self._tell()

    def updated(self, settings: Params) -> None:
        """``thread/settings/updated``, whoever changed them."""
        self._options.updated(settings)
        self._tell()

    async def describe(self, server: AppServer, cwd: str) -> None:
        """Ask what there is: models and skills. Nothing waits for it."""
        try:
            models = await server.request("model/list", {})
            self._options.offered(as_list(models.get("data")))
            self._tell()
            self._models.set()
            await self.list_skills(server, cwd)
        except RuntimeFault as error:
            logger.warning("Codex did not say what it offers: %s", type(error).__name__)

    async def described(self, *, commands: bool = False) -> None:
        """Wait shortly for the models, so that the options are whole in the answer that opens the session."""
        with anyio.move_on_after(OFFER_PATIENCE):
            await self._models.wait()
            if commands:
                await self._skills.wait()
        self.opened()

    async def list_skills(self, server: AppServer, cwd: str) -> None:
        """Ask for the skills, and tell the commands when they changed."""
        try:
            self.skills.listed(await server.request("skills/list", {"cwds": [cwd]}), cwd)
        except RuntimeFault as error:
            logger.warning("the skills could not be listed: %s", type(error).__name__)
            return
        commands = self.skills.available_commands()
        if commands != self._commands:
            self._commands = commands
            self._outbox.update({"sessionUpdate": "available_commands_update", "availableCommands": commands})
        self._skills.set()

    async def check(self, content: Sequence[Params]) -> None:
        """Raise :class:`~sayagain.errors.PromptRefused` for a command that Codex's own terminal alone has."""
        if (reason := refusal(content)) is None:
            return
        with anyio.move_on_after(OFFER_PATIENCE):
            await self._skills.wait()
        if not self.skills.mention(content):
            raise PromptRefused(reason)

    async def choose(self, server: AppServer, config_id: str, value: str | bool) -> None:
        """Set an option, and wait until Codex has told it; raises :class:`~sayagain.errors.InvalidParams`.

        Codex is asked also when it was last heard to have that value: what it was asked for before may be told late.
        """
        change = self._options.change(config_id, value)
        if not change:
            return
        try:
            await server.request("thread/settings/update", {"threadId": self._thread_id, **change})
        except AppServerError as error:
            raise InvalidParams("value", error.message) from error
        with anyio.move_on_after(SETTING_PATIENCE):
            while not self._has(config_id, value):
                await self._changed.wait()

    def _has(self, config_id: str, value: str | bool) -> bool:
        return all(o["currentValue"] == value for o in self._options.wire() if o["configId"] == config_id)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        options = self._options.wire()
        if self._given is not None and options != self._given:
            self._given = options
            self._outbox.update({"sessionUpdate": "config_option_update", "configOptions": options})
