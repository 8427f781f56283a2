"""A session's events as lines for a terminal. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sayagain.chat.facts import Facts
from sayagain.chat.spans import Span, clean, excerpt
from sayagain.chat.tools import MARKS, Tools, first_lines
from sayagain.client import Disconnected, Event, Moved, Reconnected, Update
from sayagain.protocol.loose import Json, as_list, as_mapping, as_text

__all__ = ["Renderer"]

_NAME: Final = 40
"""Characters of a subagent's title that stand before each of its lines."""

_PLAN_LINES: Final = 40
_SUMMARY_LINES: Final = 10


class Renderer:
    """Turns events into spans; what they hold of line ends is all there is to print.

    Lines of child sessions begin with the child's title in brackets.
    """

    def __init__(self) -> None:
        self.facts = Facts()
        self._typed: list[str] = []
        self._working: set[str] = set()
        """Sessions whose work was seen: a snapshot after a resume tells of work that ended before."""
        self._lost = False
        """The agent was lost, and nothing is known yet of the session's work."""
        self.failed = False
        """Whether the session's last work failed, or was lost with the agent."""
        self._shown: dict[str, str] = {}
        """By message, the text that was printed already: a full message after its chunks adds only what is new."""
        self._tools = Tools()
        self._plans: dict[str, list[Span]] = {}
        self._growing: tuple[str, Json] | None = None
        """The prefix and the plan of the last update: it is printed when another kind follows, since it may grow."""
        self._compactions: dict[str, str] = {}
        """The status that was told of each compaction."""
        self._summaries: dict[str, str] = {}
        self._children: dict[str, str] = {}
        """Titles by child session."""
        self._strange: set[str] = set()
        self._open: str | None = None
        """The message whose text stands unfinished on the last line."""

    def typed(self, text: str) -> None:
        """The user has just typed this: it stands on the screen, and is not shown again when it is inserted."""
        self._typed.append(text)

    def take(self, event: Event) -> Iterator[Span]:
        """What to print for an event."""
        if not (isinstance(event, Update) and event.update.get("sessionUpdate") == "plan_update"):
            yield from self._grown()
        match event:
            case Update(session_id, update):
                yield from self._update(session_id, update)
            case Disconnected():
                self._lost = True
                yield from self.note("The agent was lost.")
            case Reconnected():
                yield from self.note("The agent is back; what was not confirmed is sent again.")
            case Moved(_, session_id, keys):
                count = f"; {len(keys)} unconfirmed prompts go there" if keys else ""
                yield from self.note(f"Nothing of the session was stored: it is {session_id} now{count}.")

    def end_line(self) -> Iterator[Span]:
        """Finish what stands open, a message or a plan."""
        yield from self._grown()
        if self._open is not None:
            self._open = None
            yield "", "\n"

    def note(self, text: str, style: str = "note") -> Iterator[Span]:
        """A line of the client's own."""
        yield from self.end_line()
        yield style, clean(text)
        yield "", "\n"

    def _update(self, session_id: str, update: Json) -> Iterator[Span]:
        prefix = self._prefix(session_id)
        if session_id not in self._children:
            for fact in self.facts.take(update):
                yield from self.note(fact)
        match kind := as_text(update.get("sessionUpdate")):
            case "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk":
                text = _text([update.get("content")])
                yield from self._chunk(prefix, kind.removesuffix("_chunk"), as_text(update.get("messageId")), text)
            case "agent_message" | "agent_thought" | "user_message":
                yield from self._message(prefix, kind, update)
            case "session_message" | "session_message_chunk":
                yield from self._between(prefix, update)
            case "tool_call_update" | "tool_call_content_chunk" | "terminal_update" | "terminal_output_chunk":
                yield from self._lines(prefix, self._tools.take(update))
            case "notice":
                yield from self._lines(prefix, _notice(update))
            case "subagent_update":
                yield from self._child(prefix, update)
            case "plan_update":
                plan = as_mapping(update.get("plan"))
                if self._growing is not None and self._growing[1].get("planId") != plan.get("planId"):
                    yield from self._grown()
                self._growing = (prefix, plan)
            case "plan_removed":
                self._plans.pop(as_text(update.get("planId")), None)
                yield from self._lines(prefix, [("note", "The plan was dropped.")])
            case "compaction_update" | "compaction_summary_chunk":
                yield from self._lines(prefix, self._compaction(update))
            case "replay_complete":
                if not prefix:
                    yield from self.note("That is the history.")
            case "state_update":
                yield from self._state(session_id, prefix, update)
            case "session_info_update" | "usage_update" | "available_commands_update" | "config_option_update":
                pass  # facts: what a user should hear of is said above
            case _ if kind not in self._strange:
                self._strange.add(kind)
                yield from self._lines(prefix, [("note", f"(an update of an unknown kind: {excerpt(kind)})")])
            case _:
                pass

    # Messages.

    def _chunk(self, prefix: str, kind: str, message_id: str, text: str) -> Iterator[Span]:
        if kind == "user_message" and not prefix and text in self._typed:
            self._typed.remove(text)
            self._shown[message_id] = text
            return
        if self._open != message_id:
            yield from self.end_line()
            self._open = message_id
            if prefix:
                yield "tool", prefix
            if kind == "user_message":
                yield "user", "> "
        self._shown[message_id] = self._shown.get(message_id, "") + text
        yield {"user_message": "user", "agent_thought": "thought"}.get(kind, ""), clean(text)

    def _message(self, prefix: str, kind: str, update: Json) -> Iterator[Span]:
        content = update.get("content")
        if not isinstance(content, list):
            return
        message_id, text = as_text(update.get("messageId")), _text(as_list(update["content"]))
        shown = self._shown.get(message_id, "")
        if text.startswith(shown):
            if text != shown:
                yield from self._chunk(prefix, kind, message_id, text[len(shown) :])
        else:
            yield from self.end_line()
            self._shown[message_id] = ""
            yield from self._chunk(prefix, kind, message_id, text)
        yield from self.end_line()

    def _between(self, prefix: str, update: Json) -> Iterator[Span]:
        """A message from one session to another."""
        message_id = as_text(update.get("messageId"))
        names = [self._name(as_text(update.get(key))) for key in ("senderSessionId", "recipientSessionId")]
        if any(names) and f"between {message_id}" not in self._shown:
            self._shown[f"between {message_id}"] = ""
            yield from self._lines(prefix, [("tool", f"✉ {names[0] or 'here'} → {names[1] or 'here'}")])
        if update.get("sessionUpdate") == "session_message":
            yield from self._message(prefix, "session_message", update)
        else:
            yield from self._chunk(prefix, "session_message", message_id, _text([update.get("content")]))

    # Work.

    def _child(self, prefix: str, update: Json) -> Iterator[Span]:
        child, title = as_text(update.get("sessionId")), as_text(update.get("title"))
        before = self._children.get(child)
        self._children[child] = title or before or ""
        if (title and title != before) or before is None:
            description = as_text(update.get("description"))
            named = f"↳ subagent: {title or child}" + (f" ({description})" if description else "")
            yield from self._lines(prefix, [("tool", named)])
        if state := as_mapping(update.get("state")):
            # The same as the child's own state, which may not be sent.
            yield from self._state(child, self._prefix(child), state)

    def _grown(self) -> Iterator[Span]:
        if self._growing is not None:
            (prefix, plan), self._growing = self._growing, None
            yield from self._lines(prefix, self._plan(plan))

    def _plan(self, plan: Json) -> Iterator[Span]:
        plan_id = as_text(plan.get("planId"))
        lines: list[Span]
        match plan.get("type"):
            case "markdown":
                lines = list(first_lines(as_text(plan.get("content")), _PLAN_LINES))
            case "file":
                lines = [("tool", f"Plan: {as_text(plan.get('uri'))}")]
            case _:
                entries = [as_mapping(entry) for entry in as_list(plan.get("entries"))]
                lines = [
                    ("tool", f"  {MARKS.get(as_text(each.get('status')), '·')} {as_text(each.get('content'))}")
                    for each in entries
                    if each.get("content")
                ]
        # A plan is sent whole each time (UPD-10): only what is new in it is worth a line.
        before = self._plans.get(plan_id, [])
        self._plans[plan_id] = lines
        yield from (line for line in lines if line not in before)

    def _compaction(self, update: Json) -> Iterator[Span]:
        compaction = as_text(update.get("compactionId"))
        if update.get("sessionUpdate") == "compaction_summary_chunk":
            self._summaries[compaction] = self._summaries.get(compaction, "") + _text([update.get("content")])
            return
        if isinstance(update.get("summary"), list):
            self._summaries[compaction] = _text(as_list(update["summary"]))
        status = as_text(update.get("status")) or self._compactions.get(compaction, "")
        if status != self._compactions.get(compaction):
            self._compactions[compaction] = status
            reason = as_text(update.get("error"))
            match status:
                case "in_progress":
                    yield "note", "The context is being compacted…"
                case "completed":
                    yield "note", "The context was compacted."
                case _:
                    yield "error", f"The compaction {status or 'has no status'}" + (f": {reason}" if reason else "")
        if status == "completed":
            yield from first_lines(self._summaries.pop(compaction, ""), _SUMMARY_LINES)

    def _state(self, session_id: str, prefix: str, update: Json) -> Iterator[Span]:
        state = update.get("state")
        lost = self._lost and not prefix
        if not prefix:
            self._lost = False
        if state in ("running", "requires_action"):
            self._working.add(session_id)
        if state != "idle":
            return
        if not prefix:
            yield from self.end_line()
        if session_id not in self._working:
            return
        self._working.discard(session_id)
        reason = as_text(update.get("stopReason"))
        if not prefix:
            self.failed = reason == "error" or (lost and not reason)
        if lost and not reason:
            yield from self.note("The work that was under way ended with it.", "error")
        elif reason == "error":
            message = as_text(as_mapping(update.get("error")).get("message"))
            yield from self._lines(prefix, [("error", f"The work failed: {message or 'no reason was given'}")])
        elif reason not in ("", "end_turn"):
            yield from self._lines(prefix, [("note", f"({reason.replace('_', ' ')})")])

    def _lines(self, prefix: str, lines: Iterator[Span] | list[Span]) -> Iterator[Span]:
        for style, text in lines:
            yield from self.note(prefix + text, style)

    def _name(self, session_id: str) -> str:
        return excerpt(self._children.get(session_id) or session_id, _NAME)

    def _prefix(self, session_id: str) -> str:
        return f"[{self._name(session_id)}] " if session_id in self._children else ""


def _notice(update: Json) -> Iterator[Span]:
    severity, description = as_text(update.get("severity")), as_text(update.get("description"))
    title = as_text(update.get("title"))
    style = "error" if severity == "error" else "note"
    if title:
        yield style, f"Warning: {title}" if severity == "warning" else title
    if description:
        yield style, f"  {description}"


def _text(blocks: object) -> str:
    parts: list[str] = []
    for block in map(as_mapping, as_list(blocks)):
        text, kind = block.get("text"), as_text(block.get("type"))
        if isinstance(text, str):
            parts.append(as_text(text))
        elif kind == "resource":
            resource = as_mapping(block.get("resource"))
            parts.append(f"[{as_text(resource.get('uri')) or kind}]")
        elif kind:
            parts.append(f"[{as_text(block.get('name')) or as_text(block.get('mimeType')) or kind}]")
    return "".join(parts)
