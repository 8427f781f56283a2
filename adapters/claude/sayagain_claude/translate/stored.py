"""Stored rows of one transcript as history entries.

Pure like :mod:`~sayagain_claude.translate.live`: a row in, entries out. Rows come in file order, which is the order of
what happened (a walk over ``parentUuid`` loses what a compaction cut off and what ran in parallel). What is held back
is bounded: one message, and tool calls that wait for their result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sayagain.identity import child_session_id
from sayagain.runtime.history import HistoryEntry, HistoryUpdate, UserTurn
from sayagain_claude.transcripts.lost import LostMessages
from sayagain_claude.transcripts.row import Row, RowKind, classify, row_message_ids, row_text
from sayagain_claude.translate import harness, results, subagents, terminals, tools
from sayagain_claude.translate.background import call_ended, launched_task, notification
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, text_block
from sayagain_claude.translate.compactions import compaction
from sayagain_claude.translate.messages import TEXT_KINDS, RunKind, Runs, api_message_id, block_text, is_synthetic
from sayagain_claude.translate.plans import Plans
from sayagain_claude.translate.prompts import stored_content

__all__ = ["Children", "StoredTranslator"]

_HELD: Final = 64
"""Entries that may wait behind a tool call without a result: a turn has a handful of calls in parallel."""


class Children(Protocol):
    """The subagents of a stored session, and other work beside it, as their parents' rows meet them."""

    def of_call(self, call_id: str) -> str | None:
        """The agent that a tool call started."""
        ...

    def is_given(self, agent_id: str) -> bool:
        """Whether its history was given already."""
        ...

    def entries(self, agent_id: str, parent_id: str, call: Json | None) -> Iterator[HistoryEntry]:
        """Its announcement and history; nothing when they were given before."""
        ...

    def is_finished(self, agent_id: str) -> bool:
        """Whether a subagent's own file says that it is over."""
        ...

    def output(self, task_id: str, result: results.ToolResult) -> Block | None:
        """The output of a command in the background, and its end, as far as they are still kept: terminal fields."""
        ...


@dataclass(slots=True)
class _Message:
    """A message as far as it was read: adjacent blocks of one run."""

    kind: RunKind
    message_id: str
    texts: list[str]

    def update(self) -> Block:
        content = [text_block("".join(self.texts))]
        return {"sessionUpdate": self.kind, "messageId": self.message_id, "content": content}


@dataclass(slots=True)
class _Call:
    """A tool call: its upsert, and the block that its result is translated with."""

    block: Json
    update: dict[str, Any]
    terminal: dict[str, Any] | None
    """The upsert of its terminal, which goes before it."""
    done: bool = False
    sent: bool = False
    task_id: str = ""
    """What goes on in the background behind its result."""


