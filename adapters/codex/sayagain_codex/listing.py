"""Stored threads as rows of ``session/list``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.protocol.loose import as_text
from sayagain.runtime.seam import SessionPage, StoredSession
from sayagain_codex.app_server import AppServerError
from sayagain_codex.threads import PAGE, Client

__all__ = ["list_sessions", "row", "title_of"]

Params = Mapping[str, Any]

TITLE: Final = 80
"""Longest title that is taken from a first prompt, in characters."""


async def list_sessions(
    client: Client, reverted: Mapping[str, str | None], *, cwd: str | None, cursor: str | None, archived: str
) -> SessionPage:
    """A page of threads that a user began, newest first; with ``include`` the archived ones come last.

    Sorted by the time of the last change: sorted by creation, Codex loses threads between pages (measured). One that
    was ``reverted`` it lists once for each of its files that has a prompt, each with another preview (measured): the
    last one is the thread, by the name in ``reverted``, or its first file.
    """
    hidden, inner = _decode(cursor, archived)
    params: dict[str, Any] = {
        "limit": PAGE,
        "sortKey": "updated_at",
        "sortDirection": "desc",
        "archived": hidden,
        # Else only those of the provider that is configured now.
        "modelProviders": [],
        "cwd": cwd,
        "cursor": inner,
    }
    try:
        page = await client.request("thread/list", params)
    except AppServerError as error:
        if "invalid cursor" in error.message:
            raise InvalidParams("cursor", "is no cursor of this list") from error
        raise
    following: str | None = page.get("nextCursor")
    more = None if following is None else _encode(hidden, following)
    if more is None and archived == "include" and not hidden:
        more = _encode(True, None)
    rows: list[StoredSession] = []
    for thread in page["data"]:
        thread_id = thread["id"]
        if thread_id not in reverted:
            rows.append(row(thread, archived=hidden))
        elif _is_last(thread, reverted[thread_id]):
            rows.append(row(await _whole(client, thread), archived=hidden))
    return SessionPage(rows, more)


def _is_last(thread: Params, last: str | None) -> bool:
    name = PurePath(as_text(thread.get("path"))).name
    return "_" not in name if last is None else name == last


async def _whole(client: Client, part: Params) -> Params:
    """The thread as the whole of it is called, which only a read tells."""
    try:
        thread: Params = (await client.request("thread/read", {"threadId": part["id"]}))["thread"]
    except AppServerError:
        return part  # it was removed meanwhile
    return {**part, "preview": thread.get("preview") or part.get("preview")}


def row(thread: Params, *, archived: bool) -> StoredSession:
    """One thread."""
    updated = datetime.fromtimestamp(thread["updatedAt"], UTC).isoformat().replace("+00:00", "Z")
    return StoredSession(thread["id"], thread["cwd"], title_of(thread), updated, archived)


def title_of(thread: Params) -> str | None:
    """The name that the thread was given, else the beginning of its first prompt."""
    text = " ".join(str(thread.get("name") or thread.get("preview") or "").split())
    return f"{text[: TITLE - 1]}…" if len(text) > TITLE else text or None


def _encode(archived: bool, cursor: str | None) -> str:
    return json.dumps([archived, cursor], separators=(",", ":"))


def _decode(cursor: str | None, archived: str) -> tuple[bool, str | None]:
    """Which of the two lists, and Codex's own cursor in it."""
    if cursor is None:
        return archived == "only", None
    try:
        hidden, inner = json.loads(cursor)
    except (ValueError, TypeError):
        raise InvalidParams("cursor", "is no cursor of this list") from None
    allowed = {"exclude": (False,), "only": (True,), "include": (False, True)}[archived]
    if not isinstance(hidden, bool) or hidden not in allowed or not isinstance(inner, str | None):
        raise InvalidParams("cursor", "is no cursor of this list")
    return hidden, inner
