"""ACP prompt blocks as the CLI's user content, and stored user content as ACP blocks.

Each block becomes one block, and comes back as the same one, but for what :mod:`sayagain.protocol.prompt_text` says. An
image's ``uri`` does not come back either; an embedded image is an image, an embedded text file a text resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.protocol.prompt_text import base64_bytes, image_link, prompt_parts, string_field, text_of, written_block
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, display_block
from sayagain_claude.translate.harness import only_reminders

__all__ = ["prompt_content", "stored_content"]

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that the Messages API takes."""


def prompt_content(blocks: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """The ``content`` of the CLI's user message: a string for a single text, else one block for each.

    Raises :class:`~sayagain.errors.InvalidParams` naming the block: kinds that the model cannot take, and blocks
    without their content. An empty prompt is one too. Empty texts say nothing, and the model's API refuses them.
    """
    content = prompt_parts(blocks, _prompt_block)
    if len(blocks) == 1 and content[0]["type"] == "text":
        text: str = content[0]["text"]
        return text
    return content


def stored_content(content: object, *, verbatim: bool = True) -> list[Block]:
    """The ACP blocks of a stored user message's ``content``.

    ``verbatim`` is false for rows of which nobody knows whether a client sent them so: older versions put reminders
    among a user's blocks, and those are left out.
    """
    if isinstance(content, str):
        return [written_block(as_text(content))] if content else []
    blocks: list[Block] = []
    for block in map(as_mapping, as_list(content)):
        if block.get("type") == "text":
            text = as_text(block.get("text"))
            if text and (verbatim or not only_reminders(text)):
                blocks.append(written_block(text))
        else:
            shown = display_block(block)
            if shown is not None:
                blocks.append(shown)
    return blocks


def _prompt_block(block: Json, field: str) -> dict[str, Any]:
    text = text_of(block, field)
    if text is not None:
        return {"type": "text", "text": text}
    if block["type"] == "image":
        return _image(block, field)
    return _binary(as_mapping(block.get("resource")), f"{field}.resource")


def _image(block: Json, field: str) -> dict[str, Any]:
    if url := image_link(block):
        return {"type": "image", "source": {"type": "url", "url": url}}
    data, media_type = string_field(block, "data", field), string_field(block, "mimeType", field)
    if media_type not in _IMAGES:
        raise InvalidParams(f"{field}.mimeType", "is no image type that the model takes")
    return _media("image", data, media_type, f"{field}.data")


def _binary(resource: Json, field: str) -> dict[str, Any]:
    media_type, blob = as_text(resource.get("mimeType")), string_field(resource, "blob", field)
    if media_type in _IMAGES:
        return _media("image", blob, media_type, f"{field}.blob")
    if media_type == "application/pdf":
        uri = string_field(resource, "uri", field)
        return {**_media("document", blob, media_type, f"{field}.blob"), "title": uri}
    raise InvalidParams(f"{field}.mimeType", "is not supported for binary resources")


def _media(kind: str, data: str, media_type: str, field: str) -> dict[str, Any]:
    if not base64_bytes(data):
        raise InvalidParams(field, "must be base64 data")
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}
