"""A stored session as history entries: one pass over its transcript, and over its subagents' where they began.

Here is what touches files: which transcripts there are, and what cannot be read of them. What their rows mean is in
:mod:`~sayagain_claude.translate.stored`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sayagain.errors import HistoryUnreadable
from sayagain.identity import child_session_id
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryEntry, Unreadable
from sayagain_claude.files import read_regular
from sayagain_claude.tails import stored_output
from sayagain_claude.transcripts.paths import SubagentFiles, list_subagents
from sayagain_claude.transcripts.reader import Damaged, read_rows
from sayagain_claude.translate import subagents
from sayagain_claude.translate.blocks import Block, Json, as_mapping, as_text, plain_text
from sayagain_claude.translate.results import ToolResult
from sayagain_claude.translate.stored import StoredTranslator

__all__ = ["history"]

_FIRST_BATCH: Final = 32
_BATCH: Final = 512
"""Entries in the first batch and in those after it: few enough for the first one to come quickly, enough to make the
hand-over between threads cheap."""

_WRITTEN_TO: Final = "Output is being written to: "

_MAX_DEPTH: Final = 32
"""Depth of nested subagents; the CLI itself stops far earlier, a damaged meta file may not."""


def history(
    path: Path, session_id: str, *, live: bool, cwd: str | None = None, running: Set[str] = frozenset()
) -> Iterator[list[HistoryEntry]]:
    """All that is stored of a session, in batches, oldest first.

    ``running`` are tasks whose output clients are being told already; it is left out. ``live`` keeps unfinished tool
    calls and children running, else they failed or are idle. ``cwd`` is what paths in
    titles are relative to; the first row's by default. Raises :class:`~sayagain.errors.HistoryUnreadable`, also after
    batches were given: those are then not the whole.
    """
    batch: list[HistoryEntry] = []
    size = _FIRST_BATCH
    for entry in _Session(path, session_id, live, cwd or "", running).read():
        batch.append(entry)
        if len(batch) >= size:
            yield batch
            batch, size = [], _BATCH
    if batch:
        yield batch


@dataclass(slots=True)
class _Child:
    """A stored subagent: its files, and what its meta file says."""

    files: SubagentFiles
    meta: Json


class _Session:
    """What all transcripts of one session share: its children, by the call that started them."""

    def __init__(self, path: Path, session_id: str, live: bool, cwd: str, running: Set[str]) -> None:
        self._running = running
        self._path = path
        self._session_id = session_id
        self._live = live
        self._cwd = cwd
        self._found: dict[str, _Child] = {}
        self._by_call: dict[str, str] = {}
        self._by_parent: dict[str, list[str]] = {}
        self._given: set[str] = set()
        self._depth = 0

    def read(self) -> Iterator[HistoryEntry]:
        """Everything, the root's transcript first to last."""
        # When they cannot be listed, those that the transcript names are announced all the same, each with its gap.
        with suppress(HistoryUnreadable):
            for files in list_subagents(self._path):
                self._find(files)
        yield from self._transcript(self._path, self._session_id, "")

    def of_call(self, call_id: str) -> str | None:
        """See :class:`~sayagain_claude.translate.stored.Children`."""
        return self._by_call.get(call_id)

    def is_given(self, agent_id: str) -> bool:
        """See :class:`~sayagain_claude.translate.stored.Children`."""
        return agent_id in self._given

    def is_finished(self, agent_id: str) -> bool:
        """See :class:`~sayagain_claude.translate.stored.Children`."""
        child = self._found.get(agent_id)
        return child is not None and child.meta.get("finished") is True

    def output(self, task_id: str, result: ToolResult) -> Block | None:
        """See :class:`~sayagain_claude.translate.stored.Children`: from its file, until the temporary files go."""
        if task_id in self._running:
            return None
        # The model is told the path: only one that the CLI gives to this very task is looked at.
        name = f"/{self._session_id}/tasks/{task_id}.output"
        before, found, _ = plain_text(result.content).partition(name)
        start = before.rfind(_WRITTEN_TO)
        if not found or start < 0 or "\n" in before[start:]:
            return None
        return stored_output(Path(before[start + len(_WRITTEN_TO) :] + name)) or None

    def entries(self, agent_id: str, parent_id: str, call: Json | None) -> Iterator[HistoryEntry]:
        """See :class:`~sayagain_claude.translate.stored.Children`."""
        if agent_id in self._given or self._depth >= _MAX_DEPTH:
            return
        self._given.add(agent_id)
        child = self._found.get(agent_id)
        meta: Json = child.meta if child else {}
        input_ = as_mapping((call or {}).get("input"))
        session_id = child_session_id(self._session_id, agent_id)
        title = as_text(meta.get("description")) or as_text(input_.get("description"))
        kind = as_text(meta.get("agentType")) or as_text(input_.get("subagent_type"))
        running = self._live and child is not None and meta.get("finished") is not True
        state: Block = {"state": "running" if running else "idle"}
        yield ChildStarts(parent_id, session_id, subagents.announcement(session_id, title, kind, state))
        self._depth += 1
        try:
            if child is None or not child.files.transcript.exists():
                yield Unreadable("a subagent's history is missing")
            else:
                yield from self._transcript(child.files.transcript, session_id, agent_id)
        except HistoryUnreadable:
            yield Unreadable("a subagent's history cannot be read")
        finally:
            self._depth -= 1
        yield HistoryEnds(session_id)

    def _find(self, files: SubagentFiles) -> None:
        meta: Json = {}
        # A child without its facts is still a child.
        with suppress(OSError, ValueError, RecursionError):
            meta = as_mapping(json.loads(read_regular(files.meta)))
        agent_id = files.agent_id
        self._found[agent_id] = _Child(files, meta)
        call_id, parent = as_text(meta.get("toolUseId")), as_text(meta.get("parentAgentId"))
        if call_id:
            self._by_call.setdefault(call_id, agent_id)
        self._by_parent.setdefault("" if parent == agent_id else parent, []).append(agent_id)

    def _transcript(self, path: Path, session_id: str, agent_id: str) -> Iterator[HistoryEntry]:
        translator = StoredTranslator(self._session_id, session_id, self._cwd, self)
        damaged = 0
        for row in read_rows(path):
            if isinstance(row, Damaged):
                damaged += 1
                continue
            if not self._cwd:
                self._cwd = translator.cwd = as_text(row.get("cwd"))
            yield from translator.row(row)
        yield from translator.settle()
        # Children that no row refers to: the process was killed before it stored the row.
        left = self._by_parent.get(agent_id, []) if agent_id else [*self._by_parent.get("", []), *self._found]
        for child in left:
            yield from self.entries(child, session_id, None)
        yield from translator.unfinished(live=self._live)
        if damaged:
            yield Unreadable.entries(damaged)
