"""Content blocks, and the small shapes that every update is made of."""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import quote

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text, is_absolute

__all__ = [
    "STATUSES",
    "absolute_path",
    "base64_text",
    "call_status",
    "file_uri",
    "first_line",
    "image_block",
    "mcp_block",
    "output_blocks",
    "session_reference",
    "shown",
    "text_block",
    "text_content",
]

_DATA_URL: Final = re.compile(r"data:([a-zA-Z0-9.+-]+/[a-zA-Z0-9.+-]+)(?:;[^,;]*)*;base64,(.*)", re.DOTALL)
_TITLE_LENGTH: Final = 300
"""A title stays one readable line; whole commands and queries are in ``rawInput``."""

STATUSES: Final = {
    "completed": "completed",
    "failed": "failed",
    # The user said no: nothing ran, so nothing failed.
    "declined": "cancelled",
    "interrupted": "cancelled",
}
"""Final statuses of items as those of tool calls."""


def call_status(item: Json, *, live: bool) -> str:
    """The tool call status of an item; one that is under way failed when nothing works on it any more."""
    status = as_text(item.get("status"))
    if status in ("inProgress", "in_progress"):
        return "in_progress" if live else "failed"
    return STATUSES.get(status, "completed")


def text_block(text: str) -> Block:
    """An ACP text block."""
    return {"type": "text", "text": text}


def shown(block: Block) -> Block:
    """A content block as tool call content."""
    return {"type": "content", "content": block}


def text_content(text: str) -> Block:
    """Text as tool call content."""
    return shown(text_block(text))


def session_reference(session_id: str) -> Block:
    """Tool call content that refers to a child session (SUB-8)."""
    return {"type": "session", "sessionId": session_id}


def base64_text(text: str) -> str:
    """``text`` as the base64 of its UTF-8 bytes."""
    return base64.b64encode(text.encode("utf-8")).decode("ascii")


def first_line(text: str) -> str:
    """``text`` as a title: its first line that says something, cut when it is long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def absolute_path(path: object, cwd: str) -> str | None:
    """An absolute form of a path in an item, or ``None`` when there is none."""
    text = as_text(path)
    if not text:
        return None
    if is_absolute(text):
        return text
    joined = f"{cwd.rstrip('/')}/{text.removeprefix('./')}"
    return joined if is_absolute(joined) else None


def file_uri(path: str) -> str:
    """The ``file:`` URI of an absolute path."""
    posix = path.replace("\\", "/")
    return f"file://{quote(posix)}" if posix.startswith("/") else f"file:///{quote(posix, safe='/:')}"


def image_block(url: str) -> Block | None:
    """The image in a ``data:`` URL; a link for any other URL, which the client may not be able to load."""
    data = _DATA_URL.fullmatch(url)
    if data:
        kind = data[1].partition("/")[0]
        if kind in ("image", "audio"):
            return {"type": kind, "data": data[2], "mimeType": data[1]}
        return {"type": "resource", "resource": {"uri": f"data:{data[1]}", "mimeType": data[1], "blob": data[2]}}
    return {"type": "resource_link", "name": "image", "uri": url} if url and not url.startswith("data:") else None


def mcp_block(block: Json) -> Block | None:
    """An MCP content block as the ACP block of the same name; ``None`` for malformed ones and unknown types."""
    match block.get("type"):
        case "text":
            text = as_text(block.get("text"))
            return text_block(text) if text else None
        case "image" | "audio" as kind:
            data, media_type = as_text(block.get("data")), as_text(block.get("mimeType"))
            return {"type": kind, "data": data, "mimeType": media_type} if data and media_type else None
        case "resource_link":
            uri = as_text(block.get("uri"))
            link: Block = {"type": "resource_link", "name": as_text(block.get("name")) or uri, "uri": uri}
            for name in ("title", "description", "mimeType"):
                if as_text(block.get(name)):
                    link[name] = as_text(block[name])
            return link if uri else None
        case "resource":
            resource = as_mapping(block.get("resource"))
            body = next((name for name in ("text", "blob") if isinstance(resource.get(name), str)), None)
            uri = as_text(resource.get("uri"))
            if body is None or not uri:
                return None
            embedded: Block = {"uri": uri, body: as_text(resource[body])}
            if as_text(resource.get("mimeType")):
                embedded["mimeType"] = as_text(resource["mimeType"])
            return {"type": "resource", "resource": embedded}
        case _:
            return None


def output_blocks(value: object) -> list[Block]:
    """The blocks of a tool's output: a string, or content items of the Responses API (either spelling)."""
    if isinstance(value, str):
        return [text_block(as_text(value))] if value else []
    blocks: list[Block] = []
    for part in map(as_mapping, as_list(value)):
        text = as_text(part.get("text"))
        url = next(
            (url for name in ("imageUrl", "image_url", "audioUrl", "audio_url") if (url := as_text(part.get(name)))), ""
        )
        block = text_block(text) if text else image_block(url)
        if block is not None:
            blocks.append(block)
    return blocks
