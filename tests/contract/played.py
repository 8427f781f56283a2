"""The fake runtime with a model that does what the contract's prompts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from sayagain.errors import HistoryUnreadable, PromptRefused, RuntimeDied, to_wire
from sayagain.runtime.seam import RuntimeSession, SessionSetup
from sayagain.testing.contract import Behaviour
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession, FakeStore

__all__ = ["FakeDriver", "PlayedRuntime", "PlayedSession"]


class PlayedSession(FakeSession):
    """Its model does what the contract's prompts say."""

    def __init__(self, runtime: PlayedRuntime, session_id: str, setup: SessionSetup) -> None:
        super().__init__(runtime, session_id, setup)
        self.manual = True
        self.frozen = False
        self._driver = runtime.driver
        self._working = False
        self._asks: list[str] = []

    async def submit(self, message_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        await super().submit(message_id, content)
        if self.frozen:
            return
        behaviour = Behaviour(content[0]["text"])
        self._working = True
        self.run()
        if behaviour is Behaviour.REFUSE:
            self._working = False
            self.refuse(message_id, PromptRefused("not this"))
            return
        self.store(message_id)
        match behaviour:
            case Behaviour.HOLD:
                self.say("I begin ", stored=False)
                self._driver.holding.set()
                return
            case Behaviour.ASK:
                self._asks.append(f"ask-{len(self.submitted)}")
                self.ask(self._asks[-1])
                return
            case Behaviour.DELEGATE:
                self.end_child(self.spawn(f"child-{len(self.submitted)}"))
            case _:
                pass
        self._end("end_turn")

    async def interrupt(self) -> None:
        await super().interrupt()
        if self._working:
            for ask_id in self._asks:
                self.withdraw_ask(ask_id)
            self._asks.clear()
            self.finish("cancelled")
            self._working = False

    async def answer(self, ask_id: str, result: Mapping[str, Any] | None) -> None:
        if ask_id in self._asks:
            self._asks.remove(ask_id)
            await super().answer(ask_id, result)
            self._end("end_turn")

    def crash(self) -> None:
        """What a dying process means."""
        if self.frozen:
            self.frozen = False
            self.refuse(self.submitted[-1], RuntimeDied())
        elif self._working:
            self._working = False
            self.finish("error", error=to_wire(RuntimeDied()))

    def _end(self, stop_reason: str) -> None:
        self.say("The answer.")
        self.finish(stop_reason)
        self._working = False


class PlayedRuntime(FakeRuntime):
    session_type = PlayedSession

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__(driver.store)
        self.driver = driver

    def _session(self, session_id: str, setup: SessionSetup) -> FakeSession:
        session = self.sessions[session_id] = self.session_type(self, session_id, setup)
        return session


class FakeDriver:
    def __init__(self, folder: Path, runtime_type: type[PlayedRuntime] = PlayedRuntime) -> None:
        self.runtime_type = runtime_type
        self.cwd = str(folder)
        self.other_cwd = str(folder.parent)
        self.store = FakeStore()
        self.holding = anyio.Event()

    def runtime(self) -> FakeRuntime:
        return self.runtime_type(self)

    def stored(self, session_id: str) -> Sequence[str]:
        return self.store.ids(session_id)

    async def held(self) -> None:
        await self.holding.wait()
        self.holding = anyio.Event()

    async def freeze(self, session: RuntimeSession) -> None:
        assert isinstance(session, PlayedSession)
        session.frozen = True

    async def kill(self, session: RuntimeSession) -> None:
        assert isinstance(session, PlayedSession)
        session.crash()

    def damage(self, session_id: str) -> None:
        self.store.read_error = HistoryUnreadable()
