"""A session's events as lines for a terminal. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from sayagain.client import Event, Moved, Reconnected, Update

__all__ = ["Renderer", "Span", "clean"]

Span: TypeAlias = tuple[str, str]
"""A style (``""``, ``user``, ``thought``, ``tool``, ``note``, ``error``) and a text in it."""

_MARKS: Final = {"completed": "✓", "failed": "✗", "cancelled": "⊘", "in_progress": "…", "pending": "…"}

_FINAL: Final = frozenset({"completed", "failed", "cancelled"})


def clean(text: str) -> str:
    """Without what a terminal would obey: an agent's text is not trusted to move the cursor, or to reverse a line."""
    return "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t":
        return char
    # Parts of line ends, and of emoji.
    return "" if char in "\r\u200d" else "\N{REPLACEMENT CHARACTER}"


class Renderer:
    """Turns events into spans; what they hold of line ends is all there is to print."""

    def __init__(self) -> None:
        self._typed: list[str] = []
        self._working = False
        self._shown: dict[str, str] = {}
        """By message, the text that was printed already: a full message after its chunks adds only what is new."""
        self._tools: dict[str, tuple[str, str]] = {}
        self._open: str | None = None
        """The message whose text stands unfinished on the last line."""

    def typed(self, text: str) -> None:
        """The user has just typed this: it stands on the screen, and is not shown again when it is inserted."""
        self._typed.append(text)

    def take(self, event: Event) -> Iterator[Span]:
        """What to print for an event."""
        match event:
            case Update(session_id, update):
                yield from self._update(session_id, update)
            case Reconnected():
                yield from self._line("note", "The agent was lost and is back; what was not confirmed is sent again.")
            case Moved(_, session_id, keys):
                count = f"; {len(keys)} unconfirmed prompts go there" if keys else ""
                yield from self._line("note", f"Nothing of the session was stored: it is {session_id} now{count}.")

    def end_line(self) -> Iterator[Span]:
        """Finish the message that stands open."""
        if self._open is not None:
            self._open = None
            yield "", "\n"

    def note(self, text: str, style: str = "note") -> Iterator[Span]:
        """A line of the client's own."""
        yield from self._line(style, text)

    def _update(self, session_id: str, update: Mapping[str, Any]) -> Iterator[Span]:
        kind = update.get("sessionUpdate")
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk":
                yield from self._chunk(str(kind).removesuffix("_chunk"), update, _text([update.get("content")]))
            case "agent_message" | "agent_thought" | "user_message":
                yield from self._message(str(kind), update)
            case "tool_call_update":
                yield from self._tool(update)
            case "notice":
                severity = "error" if update.get("severity") == "error" else "note"
                yield from self._line(severity, str(update.get("message") or update.get("text") or update.get("title")))
            case "subagent_update" if isinstance(update.get("title"), str):
                yield from self._line("tool", f"↳ subagent: {update['title']}")
            case "plan_update":
                yield from self._plan(update)
            case "state_update" if update.get("state") == "idle":
                yield from self._idle(update)
            case "state_update":
                self._working = True
            case _:
                pass

    def _chunk(self, kind: str, update: Mapping[str, Any], text: str) -> Iterator[Span]:
        message_id = str(update.get("messageId"))
        if kind == "user_message" and text in self._typed:
            self._typed.remove(text)
            self._shown[message_id] = text
            return
        if self._open != message_id:
            yield from self.end_line()
            self._open = message_id
            if kind == "user_message":
                yield "user", "> "
        self._shown[message_id] = self._shown.get(message_id, "") + text
        yield _style(kind), clean(text)

    def _message(self, kind: str, update: Mapping[str, Any]) -> Iterator[Span]:
        content = update.get("content")
        if not isinstance(content, list):
            return
        message_id, text = str(update.get("messageId")), _text(cast("list[Any]", content))
        shown = self._shown.get(message_id, "")
        if text.startswith(shown):
            if text != shown:
                yield from self._chunk(kind, update, text[len(shown) :])
        else:
            yield from self.end_line()
            self._shown[message_id] = ""
            yield from self._chunk(kind, update, text)
        yield from self.end_line()

    def _tool(self, update: Mapping[str, Any]) -> Iterator[Span]:
        call = str(update.get("toolCallId"))
        title, status = self._tools.get(call, ("", ""))
        new_title, new_status = update.get("title"), update.get("status")
        title = new_title if isinstance(new_title, str) else title
        changed = isinstance(new_status, str) and new_status != status
        status = new_status if isinstance(new_status, str) else status
        begins = call not in self._tools
        self._tools[call] = (title, status)
        if title and (begins or (changed and status in _FINAL)):
            style = "error" if status == "failed" else "tool"
            yield from self._line(style, f"{_MARKS.get(status, '·')} {title}")

    def _plan(self, update: Mapping[str, Any]) -> Iterator[Span]:
        plan = update.get("plan")
        entries: object = cast("Mapping[str, Any]", plan).get("entries") if isinstance(plan, dict) else None
        if isinstance(entries, list):
            for entry in cast("list[Any]", entries):
                if isinstance(entry, dict):
                    item = cast("dict[str, Any]", entry)
                    mark = _MARKS.get(str(item.get("status")), "·")
                    yield from self._line("tool", f"  {mark} {item.get('content')}")

    def _idle(self, update: Mapping[str, Any]) -> Iterator[Span]:
        yield from self.end_line()
        # A snapshot after a resume tells of work that ended before.
        if not self._working:
            return
        self._working = False
        reason, error = update.get("stopReason"), update.get("error")
        if reason == "error":
            message: object = cast("Mapping[str, Any]", error).get("message") if isinstance(error, dict) else None
            yield from self._line("error", f"The work failed: {message or 'no reason was given'}")
        elif isinstance(reason, str) and reason != "end_turn":
            yield from self._line("note", f"({reason.replace('_', ' ')})")

    def _line(self, style: str, text: str) -> Iterator[Span]:
        yield from self.end_line()
        yield style, clean(text)
        yield "", "\n"


def _style(kind: str) -> str:
    return {"user_message": "user", "agent_thought": "thought"}.get(kind, "")


def _text(blocks: Sequence[Any]) -> str:
    parts: list[str] = []
    for block in blocks:
        if isinstance(block, dict):
            item = cast("dict[str, Any]", block)
            text = item.get("text")
            parts.append(text if isinstance(text, str) else f"[{item.get('name') or item.get('type')}]")
    return "".join(parts)
