"""Live frames of one session as runtime events.

Pure: a frame in, events out, no I/O and no clock. The state is what open blocks, open tool calls and known children
need; a finished message or call leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sayagain.identity import child_session_id
from sayagain.runtime.events import ChildAnnounced, Foreground, RuntimeEvent, Update
from sayagain_claude.transcripts.row import RowKind, classify
from sayagain_claude.translate import results, subagents, terminals, tools
from sayagain_claude.translate.background import Tasks
from sayagain_claude.translate.blocks import (
    Block,
    Json,
    as_list,
    as_mapping,
    as_text,
    plain_text,
    text_block,
)
from sayagain_claude.translate.compactions import compaction
from sayagain_claude.translate.messages import TEXT_KINDS, api_message_id, block_text, is_synthetic
from sayagain_claude.translate.notices import Notices
from sayagain_claude.translate.plans import Plans
from sayagain_claude.translate.streams import MessageStream
from sayagain_claude.translate.usage import UsageMeter

__all__ = ["LiveTranslator"]

_INTERACTIVE: Final = frozenset({"AskUserQuestion", "ExitPlanMode"})
"""Tools that wait for the user in every permission mode (``requires_user_interaction``)."""


@dataclass(slots=True)
class _Call:
    session_id: str
    block: Json
    running: bool = False


@dataclass(slots=True)
class _Child:
    session_id: str
    parent_id: str
    running: bool = True
    prompted: bool = False


class LiveTranslator:
    """Turns the frames of one CLI process into events of the session and its children.

    Fed with every stdout frame except control traffic and ``transcript_mirror``. The root's own state, insertions and
    rejections are not its business: ``Foreground`` comes for children only.
    """

    def __init__(self, session_id: str, cwd: str) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self._streams: dict[str, MessageStream] = {session_id: MessageStream()}
        self._calls: dict[tuple[str, str], _Call] = {}
        self._children: dict[str, _Child] = {}
        self._child_of_call: dict[str, str] = {}
        self.tasks = Tasks(session_id, cwd)
        self._compaction: str | None = None
        self._unasked = False
        self._usage = UsageMeter()
        self._notices = Notices()
        self._plans = Plans()

    def frame(self, frame: Mapping[str, Any]) -> list[RuntimeEvent]:
        """The events of one frame, in order. Frames of unknown types and malformed ones give none."""
        match frame.get("type"):
            case "stream_event":
                return self._stream_event(frame)
            case "assistant":
                return self._assistant(frame)
            case "user":
                return self._user(frame)
            case "system":
                return self._system(frame)
            case "result":
                return self._result(frame)
            case "rate_limit_event":
                return self._updates(self._session_id, self._notices.rate_limit(frame))
            case "tool_progress":
                return self._running(as_text(frame.get("tool_use_id")))
            case _:
                return []

    def permitted(self, tool_call_id: str) -> list[RuntimeEvent]:
        """The user allowed the call: it runs now. To be called when the control response was written."""
        return self._running(tool_call_id)

    def session_of(self, agent_id: str | None) -> str:
        """The session of an ``agent_id``, as permission requests carry it; the root's for ``None``."""
        child = self._children.get(agent_id) if agent_id else None
        return child.session_id if child else self._session_id

    def tool_use(self, tool_call_id: str) -> Json | None:
        """The ``tool_use`` block of a call that has no result yet: a permission request may lack its input."""
        call = self._find(tool_call_id)
        return call.block if call else None

    def close_calls(self, status: str) -> list[RuntimeEvent]:
        """End every call that has no result, children's too, and every child: the process is gone.

        ``status`` is ``failed`` or ``cancelled``.
        """
        self._streams = {self._session_id: MessageStream()}
        self._compaction = None
        events = self.tasks.close(status) + self._close_calls(None, status)
        for agent_id in list(self._children):
            events += self._child_ended(agent_id, "killed" if status == "cancelled" else "failed", None)
        return events

    # Messages

    def _stream_event(self, frame: Json) -> list[RuntimeEvent]:
        event = as_mapping(frame.get("event"))
        stream = self._streams[self._session_id]
        match event.get("type"):
            case "content_block_delta":
                return self._update(self._session_id, stream.delta(as_mapping(event.get("delta"))))
            case "content_block_start":
                block = as_mapping(event.get("content_block"))
                chunk = stream.block_started(block)
                return self._update(self._session_id, chunk) if chunk else self._opened(stream, block)
            case "content_block_stop":
                stream.block_stopped()
            case "message_start":
                message = as_mapping(event.get("message"))
                stream.message(as_text(message.get("id")))
                self._usage.message_started(message)
            case "message_delta":
                return self._update(self._session_id, self._usage.message_ended(as_mapping(event.get("usage"))))
            case _:
                pass
        return []

    def _opened(self, stream: MessageStream, block: Json) -> list[RuntimeEvent]:
        kind = as_text(block.get("type"))
        if kind in TEXT_KINDS or kind == "redacted_thinking":
            return []
        stream.runs.separate()
        call_id = as_text(block.get("id"))
        if kind != "tool_use" or not call_id:
            return []
        self._calls[self._session_id, call_id] = _Call(self._session_id, block)
        return [Update(self._session_id, tools.opened(call_id, as_text(block.get("name"))))]

    def _assistant(self, frame: Json) -> list[RuntimeEvent]:
        message = as_mapping(frame.get("message"))
        events, session_id = self._owner(frame)
        stream = self._streams.setdefault(session_id, MessageStream())
        stream.message(api_message_id(message, frame.get("uuid")))
        synthetic = is_synthetic(message)
        for block in map(as_mapping, as_list(message.get("content"))):
            kind = as_text(block.get("type"))
            if kind == "tool_use":
                events += self._tool_use(session_id, stream, block)
            elif kind in TEXT_KINDS:
                text = block_text(block, synthetic=synthetic)
                events += self._update(session_id, stream.whole(TEXT_KINDS[kind], text))
            elif kind != "redacted_thinking":
                stream.runs.separate()
        return events

    # Tool calls

    def _tool_use(self, session_id: str, stream: MessageStream, block: Json) -> list[RuntimeEvent]:
        call_id = as_text(block.get("id"))
        if not call_id:
            return []
        known = self._calls.get((session_id, call_id))
        update = tools.started(block, self._cwd)
        if known is None:
            stream.runs.separate()
            update["status"] = "pending"
        call = _Call(session_id, block)
        if self._unasked and as_text(block.get("name")) not in _INTERACTIVE:
            # Nothing is asked in this mode: what is complete runs.
            call.running = True
            update["status"] = "in_progress"
        self._calls[session_id, call_id] = call
        return [*self._update(session_id, terminals.opened(block, self._cwd)), Update(session_id, update)]

    def _find(self, call_id: str) -> _Call | None:
        """The open call with this id, where a frame does not say whose it is; the model's ids are unique."""
        owners = (self._session_id, *(child.session_id for child in self._children.values()))
        return next((call for owner in owners if (call := self._calls.get((owner, call_id)))), None)

    def _running(self, call_id: str, child_id: str | None = None) -> list[RuntimeEvent]:
        call = self._find(call_id)
        if call is None or (call.running and child_id is None):
            return []
        update: Block = {"sessionUpdate": "tool_call_update", "toolCallId": call_id}
        if not call.running:
            update["status"] = "in_progress"
            call.running = True
        if child_id is not None:
            update["content"] = [subagents.session_reference(child_id)]
        return [Update(call.session_id, update)]

    def _tool_results(self, session_id: str, frame: Json) -> list[RuntimeEvent]:
        events: list[RuntimeEvent] = []
        for found in results.tool_results(frame):
            call = self._calls.pop((session_id, found.tool_call_id), None)
            block = call.block if call else None
            result = results.with_child(found, self._child_of_call.get(found.tool_call_id))
            update = results.finished(block, result, self._cwd)
            events += self._update(session_id, terminals.finished(block, result))
            if not self.tasks.goes_on(found):
                events += self.tasks.call_over(found.tool_call_id)
            elif not terminals.is_shell(block):
                update["status"] = "in_progress"
            events.append(Update(session_id, update))
            if block is not None:
                events += self._updates(session_id, self._plans.finished(session_id, block, result, update["status"]))
        return events

    def _close_calls(self, session_id: str | None, status: str) -> list[RuntimeEvent]:
        events: list[RuntimeEvent] = []
        for owner, call_id in list(self._calls):
            if session_id is None or owner == session_id:
                call = self._calls.pop((owner, call_id))
                if terminals.is_shell(call.block):
                    events.append(Update(owner, terminals.stopped(call_id)))
                update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
                events.append(Update(owner, update))
        return events

    # Users

    def _user(self, frame: Json) -> list[RuntimeEvent]:
        if frame.get("isReplay") is True:
            return []  # the root's own prompts: reported when they are stored, by the session
        events, session_id = self._owner(frame)
        kind = classify(frame)
        if kind is RowKind.TOOL_RESULT:
            return events + self._tool_results(session_id, frame)
        text = plain_text(as_mapping(frame.get("message")).get("content"))
        if session_id == self._session_id:
            compaction_id, self._compaction = self._compaction, None
            if compaction_id and frame.get("isSynthetic") is True:
                events.append(Update(session_id, compaction(compaction_id, text)))
            return events
        child = next((child for child in self._children.values() if child.session_id == session_id), None)
        if child and kind is RowKind.PROMPT and frame.get("isSynthetic") is not True and text.strip():
            if child.prompted:
                if child.session_id not in self._streams:
                    # Before the child's first answer it can only be its task, reported when the task started.
                    return events
                message_id = as_text(frame.get("uuid"))
                update: Block = {
                    "sessionUpdate": "user_message",
                    "messageId": message_id,
                    "content": [text_block(text)],
                }
                events.append(Update(session_id, update))
            else:
                child.prompted = True
                events.append(Update(session_id, subagents.prompt_message(session_id, text)))
        return events

    # Children

    def _owner(self, frame: Json) -> tuple[list[RuntimeEvent], str]:
        """The session that a frame belongs to, and its announcement when it was not announced yet."""
        agent_id = as_text(frame.get("agent_id"))
        parent_call = as_text(frame.get("parent_tool_use_id"))
        if not agent_id:
            return [], self._child_of_call.get(parent_call, self._session_id)
        child = self._children.get(agent_id)
        if child:
            return [], child.session_id
        call = self._find(parent_call)
        parent_id = call.session_id if call else self._session_id
        title = as_text(frame.get("task_description"))
        events = self._announce(agent_id, parent_id, parent_call, title, as_text(frame.get("subagent_type")))
        return events, self._children[agent_id].session_id

    def _announce(
        self, agent_id: str, parent_id: str, call_id: str, title: str, description: str
    ) -> list[RuntimeEvent]:
        child_id = child_session_id(self._session_id, agent_id)
        self._children[agent_id] = _Child(child_id, parent_id)
        update = subagents.announcement(child_id, title, description, {"state": "running"})
        events: list[RuntimeEvent] = [ChildAnnounced(parent_id, child_id, update), Foreground(child_id, "running")]
        if call_id:
            self._child_of_call[call_id] = child_id
            events += self._running(call_id, child_id)
        return events

    def _task_started(self, frame: Json) -> list[RuntimeEvent]:
        agent_id, call_id = as_text(frame.get("task_id")), as_text(frame.get("tool_use_id"))
        if frame.get("task_type") != "local_agent" or not agent_id:
            return self._running(call_id) + self._task(frame)
        child = self._children.get(agent_id)
        if child is None:
            parent_id = self.session_of(as_text(frame.get("parent_task_id")) or None)
            title, kind = as_text(frame.get("description")), as_text(frame.get("subagent_type"))
            events = self._announce(agent_id, parent_id, call_id, title, kind)
            child = self._children[agent_id]
        elif not child.running:
            child.running = True
            return [Foreground(child.session_id, "running"), *self._task(frame)]
        else:
            events = []
        prompt = as_text(frame.get("prompt"))
        if prompt.strip() and not child.prompted:
            child.prompted = True
            events.append(Update(child.session_id, subagents.prompt_message(child.session_id, prompt)))
        return events + self._task(frame)

    def _task(self, frame: Json) -> list[RuntimeEvent]:
        call, child = self._find(as_text(frame.get("tool_use_id"))), self._children.get(as_text(frame.get("task_id")))
        owner = call.session_id if call else child.parent_id if child else self._session_id
        return self.tasks.started(frame, owner, call.block if call else None, child.session_id if child else None)

    def _child_ended(self, agent_id: str, status: str, error: str | None) -> list[RuntimeEvent]:
        child = self._children.get(agent_id)
        reason = subagents.STOP_REASONS.get(status)
        if child is None or reason is None or not child.running:
            return []
        child.running = False
        self._streams.pop(child.session_id, None)
        events = self._close_calls(child.session_id, "failed" if reason == "error" else "cancelled")
        fault = {"code": -32603, "message": error or "The subagent failed"} if reason == "error" else None
        events.append(Foreground(child.session_id, "idle", stop_reason=reason, error=fault))
        return events

    # The session

    def _system(self, frame: Json) -> list[RuntimeEvent]:
        subtype = as_text(frame.get("subtype"))
        mode = frame.get("permissionMode")
        if isinstance(mode, str) and subtype in ("init", "status"):
            self._unasked = mode == "bypassPermissions"
        match subtype:
            case "task_started":
                return self._task_started(frame)
            case "task_updated":
                patch = as_mapping(frame.get("patch"))
                return self._child_ended(
                    as_text(frame.get("task_id")), as_text(patch.get("status")), as_text(patch.get("error"))
                )
            case "task_notification":
                ended = self._child_ended(as_text(frame.get("task_id")), as_text(frame.get("status")), None)
                return ended + self.tasks.notified(frame)
            case "background_tasks_changed":
                return self.tasks.changed(frame)
            case "session_title_changed":
                title = as_text(frame.get("title"))
                return self._update(self._session_id, {"sessionUpdate": "session_info_update", "title": title or None})
            case "compact_boundary":
                return self._compacted(frame)
            case _:
                return self._updates(self._session_id, self._notices.system(subtype, frame))

    def _compacted(self, frame: Json) -> list[RuntimeEvent]:
        compaction_id = as_text(frame.get("uuid"))
        if not compaction_id:
            return []
        self._compaction = compaction_id
        usage = self._usage.compacted(as_mapping(frame.get("compact_metadata")))
        return self._update(self._session_id, compaction(compaction_id, None)) + self._update(self._session_id, usage)

    def _result(self, frame: Json) -> list[RuntimeEvent]:
        # A turn leaves no call of its own open; one that streamed when it was interrupted never gets a result.
        aborted = as_text(frame.get("terminal_reason")).startswith("aborted")
        events = self._close_calls(self._session_id, "cancelled" if aborted else "failed")
        self._streams[self._session_id].turn_ended()
        return events + self._update(self._session_id, self._usage.turn_ended(frame))

    def _update(self, session_id: str, update: Block | None) -> list[RuntimeEvent]:
        return [] if update is None else [Update(session_id, update)]

    def _updates(self, session_id: str, updates: list[Block]) -> list[RuntimeEvent]:
        return [Update(session_id, update) for update in updates]
