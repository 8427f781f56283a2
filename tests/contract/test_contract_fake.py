"""The fake runtime keeps the promises of the seam, and runtimes that break one are found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Set
from pathlib import Path

import pytest

from contract.played import FakeDriver, PlayedRuntime, PlayedSession
from sayagain.errors import HistoryUnreadable
from sayagain.runtime.events import ChildAnnounced, Foreground, Inserted, RuntimeEvent
from sayagain.runtime.history import HistoryEntry
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.contract import CHECKS, BrokenPromise, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_fake_runtime(check: Check, tmp_path: Path) -> None:
    await check(FakeDriver(tmp_path))


class ToldTooEarly(PlayedSession):
    def store(self, message_id: str) -> None:
        self.emit(Inserted(message_id))


class StoredTwice(PlayedSession):
    def store(self, message_id: str) -> None:
        super().store(message_id)
        self.persist(self._store.sessions[self.session_id][-1])


class ToldTwice(PlayedSession):
    def store(self, message_id: str) -> None:
        super().store(message_id)
        self.emit(Inserted(message_id))


class TakesBackWhatIsStored(PlayedSession):
    async def withdraw(self, message_id: str) -> bool:
        return True


class OwnedByAll(PlayedSession):
    async def own(self) -> None:
        """Never refuses."""


class ChildAnnouncedLate(PlayedSession):
    def emit(self, event: RuntimeEvent) -> None:
        if isinstance(event, ChildAnnounced):
            super().emit(Foreground(event.child_id, "running"))
        super().emit(event)


class InterruptIsNoCancel(PlayedSession):
    async def interrupt(self) -> None:
        if self._working:
            self._end("end_turn")


class UnreadableIsEmpty(PlayedRuntime):
    async def message_ids(self, session_id: str) -> Set[str]:
        try:
            return await super().message_ids(session_id)
        except HistoryUnreadable:
            return set()


class ForkStaysEmpty(PlayedRuntime):
    async def fork(self, session_id: str, setup: SessionSetup) -> PlayedSession:
        session = await super().fork(session_id, setup)
        assert isinstance(session, PlayedSession)
        self.store.sessions[session.session_id] = []
        return session


class NewIdsInEachPass(PlayedRuntime):
    async def history(self, session_id: str, *, live: bool) -> AsyncIterator[HistoryEntry]:
        count = self.store.reads
        async for entry in super().history(session_id, live=live):
            update = getattr(entry, "update", None)
            if update is not None and "messageId" in update:
                update = {**update, "messageId": f"{update['messageId']}-{count}"}
                entry = type(entry)(**{**{n: getattr(entry, n) for n in entry.__slots__}, "update": update})
            yield entry


SESSIONS = {
    ToldTooEarly: "a_message_is_inserted_exactly_once",
    StoredTwice: "a_message_is_inserted_exactly_once",
    ToldTwice: "a_message_is_inserted_exactly_once",
    TakesBackWhatIsStored: "a_stored_message_is_not_withdrawn",
    OwnedByAll: "one_process_owns_a_session",
    ChildAnnouncedLate: "a_child_is_announced_first",
    InterruptIsNoCancel: "an_interrupt_ends_the_work_as_cancelled",
}
RUNTIMES = {
    UnreadableIsEmpty: "a_store_that_cannot_be_read_is_an_error",
    ForkStaysEmpty: "a_fork_is_a_copy_of_its_own",
    NewIdsInEachPass: "the_history_tells_what_was_told_live",
}
BY_NAME = {check.__name__: check for check in CHECKS}


@pytest.mark.parametrize("session_type", SESSIONS)
async def test_a_session_that_breaks_a_promise_is_found(session_type: type[PlayedSession], tmp_path: Path) -> None:
    runtime_type = type("Broken", (PlayedRuntime,), {"session_type": session_type})
    with pytest.raises(BrokenPromise):
        await BY_NAME[SESSIONS[session_type]](FakeDriver(tmp_path, runtime_type))


@pytest.mark.parametrize("runtime_type", RUNTIMES)
async def test_a_runtime_that_breaks_a_promise_is_found(runtime_type: type[PlayedRuntime], tmp_path: Path) -> None:
    with pytest.raises(BrokenPromise):
        await BY_NAME[RUNTIMES[runtime_type]](FakeDriver(tmp_path, runtime_type))
