"""Promises about what is stored: history, ids, lists, forks, deletes, and stores that cannot be read."""

from __future__ import annotations

from typing import Final

from sayagain.errors import HistoryUnreadable, InvalidParams, SessionNotFound
from sayagain.identity import new_session_id
from sayagain.runtime.history import HistoryEntry, UserTurn
from sayagain.runtime.seam import Runtime
from sayagain.testing.contract.harness import (
    Behaviour,
    Check,
    Driver,
    history_texts,
    raises,
    require,
    user_ids,
    working,
)

__all__ = ["STORED"]


async def a_new_session_leaves_nothing_before_its_first_message(driver: Driver) -> None:
    """No ids, no row in the list, and after a restart it does not exist (design section 5)."""
    async with working(driver) as work:
        session = await work.new()
        require(await work.runtime.message_ids(session.session_id) == set(), "a new session has no ids")
        require(session.session_id not in await work.listed(), "a session without a message is not listed")
        require(not await work.runtime.stored(session.session_id), "a session without a message is not stored")
    async with working(driver) as work:
        await raises(
            SessionNotFound, work.resume(session.session_id), "a session without a message is not found after a restart"
        )


async def the_history_tells_what_was_told_live(driver: Driver) -> None:
    """The same ids and texts after a restart, the same in every pass, and the ids that ``message_ids`` gives."""
    async with working(driver) as work:
        session = await work.new()
        submitted = [await session.turn(), await session.turn()]
        live = session.texts()
    async with working(driver) as work:
        again = await work.resume(session.session_id)
        entries = await again.history()
        require(user_ids(again.session_id, entries) == submitted, "the history has the user messages, in order")
        require(history_texts(again.session_id, entries) == live, "the agent's messages keep their ids and texts")
        ids = await work.runtime.message_ids(again.session_id)
        require(set(ids) == set(submitted), "message_ids has the ids of the history's user messages")
        require(await again.history() == entries, "a second pass tells the same")
        users = [e for e in entries if isinstance(e, UserTurn)]
        require(
            all(u.update is None or u.update["messageId"] == u.message_ids[0] for u in users),
            "a user message is replayed under the first of its ids",
        )


async def the_history_of_a_working_session_has_its_message(driver: Driver) -> None:
    """What is stored at this moment, the message that the work is about included."""
    async with working(driver) as work:
        session = await work.new()
        first = await session.turn()
        second = await session.stored(Behaviour.HOLD)
        entries = await session.history(live=True)
        require(
            user_ids(session.session_id, entries) == [first, second], "the history has what is stored at this moment"
        )
        await session.session.interrupt()
        await session.until(lambda: len(session.idles()) == 2, "interrupted work ends")


async def a_resumed_session_works_on(driver: Driver) -> None:
    """Old and new ids together, each once."""
    async with working(driver) as work:
        session = await work.new()
        first = await session.turn()
    async with working(driver) as work:
        again = await work.resume(session.session_id)
        require(again.session_id == session.session_id, "a resumed session keeps its id")
        second = await again.turn()
        require(driver.stored(again.session_id) == [first, second], "a resumed session adds to what is stored")
        require(set(await work.runtime.message_ids(again.session_id)) == {first, second}, "message_ids has both")


async def what_is_not_there_is_not_found(driver: Driver) -> None:
    """Resume, fork and history of an unknown session; delete is silent; ids are none."""
    async with working(driver) as work:
        nobody = new_session_id()
        await raises(SessionNotFound, work.resume(nobody), "resume of nothing is SessionNotFound")
        await raises(SessionNotFound, work.fork(nobody), "fork of nothing is SessionNotFound")
        await raises(SessionNotFound, _read(work.runtime, nobody), "history of nothing is SessionNotFound")
        require(await work.runtime.message_ids(nobody) == set(), "no ids when nothing is stored")
        require(not await work.runtime.stored(nobody), "what is not there is not stored")
        await work.runtime.delete(nobody)


async def the_list_has_stored_sessions_newest_first(driver: Driver) -> None:
    """Root sessions with their directories, filtered by one; a malformed cursor is refused."""
    async with working(driver) as work:
        old = await work.new()
        await old.turn(Behaviour.DELEGATE)
        elsewhere = await work.new(driver.other_cwd)
        await elsewhere.turn()
        new = await work.new()
        await new.turn()
        ids = [new.session_id, elsewhere.session_id, old.session_id]
        require(await work.listed() == ids, "stored root sessions, newest first")
        require(all([await work.runtime.stored(session_id) for session_id in ids]), "what is listed is stored")
        require(await work.listed(driver.other_cwd) == [elsewhere.session_id], "those of one directory alone")
        page = await work.runtime.list(cwd=None, cursor=None)
        directories = {row.session_id: row.cwd for row in page.sessions}
        require(directories[elsewhere.session_id] == driver.other_cwd, "a row names the session's directory")
        await raises(
            InvalidParams, work.runtime.list(cwd=None, cursor="no cursor"), "a malformed cursor is InvalidParams"
        )


