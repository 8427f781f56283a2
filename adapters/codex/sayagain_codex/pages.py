"""The items of one stored thread, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sayagain.protocol.loose import Json, as_list, as_mapping, as_text
from sayagain_codex.app_server import AppServerError
from sayagain_codex.threads import Client, unreadable

__all__ = ["PAGE", "Entry", "Page", "Pages"]

PAGE: Final = 100
"""Items in a page: the app-server's own limit (measured)."""

_UNSUPPORTED: Final = -32601


@dataclass(frozen=True, slots=True)
class Entry:
    """An item, and the turn that it is in."""

    turn_id: str
    item: Json


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in order, how many could not be read, and the cursor of the next page (``None``: there is none)."""

    entries: Sequence[Entry]
    damaged: int
    next: object


class Pages:
    """The items of one thread in pages, ascending: by ``thread/items/list``, by whole turns for legacy threads."""

    def __init__(self, client: Client, thread_id: str) -> None:
        self._client = client
        self._thread_id = thread_id
        self._by_turns = False

    async def fetch(self, cursor: object) -> Page:
        """The page at a cursor (``None``: the first)."""
        if not self._by_turns:
            try:
                return self._items(await self._list("thread/items/list", cursor, {}))
            except AppServerError as error:
                if error.rpc_code != _UNSUPPORTED or cursor is not None:
                    raise unreadable(error) from error
                self._by_turns = True
        try:
            return self._turns(await self._list("thread/turns/list", cursor, {"itemsView": "full"}))
        except AppServerError as error:
            if "not materialized" in error.message:
                return Page((), 0, None)  # nothing was ever prompted here
            raise unreadable(error) from error

    async def status(self, turn_id: str) -> str:
        """The status of a turn, the latest looked at first: it is the one that may be unfinished."""
        cursor: object = None
        while True:
            params = {"itemsView": "notLoaded", "sortDirection": "desc"}
            try:
                result = await self._list("thread/turns/list", cursor, params)
            except AppServerError as error:
                raise unreadable(error) from error
            for turn in map(as_mapping, as_list(result.get("data"))):
                if turn.get("id") == turn_id:
                    return as_text(turn.get("status"))
            cursor = result.get("nextCursor")
            if cursor is None:
                return ""

    async def _list(self, method: str, cursor: object, params: Json) -> Json:
        request: dict[str, Any] = {"threadId": self._thread_id, "limit": PAGE, "sortDirection": "asc", **params}
        if cursor is not None:
            request["cursor"] = cursor
        return as_mapping(await self._client.request(method, request))

    def _items(self, result: Json) -> Page:
        entries: list[Entry] = []
        damaged = 0
        for row in as_list(result.get("data")):
            item = as_mapping(as_mapping(row).get("item"))
            if as_text(item.get("id")) and as_text(item.get("type")):
                entries.append(Entry(as_text(as_mapping(row).get("turnId")), item))
            else:
                damaged += 1
        return Page(entries, damaged, result.get("nextCursor"))

    def _turns(self, result: Json) -> Page:
        rows = [
            {"turnId": turn.get("id"), "item": item}
            for turn in map(as_mapping, as_list(result.get("data")))
            for item in as_list(turn.get("items"))
        ]
        return self._items({"data": rows, "nextCursor": result.get("nextCursor")})
