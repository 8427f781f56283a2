"""A stored session as history entries: one pass over its transcript, and over its subagents' where they began.

Rows are read in file order, which is the order of what happened (a walk over ``parentUuid`` loses what a compaction
cut off and what ran in parallel). Everything is built from the same parts as the live updates. Constant memory: what
is held back is one message, and tool calls that wait for their result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sayagain.errors import HistoryUnreadable
from sayagain.identity import child_session_id
from sayagain.runtime import ChildStarts, HistoryEnds, HistoryEntry, HistoryUpdate, Unreadable, UserTurn
from sayagain_claude.transcripts.paths import SubagentFiles, list_subagents
from sayagain_claude.transcripts.reader import Damaged, read_rows
from sayagain_claude.transcripts.row import Row, RowKind, classify, row_message_ids, row_text
from sayagain_claude.translate import harness, results, subagents, tools
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, text_block
from sayagain_claude.translate.compactions import compaction
from sayagain_claude.translate.messages import SYNTHETIC, RunKind, Runs, api_message_id
from sayagain_claude.translate.plans import Plans
from sayagain_claude.translate.prompts import stored_content

__all__ = ["history"]

_BATCH: Final = 64
"""Entries in a batch: few enough to keep the first one quick, enough to make the hand-over between threads cheap."""

_HELD: Final = 64
"""Entries that may wait behind a tool call without a result: a turn has a handful of calls in parallel."""

_MAX_DEPTH: Final = 32
"""Depth of nested subagents; the CLI itself stops far earlier, a damaged meta file may not."""

_TEXT_KINDS: Final[dict[str, RunKind]] = {"text": "agent_message", "thinking": "agent_thought"}
_IGNORED_TYPES: Final = frozenset({"queue-operation", "last-prompt", "cost-state", "file-history-snapshot", "mode"})


def history(path: Path, session_id: str, *, live: bool, cwd: str | None = None) -> Iterator[list[HistoryEntry]]:
    """All that is stored of a session, in batches, oldest first.

    ``live`` keeps unfinished tool calls and children running, else they failed or are idle. ``cwd`` is what paths in
    titles are relative to; the first row's by default. Raises :class:`~sayagain.errors.HistoryUnreadable`, also after
    batches were given: those are then not the whole.
    """
    batch: list[HistoryEntry] = []
    for entry in _Session(path, session_id, live, cwd or "").entries():
        batch.append(entry)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(slots=True)
class _Child:
    """A stored subagent: its files, and what its meta file says."""

    files: SubagentFiles
    meta: Json
    session_id: str


class _Session:
    """What all transcripts of one session share: its children, by the call that started them."""

    def __init__(self, path: Path, session_id: str, live: bool, cwd: str) -> None:
        self.path = path
        self.session_id = session_id
        self.live = live
        self.cwd = cwd
        self.children: dict[str, _Child] = {}
        self.by_call: dict[str, str] = {}
        self.by_parent: dict[str, list[str]] = {}
        self.given: set[str] = set()
        self.depth = 0

    def entries(self) -> Iterator[HistoryEntry]:
        try:
            found = list_subagents(self.path)
        except HistoryUnreadable:
            found = []  # those that the transcript names are announced all the same, each with its gap
        for files in found:
            self._found(files)
        yield from _Transcript(self, self.session_id, self.path, "").entries()

    def _found(self, files: SubagentFiles) -> None:
        meta: Json = {}
        # A child without its facts is still a child.
        with suppress(OSError, ValueError, RecursionError):
            meta = as_mapping(json.loads(files.meta.read_bytes()))
        agent_id = files.agent_id
        self.children[agent_id] = _Child(files, meta, child_session_id(self.session_id, agent_id))
        call_id, parent = as_text(meta.get("toolUseId")), as_text(meta.get("parentAgentId"))
        if call_id:
            self.by_call.setdefault(call_id, agent_id)
        if parent == agent_id:
            parent = ""
        self.by_parent.setdefault(parent, []).append(agent_id)

    def child(self, agent_id: str, parent_id: str, call: Json | None) -> Iterator[HistoryEntry]:
        """A child's announcement and all of its history; nothing when it was given before."""
        if agent_id in self.given or self.depth >= _MAX_DEPTH:
            return
        self.given.add(agent_id)
        child = self.children.get(agent_id)
        input_ = as_mapping((call or {}).get("input"))
        meta: Json = child.meta if child else {}
        session_id = child_session_id(self.session_id, agent_id)
        title = as_text(meta.get("description")) or as_text(input_.get("description"))
        kind = as_text(meta.get("agentType")) or as_text(input_.get("subagent_type"))
        running = self.live and child is not None and meta.get("finished") is not True
        state: Block = {"state": "running" if running else "idle"}
        yield ChildStarts(parent_id, session_id, subagents.announcement(session_id, title, kind, state))
        self.depth += 1
        try:
            if child is None or not child.files.transcript.is_file():
                yield Unreadable(session_id, 1, "a subagent's history is missing")
            else:
                yield from _Transcript(self, session_id, child.files.transcript, agent_id).entries()
        except HistoryUnreadable:
            yield Unreadable(session_id, 1, "a subagent's history cannot be read")
        finally:
            self.depth -= 1
        yield HistoryEnds(session_id)


