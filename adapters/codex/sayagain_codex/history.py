"""A stored session as history entries: one pass over its items, and over its subagents' where they began.

Here is what asks the app-server: which items there are, in pages. What they look like is said in
:mod:`~sayagain_codex.translate.items`. A page at a time is held, so a session of any length takes the same memory; the
next one is fetched while the one before is translated.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
from anyio.lowlevel import checkpoint

from sayagain import fault_points
from sayagain.errors import HistoryUnreadable
from sayagain.fault_points import Point
from sayagain.identity import child_session_id
from sayagain.protocol.loose import Json, as_list, as_mapping, as_text
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, HistoryUpdate, Unreadable, UserTurn
from sayagain_codex.app_server import AppServerError
from sayagain_codex.damage import DamagedRow, Gaps
from sayagain_codex.pages import PAGE, Page, Pages
from sayagain_codex.threads import Client
from sayagain_codex.translate import subagents
from sayagain_codex.translate.item_ids import in_turn
from sayagain_codex.translate.items import item_updates, user_message_id

logger = logging.getLogger(__name__)

__all__ = ["Stored", "history", "message_ids"]

_MAX_DEPTH: Final = 32
"""Depth of nested subagents; Codex itself stops far earlier."""

_STEPS_TO_SEND: Final = 3
"""Turns of the event loop until a request is out, before the work that goes on meanwhile: its task starts, takes its
place among the writers, and writes."""


class Stored(Client, Protocol):
    """Who asks Codex for what is stored of a session, and has its files. A ``thread`` is a ``Thread`` of Codex."""

    async def damaged(self, thread: Mapping[str, Any]) -> Sequence[DamagedRow]:
        """The rows of a thread's file that cannot be read."""
        ...

    async def check_files(self, thread_id: str) -> None:
        """Raise :class:`~sayagain.errors.HistoryUnreadable` for what Codex should better not open."""
        ...

    async def is_listed(self, thread: Mapping[str, Any]) -> bool:
        """Whether all that is written of a thread is listed; raises like :meth:`check_listed`."""
        ...

    async def check_listed(self, thread: Mapping[str, Any]) -> None:
        """Raise :class:`~sayagain.errors.HistoryUnreadable` unless all that is written of a thread is listed soon."""
        ...


async def history(
    stored: Stored, thread: Mapping[str, Any], session_id: str, *, live: bool
) -> AsyncGenerator[list[HistoryEntry], None]:
    """All that is stored of a session, in batches, oldest first.

    ``thread`` is the ``Thread`` that ``thread/resume`` or ``thread/start`` returned: only after one of them is what
    the app-server lists up to date (measured). ``live`` keeps unfinished tool calls and children running, else they
    failed or were cancelled with their turn. Raises :class:`~sayagain.errors.HistoryUnreadable`, also after batches
    were given: those are then not the whole.
    """
    reader = _Session(stored, session_id, live, as_text(thread.get("cwd")) or "/")
    root = _Source(as_text(thread.get("id")) or session_id, session_id, live, thread)
    async with aclosing(reader.thread(root)) as batches:
        async for batch in batches:
            yield batch


async def message_ids(client: Client, thread_id: str, damaged: Sequence[DamagedRow] = ()) -> set[str]:
    """The ids of all user messages of a thread, as :func:`history` gives them; raises like it."""
    found: set[str] = set()
    gaps = Gaps(damaged)
    cursor: object = None
    pages = Pages(client, thread_id)
    while True:
        page = await pages.fetch(cursor)
        fault_points.passing(Point.CODEX_IDS_PAGE)
        for entry in page.entries:
            gaps.saw(entry.item)
            if entry.item.get("type") == "userMessage":
                message_id = user_message_id(entry.item)
                found.add(message_id if message_id not in found else as_text(entry.item.get("id")))
        if page.next is None:
            return found | gaps.message_ids
        cursor = page.next


@dataclass(frozen=True, slots=True)
class _Source:
    """A thread to read, and the session that it is."""

    thread_id: str
    session_id: str
    live: bool
    thread: Mapping[str, Any]
    """As Codex describes it."""


@dataclass(slots=True)
class _Children:
    """The subagents that Codex lists under the root."""

    threads: dict[str, Json] = field(default_factory=dict[str, Json])
    by_parent: dict[str, list[subagents.Named]] = field(default_factory=dict[str, "list[subagents.Named]"])


