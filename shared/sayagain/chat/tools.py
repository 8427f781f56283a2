"""Tool calls with their diffs and terminals, as lines. No I/O."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator, Mapping
from typing import Final, cast

from sayagain.chat.spans import Span, plain
from sayagain.protocol.loose import Json, as_list, as_mapping, as_text

__all__ = ["MARKS", "Tools", "first_lines"]

MARKS: Final = {
    "pending": "…",
    "in_progress": "…",
    "paused": "‖",
    "completed": "✓",
    "failed": "✗",
    "cancelled": "⊘",
}

_FINAL: Final = frozenset({"completed", "failed", "cancelled"})

_DIFF_LINES: Final = 40
_TEXT_LINES: Final = 10
_TERMINAL_LINES: Final = 20
"""What is longer is cut: the chat is for looking over an agent's shoulder, the whole is the agent's to keep."""

_COMPARED: Final = 1 << 20
"""Bytes of a terminal that are kept to find out what of a snapshot is new."""


class Tools:
    """What was shown of each tool call and terminal; lines are styles and texts without line ends."""

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}
        self._terminals: dict[str, _Terminal] = {}

    def take(self, update: Json) -> Iterator[Span]:
        """What a ``tool_call_update``, ``tool_call_content_chunk``, ``terminal_update`` or ``…_chunk`` adds."""
        match update.get("sessionUpdate"):
            case "tool_call_update":
                yield from self._tool(update).change(update)
            case "tool_call_content_chunk":
                yield from self._tool(update).add(as_mapping(update.get("content")))
            case "terminal_update":
                yield from self._terminal(update).change(update, [tool.title for tool in self._tools.values()])
            case _:
                yield from self._terminal(update).add(_bytes(update.get("data")))

    def _tool(self, update: Json) -> _Tool:
        return self._tools.setdefault(as_text(update.get("toolCallId")), _Tool())

    def _terminal(self, update: Json) -> _Terminal:
        return self._terminals.setdefault(as_text(update.get("terminalId")), _Terminal())


class _Tool:
    def __init__(self) -> None:
        self.title = ""
        self._status = ""
        self._said = ""
        """The line that stands on the screen."""
        self._content: list[Json] = []
        self._shown: list[Json] = []

    def change(self, update: Json) -> Iterator[Span]:
        self.title = as_text(update.get("title")) or self.title or as_text(update.get("name"))
        self._status = as_text(update.get("status")) or self._status
        if "content" in update:
            self._content = [as_mapping(item) for item in as_list(update["content"])]
        line = f"{MARKS.get(self._status, '·')} {self.title}"
        begins = not self._said
        if self.title and line != self._said and (begins or self._status in _FINAL or self._status == "paused"):
            self._said = line
            yield "error" if self._status == "failed" else "tool", line
        yield from self._details()

    def add(self, item: Json) -> Iterator[Span]:
        self._content.append(item)
        yield from self._details()

    def _details(self) -> Iterator[Span]:
        for item in self._content:
            # Text may be replaced as long as the tool works.
            if item in self._shown or (item.get("type") == "content" and self._status not in _FINAL):
                continue
            self._shown.append(item)
            match item.get("type"):
                case "diff":
                    yield from _diff(item)
                case "content":
                    block = as_mapping(item.get("content"))
                    text = as_text(block.get("text")) or f"[{block.get('name') or block.get('type')}]"
                    yield from first_lines(text, _TEXT_LINES)
                case "session" | "terminal":
                    # Both are shown by updates of their own.
                    pass
                case kind:
                    yield "thought", f"  [{kind}]"


def _diff(item: Json) -> Iterator[Span]:
    for change in map(as_mapping, as_list(item.get("changes"))):
        old, new = as_text(change.get("oldPath")), as_text(change.get("path"))
        kind = as_text(change.get("fileType"))
        path = f"{old} → {new}" if old else new
        special = f" ({kind})" if kind not in ("", "text") else ""
        yield "tool", f"  {as_text(change.get('operation'))} {path}{special}"
    patch = as_text(as_mapping(item.get("patch")).get("text"))
    lines = [line for line in patch.splitlines() if not line.startswith(_HEADERS)]
    styles = {"+": "added", "-": "removed"}
    for line in lines[:_DIFF_LINES]:
        yield styles.get(line[:1], "thought"), f"  {line}"
    yield from _rest(len(lines) - _DIFF_LINES)


_HEADERS: Final = (
    "diff --git ",
    "--- ",
    "+++ ",
    "index ",
    "new file mode ",
    "deleted file mode ",
    "similarity index ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
)
"""Lines of a patch that tell what the list of changes tells, too."""


class _Terminal:
    def __init__(self) -> None:
        self._command = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen = bytearray()
        self._line = ""
        self._lines = 0
        self._ended = False

    def change(self, update: Json, titles: list[str]) -> Iterator[Span]:
        command = as_text(update.get("command"))
        if command and command != self._command:
            self._command = command
            if not any(command in title for title in titles):
                yield "tool", f"  $ {command}"
        if (output := as_mapping(update.get("output"))) and len(self._seen) < _COMPARED:
            data, seen = _bytes(output.get("data")), bytes(self._seen)
            if not seen.startswith(data):
                # A snapshot of another beginning is another output.
                yield from self.add(data.removeprefix(seen))
        exit_status = update.get("exitStatus")
        if isinstance(exit_status, Mapping) and not self._ended:
            self._ended = True
            yield from self._end(cast("Json", exit_status))

    def add(self, data: bytes) -> Iterator[Span]:
        self._seen += data[: _COMPARED - len(self._seen)]
        *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
        for line in lines:
            yield from self._show(line)

    def _end(self, exit_status: Json) -> Iterator[Span]:
        if self._line:
            yield from self._show(self._line)
            self._line = ""
        yield from _rest(self._lines - _TERMINAL_LINES)
        code, signal = exit_status.get("exitCode"), as_text(exit_status.get("signal"))
        if signal:
            yield "error", f"  ended by {signal}"
        elif isinstance(code, int) and code != 0:
            yield "error", f"  exit code {code}"

    def _show(self, line: str) -> Iterator[Span]:
        self._lines += 1
        if self._lines <= _TERMINAL_LINES:
            # What a program wrote over is gone.
            yield "thought", "  " + plain(line.rstrip("\r").rpartition("\r")[2])


def first_lines(text: str, most: int) -> Iterator[Span]:
    """A text, cut and set in."""
    lines = text.rstrip().splitlines()
    for line in lines[:most]:
        yield "thought", f"  {plain(line)}"
    yield from _rest(len(lines) - most)


def _rest(lines: int) -> Iterator[Span]:
    if lines > 0:
        yield "note", f"  … {lines} more {'line' if lines == 1 else 'lines'}"


def _bytes(data: object) -> bytes:
    try:
        return base64.b64decode(as_text(data))
    except ValueError:
        return b""