class StoredTranslator:
    """One transcript: the root's, or a child's when ``session_id`` is not ``root_id``.

    ``cwd`` is what relative paths and titles are made with.
    """

    def __init__(self, root_id: str, session_id: str, cwd: str, children: Children) -> None:
        self.cwd = cwd
        self._root_id = root_id
        self._session_id = session_id
        self._children = children
        self._is_child = session_id != root_id
        self._runs = Runs("")
        self._message: _Message | None = None
        self._message_waits = False
        self._held: list[HistoryEntry | _Call] = []
        self._open: dict[str, _Call] = {}
        self._background: dict[str, _Call] = {}
        self._seen: set[str] = set()
        self._plans = Plans()
        self._compaction: str | None = None
        self._prompted = not self._is_child
        self._lost = LostMessages()

    def row(self, row: Row) -> Iterator[HistoryEntry]:
        """The entries that can be given once this row is read."""
        if not self._is_child:
            self._lost.row(row)
        kind = row.get("type")
        if row.get("isSidechain") is True and not self._is_child:
            # Older versions kept subagents' rows in the same file; a retry's id in one must be known all the same.
            yield from self._turn(row_message_ids(row), None)
        elif kind == "assistant":
            yield from self._assistant(row)
        elif kind == "user":
            yield from self._user(row)
        elif kind == "attachment":
            if "source_uuid" in as_mapping(row.get("attachment")):
                yield from self._folded(row)
        elif kind == "system":
            yield from self._system(row)
        elif kind == "queue-operation" and self._background and row.get("operation") == "enqueue":
            self._task_ended(as_text(row.get("content")))
        if self._held:
            yield from self._release()

    def settle(self) -> Iterator[HistoryEntry]:
        """Give all that waits; calls without a result are patched when it comes, or as unfinished."""
        self._flush_message()
        self._finish_compaction()
        released, self._held = self._held, []
        yield from self._give(released)

    def unfinished(self, *, live: bool) -> Iterator[HistoryEntry]:
        """The end of calls that never got a result: they failed, or still run when the session lives.

        Before it, the prompts whose own rows are torn: they cannot be shown, but must be known (KEY-3).
        """
        for message_id in self._lost.ids():
            if message_id not in self._seen:
                yield UserTurn(self._session_id, (message_id,), None)
        status = "in_progress" if live else "failed"
        for call_id, call in [*self._background.items(), *self._open.items()]:
            if call.terminal is not None and not live and "exitStatus" not in call.terminal:
                yield HistoryUpdate(self._session_id, terminals.stopped(call_id))
            if call.terminal is None or call_id in self._open:
                # A subagent may have ended though its notice was not stored.
                over = call.task_id and self._children.is_finished(call.task_id)
                update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id}
                yield HistoryUpdate(self._session_id, update | {"status": "completed" if over else status})

    # Answers

    def _assistant(self, row: Row) -> Iterator[HistoryEntry]:
        self._finish_compaction()
        message = as_mapping(row.get("message"))
        message_id = api_message_id(message, row.get("uuid"))
        if self._runs.message_id != message_id:
            self._flush_message()
            self._runs = Runs(message_id)
        synthetic = is_synthetic(message)
        content = message.get("content")
        blocks = as_list(content) if not isinstance(content, str) else ({"type": "text", "text": content},)
        for block in map(as_mapping, blocks):
            kind = as_text(block.get("type"))
            if kind == "tool_use":
                self._flush_message()
                self._runs.separate()
                yield from self._tool_use(block)
            elif kind in TEXT_KINDS:
                text = block_text(block, synthetic=synthetic)
                if text and not text.isspace():
                    self._text(TEXT_KINDS[kind], text)
            elif kind != "redacted_thinking":
                self._flush_message()
                self._runs.separate()

    def _text(self, kind: RunKind, text: str) -> None:
        message_id = self._runs.run(kind)
        if self._message and self._message.message_id == message_id:
            # Also when it was given before: an upsert has the whole message.
            self._message.texts.append(text)
        else:
            self._flush_message()
            self._message = _Message(kind, message_id, [text])
        self._message_waits = True

    def _flush_message(self) -> None:
        if self._message and self._message_waits:
            self._add(self._message.update())
            self._message_waits = False

    # Tool calls: one upsert each, at its place, when its result follows within the turn

    def _tool_use(self, block: Json) -> Iterator[HistoryEntry]:
        call_id = as_text(block.get("id"))
        if not call_id or call_id in self._open:
            return
        agent_id = self._children.of_call(call_id)
        if agent_id:
            yield from self._child(agent_id, block)
        update = tools.started(block, self.cwd)
        if agent_id:
            update["content"] = [subagents.session_reference(child_session_id(self._root_id, agent_id))]
        call = _Call(block, update, terminals.opened(block, self.cwd))
        self._open[call_id] = call
        self._held.append(call)

    def _tool_results(self, row: Row) -> Iterator[HistoryEntry]:
        for found in results.tool_results(row):
            call = self._open.pop(found.tool_call_id, None)
            agent_id = self._children.of_call(found.tool_call_id) or _launched(found)
            if agent_id:
                yield from self._child(agent_id, call.block if call else None)
            child_id = child_session_id(self._root_id, agent_id) if agent_id else None
            result = results.with_child(found, child_id)
            update = results.finished(call.block if call else None, result, self.cwd)
            terminal = terminals.finished(call.block if call else None, result)
            if call is not None and (task_id := launched_task(found)):
                self._background[found.tool_call_id] = call
                call.task_id = task_id
                if call.terminal is None:
                    update["status"] = "in_progress"
                elif output := self._children.output(task_id, found):
                    terminal = {**call.terminal, **output}
            if call is None or call.sent:
                self._add(update, terminal)
            else:
                call.update.update(update)
                if call.terminal is not None:
                    call.terminal.update(terminal or {})
                call.done = True
            if call:
                # In the order of the results, which is that of the changes; calls keep the order in which they came.
                for plan in self._plans.finished(self._session_id, call.block, result, update["status"]):
                    self._add(plan)

    def _task_ended(self, text: str) -> None:
        """What a call left in the background is over: the queue tells it as soon as it happens (measured)."""
        end = notification(text)
        call = self._background.pop(end.call_id, None) if end else None
        if end is None or call is None:
            return
        update = call_ended(call.block, end.call_id, end)
        if call.sent:
            self._add(update)
        else:
            (call.update if call.terminal is None else call.terminal).update(update)

    def _child(self, agent_id: str, call: Json | None) -> Iterator[HistoryEntry]:
        """A child's history comes before the call that refers to it, and is too much to hold back."""
        if not self._children.is_given(agent_id):
            yield from self.settle()
            yield from self._children.entries(agent_id, self._session_id, call)

    def _release(self) -> Iterator[HistoryEntry]:
        """Give what waits up to the first call without a result; all of it when too much waits."""
        if len(self._held) > _HELD:
            yield from self.settle()
            return
        ready = 0
        for entry in self._held:
            if isinstance(entry, _Call) and not entry.done:
                break
            ready += 1
        if ready:
            released, self._held = self._held[:ready], self._held[ready:]
            yield from self._give(released)

    def _give(self, entries: list[HistoryEntry | _Call]) -> Iterator[HistoryEntry]:
        for entry in entries:
            if isinstance(entry, _Call):
                entry.sent = True
                if entry.terminal is not None:
                    yield HistoryUpdate(self._session_id, entry.terminal)
                yield HistoryUpdate(self._session_id, entry.update)
            else:
                yield entry

    # Users

    def _user(self, row: Row) -> Iterator[HistoryEntry]:
        kind = classify(row)
        if kind is RowKind.TOOL_RESULT:
            yield from self._tool_results(row)
            return
        if kind is RowKind.COMPACT_SUMMARY and self._compaction:
            self._add(compaction(self._compaction, row_text(row)))
            self._compaction = None
        if kind is RowKind.TASK_NOTIFICATION and self._background:
            self._task_ended(row_text(row))
        content: list[Block] | None = None
        if kind is RowKind.PROMPT:
            verbatim = row.get("promptSource") is not None
            content = stored_content(as_mapping(row.get("message")).get("content"), verbatim=verbatim)
        elif kind is RowKind.COMMAND and _is_invocation(row):
            line = harness.command_line(row_text(row))
            content = [text_block(line)] if line else None
        yield from self._turn(row_message_ids(row), content)

    def _folded(self, row: Row) -> Iterator[HistoryEntry]:
        attachment = as_mapping(row.get("attachment"))
        content: list[Block] | None = None
        if attachment.get("commandMode", "prompt") == "prompt":
            content = stored_content(attachment.get("prompt"))
        yield from self._turn(row_message_ids(row), content)

    def _turn(self, ids: tuple[str, ...], content: list[Block] | None) -> Iterator[HistoryEntry]:
        """A stored user message; the first of several with one id counts. Without content it is not shown."""
        if not ids or ids[0] in self._seen:
            return
        self._seen.update(ids)
        update: Block | None = None
        if content:
            yield from self.settle()
            if not self._prompted:
                self._prompted = True
                ids = (subagents.prompt_id(self._session_id), *ids)
            shown_id = as_text(ids[0])  # an id of others may be none that can go on the wire
            if shown_id != ids[0]:
                ids = (shown_id, *ids)
            update = {"sessionUpdate": "user_message", "messageId": shown_id, "content": content}
        self._held.append(UserTurn(self._session_id, ids, update))

    # The rest

    def _system(self, row: Row) -> Iterator[HistoryEntry]:
        subtype = row.get("subtype")
        if subtype == "compact_boundary":
            compaction_id = as_text(row.get("uuid"))
            if compaction_id and compaction_id not in self._seen:
                self._seen.add(compaction_id)
                yield from self.settle()
                self._compaction = compaction_id
        elif subtype == "local_command":
            text, message_id = as_text(row.get("content")), as_text(row.get("uuid"))
            if isinstance(row.get("submitUuid"), str):
                yield from self._turn(row_message_ids(row), [text_block(text)] if text else None)
                return
            output = harness.command_output(text)
            if output and message_id:
                self._flush_message()
                self._add({"sessionUpdate": "agent_message", "messageId": message_id, "content": [text_block(output)]})

    def _finish_compaction(self) -> None:
        """A compaction whose summary did not follow its boundary."""
        if self._compaction:
            self._add(compaction(self._compaction, None))
            self._compaction = None

    def _add(self, update: Block, terminal: Block | None = None) -> None:
        if terminal is not None:
            self._held.append(HistoryUpdate(self._session_id, terminal))
        self._held.append(HistoryUpdate(self._session_id, update))


def _launched(result: results.ToolResult) -> str | None:
    """The agent that a result names, when no meta file says which call started it."""
    structured = as_mapping(result.structured)
    return (as_text(structured.get("agentId")) or None) if structured.get("status") else None


def _is_invocation(row: Row) -> bool:
    # A change of the model by a control request is stored as a command that nobody submitted (measured).
    return row.get("turnAttributionKey") is not None or ("turnAttributionKey" not in row and "rowSource" not in row)