async def a_deleted_session_is_gone(driver: Driver) -> None:
    """Not listed, not found, no ids; a second delete is silent."""
    async with working(driver) as work:
        session, other = await work.new(), await work.new()
        await session.turn(Behaviour.DELEGATE)
        await other.turn()
        await session.session.close()
        await work.runtime.delete(session.session_id)
        await work.runtime.delete(session.session_id)
        require(await work.listed() == [other.session_id], "a deleted session is not listed, others are")
        await raises(SessionNotFound, work.resume(session.session_id), "a deleted session is not found")
        require(await work.runtime.message_ids(session.session_id) == set(), "a deleted session has no ids")


async def a_fork_is_a_copy_of_its_own(driver: Driver) -> None:
    """All that is stored, under a new id, at once and for good; the two go on apart."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        await session.session.close()
        fork = await work.fork(session.session_id)
        require(fork.session_id != session.session_id, "a fork has an id of its own")
    async with working(driver) as work:
        again = await work.resume(fork.session_id)
        copied = user_ids(fork.session_id, await again.history())
        require(len(copied) == 1, "a fork has what its origin had, also after a restart before its first message")
        added = await again.turn()
        require(driver.stored(fork.session_id)[-1] == added, "a fork goes on")
        require(added not in driver.stored(session.session_id), "the origin stays as it was")
        await work.runtime.delete(session.session_id)
        require(len(user_ids(fork.session_id, await again.history())) == 2, "a fork outlives its origin")


async def a_title_stays(driver: Driver) -> None:
    """Where the capability is: reported to a session that works, listed, also after a restart."""
    async with working(driver) as work:
        if not work.runtime.capabilities.title:
            return
        session = await work.new()
        await session.turn()
        await work.runtime.set_title(session.session_id, "A name")
        await session.until(lambda: "A name" in session.titles(), "an active session reports its new title")
        await session.turn()
        await raises(SessionNotFound, work.runtime.set_title(new_session_id(), "No"), "a title of nothing is refused")
    async with working(driver) as work:
        await work.runtime.set_title(session.session_id, "Another")
        (row,) = (await work.runtime.list(cwd=None, cursor=None)).sessions
        require(row.title == "Another", "a session that is not active takes a title too, and is listed with it")
        again = await work.resume(session.session_id)
        await again.turn()
        (row,) = (await work.runtime.list(cwd=None, cursor=None)).sessions
        require(row.title == "Another", "no generated title replaces one that was given")


async def an_archived_session_is_hidden(driver: Driver) -> None:
    """Where the capability is: not listed unless asked for, still there, and back again."""
    async with working(driver) as work:
        if not work.runtime.capabilities.archive:
            return
        session, other = await work.new(), await work.new()
        await session.turn()
        await other.turn()
        await session.session.close()
        await work.runtime.archive(session.session_id, archived=True)
        await work.runtime.archive(session.session_id, archived=True)
        require(await work.listed() == [other.session_id], "an archived session is not listed")
        only = await work.runtime.list(cwd=None, cursor=None, archived="only")
        require([(row.session_id, row.archived) for row in only.sessions] == [(session.session_id, True)], "but found")
        require(await work.runtime.stored(session.session_id), "an archived session is stored")
        await work.runtime.archive(session.session_id, archived=False)
        require(set(await work.listed()) == {session.session_id, other.session_id}, "and it comes back")
        nobody = work.runtime.archive(new_session_id(), archived=True)
        await raises(SessionNotFound, nobody, "nothing is archived under an unknown id")


async def a_store_that_cannot_be_read_is_an_error(driver: Driver) -> None:
    """Never an empty history and never an empty set of ids: a retry would be inserted a second time."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        await session.session.close()
        driver.damage(session.session_id)
        await raises(HistoryUnreadable, _read(work.runtime, session.session_id), "an unreadable history is an error")
        await raises(
            HistoryUnreadable, work.runtime.message_ids(session.session_id), "unreadable ids are an error, not none"
        )


async def _read(runtime: Runtime, session_id: str) -> list[HistoryEntry]:
    return [entry async for entry in runtime.history(session_id, live=False)]


STORED: Final[tuple[Check, ...]] = (
    a_new_session_leaves_nothing_before_its_first_message,
    the_history_tells_what_was_told_live,
    the_history_of_a_working_session_has_its_message,
    a_resumed_session_works_on,
    what_is_not_there_is_not_found,
    the_list_has_stored_sessions_newest_first,
    a_deleted_session_is_gone,
    a_fork_is_a_copy_of_its_own,
    a_title_stays,
    an_archived_session_is_hidden,
    a_store_that_cannot_be_read_is_an_error,
)
