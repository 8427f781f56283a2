"""Content blocks of the Messages API as ACP content blocks, and the small shapes that every update is made of."""

from __future__ import annotations

import re
from typing import Final

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text, clean, clean_text, is_absolute

__all__ = [
    "Block",
    "Json",
    "as_list",
    "as_mapping",
    "as_text",
    "clean",
    "clean_text",
    "content",
    "display_block",
    "fenced",
    "is_absolute",
    "plain_text",
    "text_block",
    "text_content",
]

_BACKTICKS: Final = re.compile(r"`{3,}")


def text_block(text: str) -> Block:
    """An ACP text block."""
    return {"type": "text", "text": text}


def content(block: Block) -> Block:
    """A content block as tool call content."""
    return {"type": "content", "content": block}


def text_content(text: str) -> Block:
    """Text as tool call content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def fenced(text: str, info: str = "") -> Block:
    """Text as tool call content in a code fence that nothing in it can close."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=2) if "```" in text else 2
    fence = "`" * (longest + 1)
    return text_content(f"{fence}{info}\n{text.rstrip(chr(10))}\n{fence}")


def display_block(block: object) -> Block | None:
    """The ACP form of an API block that has one: text, images and documents; ``None`` for others and empty ones."""
    fields = as_mapping(block)
    kind = fields.get("type")
    if kind == "text":
        text = as_text(fields.get("text"))
        return text_block(text) if text else None
    source = as_mapping(fields.get("source"))
    if kind == "image":
        if source.get("type") == "url":
            return {"type": "resource_link", "name": "image", "uri": as_text(source.get("url"))}
        data, media_type = as_text(source.get("data")), as_text(source.get("media_type"))
        return {"type": "image", "data": data, "mimeType": media_type} if data and media_type else None
    if kind == "document":
        data, media_type = as_text(source.get("data")), as_text(source.get("media_type"))
        uri = as_text(fields.get("title")) or "attachment:document"
        if source.get("type") == "base64" and data:
            return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": data}}
    return None


def plain_text(value: object) -> str:
    """All text of an API content value (a string, or blocks), joined by newlines."""
    if isinstance(value, str):
        return clean_text(value)
    texts = (as_text(fields.get("text")) for fields in map(as_mapping, as_list(value)) if fields.get("type") == "text")
    return "\n".join(text for text in texts if text)
