"""What the CLI wants to know from the user: permissions, questions and forms, as asks of the seam."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio.to_thread

from sayagain.errors import RuntimeDied
from sayagain.runtime.events import Ask, AskWithdrawn, RuntimeEvent, Update
from sayagain.runtime.seam import SessionSetup
from sayagain_claude.control import error_response, success_response
from sayagain_claude.option_control import OptionControl
from sayagain_claude.preview import text_before
from sayagain_claude.process import ClaudeProcess
from sayagain_claude.translate.asks import Asked, Settled, ask_mcp, ask_tool
from sayagain_claude.translate.blocks import as_mapping
from sayagain_claude.translate.live import LiveTranslator

__all__ = ["Questions"]

logger = logging.getLogger(__name__)


class Questions:
    """The CLI's control requests that wait for the user, by their ids."""

    def __init__(
        self,
        session_id: str,
        setup: SessionSetup,
        translator: LiveTranslator,
        options: OptionControl,
        emit: Callable[[Iterable[RuntimeEvent]], Awaitable[None]],
    ) -> None:
        self._session_id = session_id
        self._setup = setup
        self._translator = translator
        self._options = options
        self._emit = emit
        self._open: dict[str, Asked] = {}

    async def asked(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
        """A ``control_request`` came: ask the user, or answer at once what nobody can be asked."""
        request_id, request = str(frame.get("request_id")), as_mapping(frame.get("request"))
        capabilities = self._setup.client_capabilities
        match request.get("subtype"):
            case "can_use_tool":
                agent_id = request.get("agent_id")
                asked: Asked | Settled = ask_tool(
                    self._translator.session_of(agent_id if isinstance(agent_id, str) else None),
                    request,
                    capabilities=capabilities,
                    cwd=self._setup.cwd,
                    tool_use=self._translator.tool_use(str(request.get("tool_use_id"))),
                    before=await anyio.to_thread.run_sync(text_before, request, self._setup.cwd),
                    modes=self._options.modes,
                )
            case "elicitation":
                asked = ask_mcp(self._session_id, request, capabilities=capabilities, elicitation_id=request_id)
            case unknown:
                await _reply(process, error_response(request_id, f"{unknown} is not supported"))
                return
        if isinstance(asked, Settled):
            await self._emit([Update(self._session_id, asked.update)])
            await _reply(process, success_response(request_id, asked.response))
            return
        await self._ask(request_id, asked)

    async def withdrawn(self, frame: Mapping[str, Any]) -> None:
        """A ``control_cancel_request`` came: the answer no longer matters."""
        request_id = str(frame.get("request_id"))
        if self._open.pop(request_id, None) is not None:
            await self._emit([AskWithdrawn(request_id)])

    async def answer(self, process: ClaudeProcess | None, ask_id: str, result: Mapping[str, Any] | None) -> None:
        """The client's result; ``None`` when it failed or was cancelled."""
        asked = self._open.pop(ask_id, None)
        if asked is None or process is None:
            return
        if (another := asked.then(result)) is not None:
            await self._ask(ask_id, another)
            return
        response = asked.reply(result)
        await _reply(process, success_response(ask_id, response))
        if response.get("behavior") == "allow":
            await self._emit(self._translator.permitted(asked.tool_call_id))

    async def withdraw_all(self) -> None:
        """The process is gone: nobody waits for an answer."""
        await self._emit([AskWithdrawn(ask_id) for ask_id in self._open])
        self._open.clear()

    async def _ask(self, ask_id: str, asked: Asked) -> None:
        self._open[ask_id] = asked
        await self._emit([Ask(ask_id, asked.params["sessionId"], asked.method, asked.params)])


async def _reply(process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
    try:
        await process.send(frame)
    except RuntimeDied:
        logger.debug("the process ended before it got an answer")
