"""Stored sessions: pages, legacy threads, children, gaps, and the memory that it takes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from sayagain.errors import HistoryUnreadable, RuntimeDied
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, HistoryUpdate, Unreadable, UserTurn
from sayagain_codex.app_server import AppServerError
from sayagain_codex.history import history, message_ids
from support_codex import AllListed

ROOT = "root"


def user(number: int, client_id: str | None = None) -> dict[str, Any]:
    content = [{"type": "text", "text": f"prompt {number}"}]
    return {"type": "userMessage", "id": f"u{number}", "clientId": client_id or f"c{number}", "content": content}


def agent(number: int) -> dict[str, Any]:
    return {"type": "agentMessage", "id": f"a{number}", "text": f"answer {number}"}


def command(status: str, item_id: str = "call") -> dict[str, Any]:
    return {"type": "commandExecution", "id": item_id, "command": "make", "cwd": "/w", "status": status}


def spawn(*children: str, item_id: str = "spawn") -> dict[str, Any]:
    return {
        "type": "collabAgentToolCall",
        "id": item_id,
        "tool": "spawnAgent",
        "status": "completed",
        "receiverThreadIds": list(children),
        "prompt": "Help",
    }


def child_thread(thread_id: str, parent: str = ROOT, status: str = "notLoaded") -> dict[str, Any]:
    return {"id": thread_id, "parentThreadId": parent, "preview": "Help", "status": {"type": status}}


class Store(AllListed):
    """An app-server with these items; each item is in a turn of the same number, or in the given one."""

    def __init__(self, **threads: list[Any]) -> None:
        self.threads = threads
        self.children: list[dict[str, Any]] = []
        self.turns: dict[str, str] = {}
        self.legacy = False
        self.failures: dict[tuple[str, str | None], Exception] = {}
        self.asked: list[tuple[str, str | None]] = []
        self._listed: set[str] = set()
        self.irregular: set[str] = set()
        self.behind: set[str] = set()
        """Threads that are not all listed, whether or not they are loaded."""
        self.made_anew = False
        """Whether those are all listed once they were loaded."""

    def listed(self, thread_id: str) -> bool:
        """Whether anything was asked of this thread."""
        return thread_id in self._listed

    def page(self, thread_id: str, start: int, limit: int) -> list[Any]:
        return self.threads[thread_id][start : start + limit]

    async def check_files(self, thread_id: str) -> None:
        if thread_id in self.irregular:
            raise HistoryUnreadable

    async def is_listed(self, thread: Mapping[str, Any]) -> bool:
        return thread.get("id") not in self.behind

    async def check_listed(self, thread: Mapping[str, Any]) -> None:
        if thread.get("id") in self.behind:
            raise HistoryUnreadable

    async def request(self, method: str, params: Mapping[str, Any], *, patience: float | None = None) -> Any:
        await anyio.lowlevel.checkpoint()
        cursor = params.get("cursor")
        thread_id = str(params.get("threadId"))
        self.asked.append((method, cursor))
        self._listed.add(thread_id)
        failure = self.failures.get((method, cursor)) or self.failures.get((f"{method} {thread_id}", cursor))
        if failure:
            raise failure
        start = int(cursor or 0)
        match method:
            case "thread/items/list":
                assert (params["limit"], params["sortDirection"]) == (100, "asc")
                if self.legacy:
                    raise AppServerError(-32601, "thread/items/list is not supported")
                rows: list[Any] = [
                    {"turnId": item.get("turn", "t"), "item": item} if isinstance(item, dict) else item
                    for item in self.page(thread_id, start, 100)
                ]
                more = start + 100 < len(self.threads[thread_id])
                return {"data": rows, "nextCursor": str(start + 100) if more else None}
            case "thread/turns/list" if params.get("itemsView") == "full":
                turns = [{"id": "t", "items": [item]} for item in self.page(thread_id, start, 100)]
                more = start + 100 < len(self.threads[thread_id])
                return {"data": turns, "nextCursor": str(start + 100) if more else None}
            case "thread/turns/list":
                return {"data": [{"id": turn, "status": status} for turn, status in self.turns.items()]}
            case "thread/resume":
                if self.made_anew:
                    self.behind.discard(thread_id)
                return {}
            case "thread/list":
                assert params["ancestorThreadId"] == ROOT
                return {"data": self.children, "nextCursor": None}
            case _:
                return {}


async def test_a_history_that_nobody_reads_on_is_closed_with_all_inside_it() -> None:
    store = Store(root=[spawn("kid")], kid=[spawn("grandkid")], grandkid=[agent(number) for number in range(200)])
    batches = history(store, {"id": ROOT}, ROOT, live=False)
    while shape(await anext(batches))[0] != "root.grandkid agent_message":
        pass
    await batches.aclose()  # what was left open inside would be a warning on trio


async def read(store: Any, *, live: bool = False) -> list[HistoryEntry]:
    return [entry async for batch in history(store, {"id": ROOT, "cwd": "/w"}, ROOT, live=live) for entry in batch]


def shape(entries: list[HistoryEntry]) -> list[str]:
    def one(entry: HistoryEntry) -> str:
        match entry:
            case UserTurn(session_id, ids, _):
                return f"{session_id} user {ids[0]}"
            case HistoryUpdate(session_id, update):
                return f"{session_id} {update['sessionUpdate']}"
            case ChildStarts(parent_id, child_id, _):
                return f"{parent_id} starts {child_id}"
            case HistoryEnds(session_id):
                return f"{session_id} ends"
            case Unreadable(what):
                return what

    return [one(entry) for entry in entries]


async def test_pages_come_in_order_and_once() -> None:
    items = [item for number in range(170) for item in (user(number), agent(number))]
    store = Store(root=items)
    store.threads["root"] = [*items[:100], *items[98:]]  # a page that overlaps with the one before
    told = await read(store)
    assert [entry.message_ids[0] for entry in told if isinstance(entry, UserTurn)] == [f"c{n}" for n in range(170)]
    assert len(told) == 340
    assert await message_ids(store, ROOT) == {f"c{n}" for n in range(170)} | {"u49"}


async def test_an_id_belongs_to_its_turn() -> None:
    """Some model services begin anew with each turn."""
    store = Store(root=[agent(1) | {"turn": turn} for turn in ("t1", "t2", "t2")])
    assert shape(await read(store)) == ["root agent_message", "root agent_message"]


async def test_an_empty_session() -> None:
    assert await read(Store(root=[])) == []


async def test_the_next_page_is_asked_for_while_one_is_translated() -> None:
    class Slow(Store):
        """Knows whether a request is under way."""

        waits = False

        async def request(self, method: str, params: Mapping[str, Any]) -> Any:
            self.waits = True
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            self.waits = False
            return await super().request(method, params)

    class Watched(dict[str, Any]):
        """An item that knows when it is read."""

        def get(self, *args: Any) -> Any:
            read_meanwhile.append(store.waits)
            return super().get(*args)

    read_meanwhile: list[bool] = []
    store = Slow(root=[Watched(user(number)) for number in range(300)])
    batches = history(store, {"id": ROOT}, ROOT, live=False)
    first = await anext(batches)
    assert len(first) == 100
    assert store.asked == [("thread/items/list", None), ("thread/items/list", "100")]
    assert any(read_meanwhile)
    await batches.aclose()


async def test_a_long_history_is_never_held_whole() -> None:
    class Page(list[Any]):
        """A list that can be watched."""

    pages: list[weakref.ref[Page]] = []

    class Endless(Store):
        async def request(self, method: str, params: Mapping[str, Any]) -> Any:
            if method != "thread/items/list":
                return await super().request(method, params)
            start = int(params.get("cursor") or 0)
            numbers = range(start, start + 50)
            rows = Page({"turnId": "t", "item": item} for n in numbers for item in (user(n), agent(n)))
            pages.append(weakref.ref(rows))
            return {"data": list(rows) and rows, "nextCursor": str(start + 50) if start < 9950 else None}

    count, most = 0, 0
    async for batch in history(Endless(), {"id": ROOT}, ROOT, live=False):
        count += len(batch)
        gc.collect(0)
        most = max(most, sum(page() is not None for page in pages))
    assert count == 20_000
    assert most <= 3


async def test_legacy_threads_are_read_by_turns() -> None:
    store = Store(root=[user(number) for number in range(150)])
    store.legacy = True
    assert len(await read(store)) == 150
    assert await message_ids(store, ROOT) == {f"c{n}" for n in range(150)}
    assert store.asked.count(("thread/items/list", None)) == 2


async def test_a_session_that_was_never_prompted_is_empty() -> None:
    store = Store(root=[])
    store.legacy = True
    message = "thread root is not materialized yet; thread/turns/list is unavailable before first user message"
    store.failures["thread/turns/list", None] = AppServerError(-32600, message)
    assert await read(store) == []
    assert await message_ids(store, ROOT) == set()


@pytest.mark.parametrize("cursor", [None, "100"])
async def test_an_error_is_never_an_empty_history(cursor: str | None) -> None:
    store = Store(root=[user(number) for number in range(150)])
    store.failures["thread/items/list", cursor] = AppServerError(-32603, "rollout is empty")
    with pytest.raises(HistoryUnreadable, match="rollout is empty"):
        await read(store)
    with pytest.raises(HistoryUnreadable):
        await message_ids(store, ROOT)


async def test_a_server_that_dies_is_not_an_answer() -> None:
    store = Store(root=[user(number) for number in range(150)])
    store.failures["thread/items/list", "100"] = RuntimeDied("Codex ended")
    with pytest.raises(RuntimeDied):
        await read(store)


async def test_damaged_entries_are_counted() -> None:
    store = Store(root=[user(1), None, {"type": "agentMessage"}, {"id": "x"}, agent(1)])
    told = await read(store)
    assert shape(told) == ["root user c1", "root agent_message", "3 damaged entries"]


async def test_two_messages_under_one_id_are_both_told() -> None:
    told = await read(Store(root=[user(1, "same"), user(2, "same")]))
    assert shape(told) == ["root user same", "root user u2"]


@pytest.mark.parametrize(
    ("turn", "live", "status"),
    [
        ("interrupted", False, "cancelled"),
        ("inProgress", False, "cancelled"),
        ("failed", False, "failed"),
        ("inProgress", True, "in_progress"),
    ],
)
async def test_an_unfinished_call_ended_as_its_turn(turn: str, live: bool, status: str) -> None:
    store = Store(root=[user(1), command("inProgress")])
    store.turns = {"other": "completed", "t": turn}
    told = await read(store, live=live)
    last = told[-1]
    assert isinstance(last, HistoryUpdate)
    assert last.update["status"] == status


# Children


async def test_a_child_is_told_where_it_began() -> None:
    store = Store(
        root=[user(1), spawn("kid"), agent(1)], kid=[user(2), spawn("grandkid"), agent(2)], grandkid=[agent(3)]
    )
    store.turns = {"t": "completed"}
    assert shape(await read(store)) == [
        "root user c1",
        "root starts root.kid",
        "root.kid user c2",
        "root.kid starts root.grandkid",
        "root.grandkid agent_message",
        "root.grandkid ends",
        "root.kid tool_call_update",
        "root.kid agent_message",
        "root.kid ends",
        "root tool_call_update",
        "root agent_message",
    ]


async def test_children_that_nothing_names_come_last() -> None:
    store = Store(root=[user(1)], kid=[agent(2)], grandkid=[agent(3)])
    store.children = [child_thread("kid"), child_thread("grandkid", "kid"), {"id": "no child"}]
    assert shape(await read(store)) == [
        "root user c1",
        "root starts root.kid",
        "root.kid agent_message",
        "root.kid starts root.grandkid",
        "root.grandkid agent_message",
        "root.grandkid ends",
        "root.kid ends",
    ]


async def test_a_child_is_told_once_and_a_call_without_it_does_not_refer_to_it() -> None:
    wait = {**spawn("kid", "stranger", item_id="wait"), "tool": "wait"}
    store = Store(root=[spawn("kid"), spawn("kid", item_id="again"), wait], kid=[])
    told = await read(store)
    assert shape(told)[:3] == ["root starts root.kid", "root.kid ends", "root tool_call_update"]
    assert isinstance(told[-1], HistoryUpdate)
    assert told[-1].update["content"] == [{"type": "session", "sessionId": "root.kid"}]


async def test_children_that_start_each_other_end() -> None:
    store = Store(root=[spawn("kid")], kid=[spawn("root", item_id="back"), spawn("kid", item_id="self")])
    assert shape(await read(store)).count("root.kid ends") == 1


@pytest.mark.parametrize(("turns", "resumed"), [({"t": "completed"}, False), ({"t": "interrupted"}, True), ({}, True)])
async def test_a_child_that_may_be_stale_is_resumed(turns: dict[str, str], resumed: bool) -> None:
    store = Store(root=[spawn("kid")], kid=[agent(1)])
    store.turns = turns
    await read(store)
    methods = [method for method, _ in store.asked]
    assert ("thread/resume" in methods) is resumed
    assert ("thread/unsubscribe" in methods) is resumed


async def test_a_child_that_works_here_is_left_alone_and_runs() -> None:
    store = Store(root=[spawn("kid")], kid=[command("inProgress")])
    store.children = [child_thread("kid", status="active")]
    told = await read(store, live=True)
    assert "thread/resume" not in [method for method, _ in store.asked]
    assert isinstance(told[0], ChildStarts)
    assert told[0].update["state"] == {"state": "running"}
    call = next(e.update for e in told if isinstance(e, HistoryUpdate) and "toolCallId" in e.update)
    assert call["status"] == "in_progress"


async def test_a_child_that_cannot_be_read_is_a_gap() -> None:
    store = Store(root=[spawn("kid"), agent(1)], kid=[])
    store.failures["thread/items/list kid", None] = AppServerError(-32600, "thread not loaded: kid")
    assert shape(await read(store)) == [
        "root starts root.kid",
        "a subagent's history cannot be read",
        "root.kid ends",
        "root tool_call_update",
        "root agent_message",
    ]


@pytest.mark.parametrize("fault", ["owned elsewhere", "no file", "works", None])
async def test_a_child_that_is_not_all_listed_is_loaded_or_a_gap(fault: str | None) -> None:
    store = Store(root=[spawn("kid")], kid=[agent(1)])
    store.children = [child_thread("kid")]
    store.turns = {"t": "completed"}
    store.behind, store.made_anew = {"kid"}, True
    if fault == "owned elsewhere":
        store.failures["thread/resume", None] = AppServerError(-32600, "thread kid already has an active writer")
    elif fault == "no file":
        store.irregular = {"kid"}
    told = shape(await read(store, live=fault == "works"))
    gap = ["a subagent's history cannot be read"] if fault else []
    said = [] if fault == "no file" else ["root.kid agent_message"]
    assert told == ["root starts root.kid", *said, *gap, "root.kid ends", "root tool_call_update"]
    assert fault != "no file" or not store.listed("kid")
    assert ("thread/resume" in [method for method, _ in store.asked]) is (fault in ("owned elsewhere", None))


async def test_a_server_without_lists_of_children_is_read_all_the_same() -> None:
    store = Store(root=[spawn("kid")], kid=[agent(1)])
    store.failures["thread/list", None] = AppServerError(-32601, "experimental")
    store.failures["thread/resume", None] = AppServerError(-32600, "no rollout found")
    assert "root.kid agent_message" in shape(await read(store))