class _Session:
    """What all threads of one session share."""

    def __init__(self, stored: Stored, session_id: str, live: bool, cwd: str) -> None:
        self._stored = stored
        self._session_id = session_id
        self._live = live
        self._cwd = cwd
        self._given: set[str] = set()
        self._announced: set[str] = set()
        self._children: _Children | None = None
        self._depth = 0

    async def thread(self, source: _Source) -> AsyncGenerator[list[HistoryEntry], None]:
        """Everything of one thread, and of the subagents that it started."""
        self._given.add(source.thread_id)
        gaps = Gaps(await self._stored.damaged(source.thread))
        reader = _Thread(Pages(self._stored, source.thread_id), source, self._cwd, self._child_id, gaps)
        async with aclosing(reader.parts()) as parts:
            async for part in parts:
                if isinstance(part, list):
                    yield part
                    continue
                async with aclosing(self._child(part, source)) as batches:
                    async for batch in batches:
                        yield batch
        # Those that no item names: the process was killed before it stored the item.
        for named in (await self._listed()).by_parent.get(source.thread_id, []):
            async with aclosing(self._child(named, source)) as batches:
                async for batch in batches:
                    yield batch
        missing = [UserTurn(source.session_id, (message_id,), None) for message_id in sorted(gaps.message_ids)]
        damaged = reader.damaged + gaps.count
        if damaged:
            yield [*missing, Unreadable.entries(damaged)]

    def _child_id(self, named: subagents.Named | None, thread_id: str) -> str | None:
        """The session of a subagent's thread; ``None`` for one that was not and will not be announced here."""
        if named is not None and named.started:
            self._announced.add(thread_id)
        return child_session_id(self._session_id, thread_id) if thread_id in self._announced else None

    async def _child(self, named: subagents.Named, parent: _Source) -> AsyncGenerator[list[HistoryEntry], None]:
        if named.thread_id in self._given or self._depth >= _MAX_DEPTH:
            return
        if not named.started:
            known = (await self._listed()).threads.get(named.thread_id)
            found = subagents.named_in_thread(known) if known else None
            if found is None or found[0] != parent.thread_id:
                return
            named = found[1]
        self._given.add(named.thread_id)
        self._announced.add(named.thread_id)
        child_id = child_session_id(self._session_id, named.thread_id)
        known = (await self._listed()).threads.get(named.thread_id, {})
        running = self._live and as_mapping(known.get("status")).get("type") == "active"
        state = {"state": "running" if running else "idle"}
        yield [ChildStarts(parent.session_id, child_id, subagents.announcement(child_id, named, state))]
        whole = False
        self._depth += 1
        try:
            # Codex opens the file to list a thread that is not loaded, whatever stands there (measured).
            await self._stored.check_files(named.thread_id)
            whole = await self._is_up_to_date(named.thread_id, known)
            async with aclosing(self.thread(_Source(named.thread_id, child_id, running, known))) as batches:
                async for batch in batches:
                    yield batch
        except HistoryUnreadable as error:
            logger.debug("a subagent's history cannot be read: %s", error)
            whole = False
        finally:
            self._depth -= 1
        if not whole:
            yield [Unreadable("a subagent's history cannot be read")]
        yield [HistoryEnds(child_id)]

    async def _is_up_to_date(self, thread_id: str, thread: Json) -> bool:
        """Whether all of a subagent is listed; else what is."""
        try:
            await self._bring_up_to_date(thread_id, thread)
            await self._stored.check_listed(thread)
        except HistoryUnreadable as error:
            logger.debug("a subagent's history is incomplete: %s", error)
            return False
        return True

    async def _bring_up_to_date(self, thread_id: str, thread: Json) -> None:
        """Resume a subagent's thread when what is listed of it may be old, and let go of it again.

        A list that wasn't resumed lacks what was written in the instant of a kill (measured), and then its last turn
        is unfinished, or there is none; or the whole list was made anew since. Not while somebody works on the
        session: to let go of a subagent that works would be to lose its messages.
        """
        try:
            if not self._live and not (await self._ended_in_peace(thread_id) and await self._stored.is_listed(thread)):
                await self._stored.request("thread/resume", {"threadId": thread_id, "excludeTurns": True})
                await self._stored.request("thread/unsubscribe", {"threadId": thread_id})
        except AppServerError as error:
            logger.debug("a subagent's thread was not resumed: %s", error)

    async def _ended_in_peace(self, thread_id: str) -> bool:
        request = {"threadId": thread_id, "limit": 1, "sortDirection": "desc", "itemsView": "notLoaded"}
        turns = as_list(as_mapping(await self._stored.request("thread/turns/list", request)).get("data"))
        return bool(turns) and as_mapping(turns[0]).get("status") in ("completed", "failed")

    async def _listed(self) -> _Children:
        """The session's subagents as Codex lists them; none where it cannot."""
        if self._children is None:
            self._children = children = _Children()
            cursor: object = None
            while True:
                request: dict[str, Any] = {"ancestorThreadId": self._session_id, "limit": PAGE, "sortKey": "updated_at"}
                if cursor is not None:
                    request["cursor"] = cursor
                try:
                    result = as_mapping(await self._stored.request("thread/list", request))
                except AppServerError as error:
                    logger.debug("subagents were not listed: %s", error)
                    break
                for thread in map(as_mapping, as_list(result.get("data"))):
                    found = subagents.named_in_thread(thread)
                    if found is not None:
                        # One that was reverted is listed for each of its files, the newest first (measured).
                        children.threads.setdefault(found[1].thread_id, thread)
                        children.by_parent.setdefault(found[0], []).append(found[1])
                cursor = result.get("nextCursor")
                if cursor is None:
                    break
        return self._children


