"""ACP prompt blocks as the input of a turn, and a stored user message's input as ACP blocks.

Each block becomes one input, and comes back as the same one, but for what :mod:`sayagain.protocol.prompt_text` says. An
image's ``uri`` does not come back either; an embedded image is an image, an embedded text file a text resource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sayagain.errors import InvalidParams
from sayagain.protocol.loose import Block, Json, as_mapping, as_text, is_absolute
from sayagain.protocol.prompt_text import base64_bytes, image_link, prompt_parts, string_field, text_of, written_block
from sayagain_codex.translate.blocks import file_uri, image_block

__all__ = ["prompt_input", "stored_content"]


def prompt_input(blocks: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The ``input`` of ``turn/start``: one for each block that says something.

    Raises :class:`~sayagain.errors.InvalidParams` naming the block: kinds that the model cannot take, and blocks
    without their content. An empty prompt is one too (Codex would run a turn for it, without a message: measured).
    """
    return prompt_parts(blocks, _input)


def stored_content(parts: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The ACP blocks of a ``userMessage`` item's ``content``; unknown and empty parts are left out."""
    blocks = [_stored(as_mapping(part)) for part in parts]
    return [block for block in blocks if block is not None]


def _input(block: Json, field: str) -> dict[str, Any]:
    # A link is text too: a mention input is for Codex's own apps and plugins, the model never sees it (measured).
    text = text_of(block, field)
    if text is not None:
        return {"type": "text", "text": text, "text_elements": []}
    if block["type"] == "image":
        return _image(block, field)
    return _binary(as_mapping(block.get("resource")), f"{field}.resource")


def _image(block: Json, field: str) -> dict[str, Any]:
    if url := image_link(block):
        return {"type": "image", "url": url}
    return _media(string_field(block, "data", field), string_field(block, "mimeType", field), field, "data")


def _binary(resource: Json, field: str) -> dict[str, Any]:
    media_type, blob = as_text(resource.get("mimeType")), string_field(resource, "blob", field)
    if media_type.startswith("image/"):
        return _media(blob, media_type, field, "blob")
    raise InvalidParams(f"{field}.mimeType", "is not supported for binary resources")


def _media(data: str, media_type: str, field: str, name: str) -> dict[str, Any]:
    if not re.fullmatch(r"image/[a-zA-Z0-9.+-]+", media_type):
        raise InvalidParams(f"{field}.mimeType", "is no image type")
    if not base64_bytes(data):
        raise InvalidParams(f"{field}.{name}", "must be base64 data")
    return {"type": "image", "url": f"data:{media_type};base64,{data}"}


def _stored(part: Json) -> Block | None:
    match part.get("type"):
        case "text":
            text = as_text(part.get("text"))
            return written_block(text) if text else None
        case "image" | "audio":
            return image_block(as_text(part.get("url")))
        case "localImage" | "localAudio" | "skill" | "mention":
            path = as_text(part.get("path"))
            name = as_text(part.get("name")) or re.split(r"[/\\]", path)[-1]
            if not path or not name:
                return None
            return {"type": "resource_link", "name": name, "uri": file_uri(path) if is_absolute(path) else path}
        case _:
            return None