@dataclass(slots=True)
class _Message:
    """The message that is being put together: adjacent blocks of one run."""

    kind: RunKind
    message_id: str
    texts: list[str]

    def update(self) -> Block:
        return {
            "sessionUpdate": self.kind,
            "messageId": self.message_id,
            "content": [text_block("".join(self.texts))],
        }


@dataclass(slots=True)
class _Call:
    """A tool call: its upsert, and the block that its result is translated with."""

    block: Json
    update: dict[str, Any]
    done: bool = False
    sent: bool = False


class _Transcript:
    """One transcript file: the root's, or a child's (``agent_id``)."""

    def __init__(self, session: _Session, session_id: str, path: Path, agent_id: str) -> None:
        self._session = session
        self._session_id = session_id
        self._path = path
        self._agent_id = agent_id
        self._runs = Runs("")
        self._message: _Message | None = None
        self._held: list[HistoryEntry | _Call] = []
        self._open: dict[str, _Call] = {}
        self._seen: set[str] = set()
        self._plans = Plans()
        self._compaction: str | None = None
        self._prompted = not agent_id
        self._damaged = 0

    def entries(self) -> Iterator[HistoryEntry]:
        for item in read_rows(self._path):
            if isinstance(item, Damaged):
                self._damaged += 1
                continue
            if not self._session.cwd:
                self._session.cwd = as_text(item.get("cwd"))
            kind = item.get("type")
            if kind == "assistant":
                yield from self._assistant(item)
            elif kind == "user":
                yield from self._user(item)
            elif kind == "attachment":
                if "source_uuid" in as_mapping(item.get("attachment")):
                    yield from self._folded(item)
            elif kind == "system":
                yield from self._system(item)
            if self._held:
                yield from self._release()
        yield from self._end()

    # Answers

    def _assistant(self, row: Row) -> Iterator[HistoryEntry]:
        message = as_mapping(row.get("message"))
        message_id = api_message_id(message, row.get("uuid"))
        if self._runs.message_id != message_id:
            self._flush_message()
            self._runs = Runs(message_id)
        synthetic = message.get("model") == SYNTHETIC
        content = message.get("content")
        blocks = as_list(content) if not isinstance(content, str) else ({"type": "text", "text": content},)
        for block in map(as_mapping, blocks):
            kind = as_text(block.get("type"))
            if kind == "tool_use":
                self._flush_message()
                self._runs.separate()
                yield from self._tool_use(block)
            elif kind in _TEXT_KINDS:
                text = as_text(block.get("text" if kind == "text" else "thinking"))
                if synthetic:
                    text = "" if text == harness.NO_RESPONSE else text.strip()
                if text and not text.isspace():
                    self._text(_TEXT_KINDS[kind], text)
            elif kind != "redacted_thinking":
                self._flush_message()
                self._runs.separate()

    def _text(self, kind: RunKind, text: str) -> None:
        message_id = self._runs.run(kind)
        if self._message and self._message.message_id == message_id:
            self._message.texts.append(text)
            return
        self._flush_message()
        self._message = _Message(kind, message_id, [text])

    def _flush_message(self) -> None:
        if self._message:
            self._held.append(HistoryUpdate(self._session_id, self._message.update()))
            self._message = None

    # Tool calls: one upsert each, at its place, when its result follows within the turn

    def _tool_use(self, block: Json) -> Iterator[HistoryEntry]:
        call_id = as_text(block.get("id"))
        if not call_id or call_id in self._open:
            return
        agent_id = self._session.by_call.get(call_id)
        if agent_id:
            # The child's history comes before the call that refers to it, and is too much to hold back.
            yield from self._settle()
            yield from self._session.child(agent_id, self._session_id, block)
        update = tools.started(block, self._session.cwd)
        if agent_id:
            update["content"] = [subagents.session_reference(child_session_id(self._session.session_id, agent_id))]
        call = _Call(block, update)
        self._open[call_id] = call
        self._held.append(call)

    def _tool_results(self, row: Row) -> Iterator[HistoryEntry]:
        for found in results.tool_results(row):
            call = self._open.pop(found.tool_call_id, None)
            agent_id = self._session.by_call.get(found.tool_call_id) or self._launched(found)
            if agent_id and agent_id not in self._session.given:
                yield from self._settle()
                yield from self._session.child(agent_id, self._session_id, call.block if call else None)
            child_id = child_session_id(self._session.session_id, agent_id) if agent_id else None
            result = results.with_child(found, child_id)
            update = results.finished(call.block if call else None, result, self._session.cwd)
            plans = self._plans.finished(self._session_id, call.block, result, update["status"]) if call else []
            if call is None or call.sent:
                self._held.append(HistoryUpdate(self._session_id, update))
            else:
                call.update.update(update)
                call.done = True
            # In the order of the results, which is that of the changes; calls keep the order in which they were made.
            self._held += [HistoryUpdate(self._session_id, plan) for plan in plans]

    def _launched(self, result: results.ToolResult) -> str | None:
        """The agent that a result names, when no meta file says which call started it."""
        agent_id = as_text(as_mapping(result.structured).get("agentId"))
        return agent_id if agent_id and as_mapping(result.structured).get("status") else None

    def _release(self) -> Iterator[HistoryEntry]:
        """Give what waits up to the first call without a result; all of it when too much waits."""
        if len(self._held) > _HELD:
            yield from self._settle()
            return
        ready = 0
        for entry in self._held:
            if isinstance(entry, _Call) and not entry.done:
                break
            ready += 1
        if ready:
            released, self._held = self._held[:ready], self._held[ready:]
            yield from self._give(released)

    def _settle(self) -> Iterator[HistoryEntry]:
        """Give all that waits; calls without a result are patched when it comes, or at the end."""
        self._flush_message()
        released, self._held = self._held, []
        yield from self._give(released)

    def _give(self, entries: list[HistoryEntry | _Call]) -> Iterator[HistoryEntry]:
        for entry in entries:
            if isinstance(entry, _Call):
                entry.sent = True
                yield HistoryUpdate(self._session_id, entry.update)
            else:
                yield entry

    # Users

    def _user(self, row: Row) -> Iterator[HistoryEntry]:
        kind = classify(row)
        if kind is RowKind.TOOL_RESULT:
            self._flush_message()
            yield from self._tool_results(row)
            return
        compaction_id, self._compaction = self._compaction, None
        if kind is RowKind.COMPACT_SUMMARY:
            if compaction_id:
                self._add(compaction(compaction_id, row_text(row)))
        elif compaction_id:
            self._add(compaction(compaction_id, None))
        content: list[Block] | None = None
        if kind is RowKind.PROMPT:
            verbatim = row.get("promptSource") is not None
            content = stored_content(as_mapping(row.get("message")).get("content"), verbatim=verbatim)
        elif kind is RowKind.COMMAND and self._is_invocation(row):
            line = harness.command_line(row_text(row))
            content = [text_block(line)] if line else None
        yield from self._turn(row_message_ids(row), content)

    def _is_invocation(self, row: Row) -> bool:
        # A change of the model by a control request is stored as a command that nobody submitted (measured).
        return row.get("turnAttributionKey") is not None or ("turnAttributionKey" not in row and "rowSource" not in row)

    def _folded(self, row: Row) -> Iterator[HistoryEntry]:
        attachment = as_mapping(row.get("attachment"))
        content: list[Block] | None = None
        if attachment.get("commandMode", "prompt") == "prompt":
            content = stored_content(attachment.get("prompt"))
        yield from self._turn(row_message_ids(row), content)

    def _turn(self, ids: tuple[str, ...], content: list[Block] | None) -> Iterator[HistoryEntry]:
        """A stored user message; the first of several with one id counts."""
        if not ids:
            return
        first, *_ = ids
        if first in self._seen:
            return
        self._seen.update(ids)
        update: Block | None = None
        if content:
            yield from self._settle()
            message_id = first
            if not self._prompted:
                self._prompted = True
                message_id = subagents.prompt_message(self._session_id, "")["messageId"]
                ids = (message_id, *ids)
            update = {"sessionUpdate": "user_message", "messageId": message_id, "content": content}
        self._held.append(UserTurn(self._session_id, ids, update))

    # The rest

    def _system(self, row: Row) -> Iterator[HistoryEntry]:
        subtype = row.get("subtype")
        if subtype == "compact_boundary":
            compaction_id = as_text(row.get("uuid"))
            if compaction_id and compaction_id not in self._seen:
                self._seen.add(compaction_id)
                yield from self._settle()
                self._finish_compaction()
                self._compaction = compaction_id
        elif subtype == "local_command":
            text = as_text(row.get("content"))
            if isinstance(row.get("submitUuid"), str):
                yield from self._turn(row_message_ids(row), [text_block(text)] if text else None)
                return
            output = harness.command_output(text)
            message_id = as_text(row.get("uuid"))
            if output and message_id:
                self._flush_message()
                self._add({"sessionUpdate": "agent_message", "messageId": message_id, "content": [text_block(output)]})

    def _finish_compaction(self) -> None:
        if self._compaction:
            self._add(compaction(self._compaction, None))
            self._compaction = None

    def _add(self, update: Block) -> None:
        self._held.append(HistoryUpdate(self._session_id, update))

    def _end(self) -> Iterator[HistoryEntry]:
        self._finish_compaction()
        yield from self._settle()
        # Children that no row refers to: the process was killed before it stored the row.
        for agent_id in self._session.by_parent.get(self._agent_id, []):
            yield from self._session.child(agent_id, self._session_id, None)
        if not self._agent_id:
            for agent_id in list(self._session.children):
                yield from self._session.child(agent_id, self._session_id, None)
        status = "in_progress" if self._session.live else "failed"
        for call_id in self._open:
            update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
            yield HistoryUpdate(self._session_id, update)
        if self._damaged:
            what = "1 damaged entry" if self._damaged == 1 else f"{self._damaged} damaged entries"
            yield Unreadable(self._session_id, self._damaged, what)