class _Thread:
    """One thread's items as entries."""

    def __init__(
        self,
        pages: Pages,
        source: _Source,
        cwd: str,
        child_id: Callable[[subagents.Named | None, str], str | None],
        gaps: Gaps,
    ) -> None:
        self.damaged = 0
        self._gaps = gaps
        self._pages = pages
        self._source = source
        self._cwd = cwd
        self._child_id = child_id
        self._user_ids: set[str] = set()
        self._recent: dict[tuple[str, str], None] = {}
        self._unfinished: dict[str, str] = {}

    async def parts(self) -> AsyncGenerator[list[HistoryEntry] | subagents.Named, None]:
        """Batches of entries, and the subagents that began between them."""
        page = await self._pages.fetch(None)
        while True:
            await self._look_up(page)
            if page.next is None:
                for part in self._translate(page):
                    yield part
                return
            fetched = _Fetched()
            parts: list[list[HistoryEntry] | subagents.Named] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._fetch, page.next, fetched)
                for _ in range(_STEPS_TO_SEND):
                    await checkpoint()
                parts = self._translate(page)
            for part in parts:
                yield part
            page = fetched.take()

    async def _fetch(self, cursor: object, fetched: _Fetched) -> None:
        try:
            fetched.page = await self._pages.fetch(cursor)
        except Exception as error:  # noqa: BLE001 - raised by take, outside of the task group
            fetched.error = error

    async def _look_up(self, page: Page) -> None:
        """How the turns of unfinished items ended."""
        if self._source.live:
            return
        for entry in page.entries:
            if entry.item.get("status") == "inProgress" and entry.turn_id not in self._unfinished:
                status = await self._pages.status(entry.turn_id)
                self._unfinished[entry.turn_id] = "failed" if status == "failed" else "interrupted"

    def _translate(self, page: Page) -> list[list[HistoryEntry] | subagents.Named]:
        parts: list[list[HistoryEntry] | subagents.Named] = []
        batch: list[HistoryEntry] = []
        self.damaged += page.damaged
        for entry in page.entries:
            item = entry.item
            self._gaps.saw(item)
            if not self._once(entry.turn_id, as_text(item.get("id"))):
                continue
            item = in_turn(item, entry.turn_id)
            if item.get("status") == "inProgress" and entry.turn_id in self._unfinished:
                item = {**item, "status": self._unfinished[entry.turn_id]}
            for named in subagents.named_by(item):
                self._child_id(named, named.thread_id)
                parts += [batch, named] if batch else [named]
                batch = []
            batch += self._entries(item)
        if batch:
            parts.append(batch)
        return parts

    def _entries(self, item: Json) -> list[HistoryEntry]:
        session_id = self._source.session_id
        updates = item_updates(item, live=self._source.live, cwd=self._cwd, child=self._child)
        if item.get("type") != "userMessage":
            return [HistoryUpdate(session_id, update) for update in updates]
        message_id = user_message_id(item)
        if message_id in self._user_ids:
            message_id = as_text(item.get("id"))  # another program gave the same id twice: both were said
            updates = [{**update, "messageId": message_id} for update in updates]
        self._user_ids.add(message_id)
        return [UserTurn(session_id, (message_id,), updates[0] if updates else None)]

    def _child(self, thread_id: str) -> str | None:
        return self._child_id(None, thread_id)

    def _once(self, turn_id: str, item_id: str) -> bool:
        """False for an item that was just given: pages may overlap while the thread grows.

        An id belongs to its turn: some model services begin anew with each (measured: Codex stores both).
        """
        item = (turn_id, item_id)
        if item in self._recent:
            return False
        if len(self._recent) >= 4 * PAGE:
            del self._recent[next(iter(self._recent))]
        self._recent[item] = None
        return True


class _Fetched:
    """What came of a request for a page."""

    def __init__(self) -> None:
        self.page: Page | None = None
        self.error: Exception | None = None

    def take(self) -> Page:
        if self.page is None:
            raise self.error or HistoryUnreadable()
        return self.page
