"""ACP prompt blocks as the input of a turn, and a stored user message's input as ACP blocks.

Each block becomes one input, and comes back as the same one, so that a replayed message equals the one the client
sent. What cannot come back: a block's annotations and ``_meta``; an image's ``uri``; a link's ``title``,
``description``, ``size`` and ``mimeType``; an embedded image is an image, an embedded text file a text resource.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.protocol.loose import Block, Json, as_mapping, as_text, is_absolute
from sayagain_codex.translate.blocks import file_uri, image_block, text_block

__all__ = ["prompt_input", "stored_content"]

_CONTEXT: Final = re.compile(
    r'\A<context uri="([a-zA-Z][\w+.-]*:[^"]*)"(?: mimeType="([^"]*)")?>\n(.*)\n</context>\Z',
    re.DOTALL,
)
_LINK: Final = re.compile(r"\A\[@((?:[^\]\\]|\\.)*)\]\((<[a-zA-Z][\w+.-]*:[^<>\n]*>|[a-zA-Z][\w+.-]*:[^()\s]*)\)\Z")
_UNPLAIN_URI: Final = re.compile(r"[()\s]")


def prompt_input(blocks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The ``input`` of ``turn/start``: one for each block that says something.

    Raises :class:`~sayagain.errors.InvalidParams` naming the block: kinds that the model cannot take, and blocks
    without their content. An empty prompt is one too (Codex would run a turn for it, without a message: measured).
    """
    if not blocks:
        raise InvalidParams("prompt", "must have at least one content block")
    found = [_input(as_mapping(block), f"prompt.{index}") for index, block in enumerate(blocks)]
    if all(part["type"] == "text" and not part["text"].strip() for part in found):
        raise InvalidParams("prompt", "has no content")
    return [part for part in found if part["type"] != "text" or part["text"]]


def stored_content(parts: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The ACP blocks of a ``userMessage`` item's ``content``; unknown and empty parts are left out."""
    blocks = [_stored(as_mapping(part)) for part in parts]
    return [block for block in blocks if block is not None]


def _input(block: Json, field: str) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return _text(_string(block, "text", field))
        case "image":
            return _image(block, field)
        case "resource_link":
            return _text(_link(_string(block, "name", field), _string(block, "uri", field)))
        case "resource":
            return _resource(as_mapping(block.get("resource")), f"{field}.resource")
        case _:
            raise InvalidParams(f"{field}.type", "is not supported")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "text_elements": []}


def _string(block: Json, name: str, field: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidParams(f"{field}.{name}", "must be a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParams(f"{field}.{name}", "has a lone surrogate, which UTF-8 cannot encode") from None
    return value


def _image(block: Json, field: str) -> dict[str, Any]:
    uri = block.get("uri")
    if not block.get("data") and isinstance(uri, str) and uri.startswith("https://"):
        return {"type": "image", "url": uri}
    return _media(_string(block, "data", field), _string(block, "mimeType", field), field, "data")


def _media(data: str, media_type: str, field: str, name: str) -> dict[str, Any]:
    if not re.fullmatch(r"image/[a-zA-Z0-9.+-]+", media_type):
        raise InvalidParams(f"{field}.mimeType", "is no image type")
    if _decoded(data) is None:
        raise InvalidParams(f"{field}.{name}", "must be base64 data")
    return {"type": "image", "url": f"data:{media_type};base64,{data}"}


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _link(name: str, uri: str) -> str:
    # As text: a mention input is for Codex's own apps and plugins, the model never sees it (measured).
    escaped = re.sub(r"([\]\\])", r"\\\1", name)
    return f"[@{escaped}](<{uri}>)" if _UNPLAIN_URI.search(uri) else f"[@{escaped}]({uri})"


def _resource(resource: Json, field: str) -> dict[str, Any]:
    uri = _string(resource, "uri", field)
    media_type = as_text(resource.get("mimeType"))
    if "text" in resource:
        return _text(_context(uri, media_type, _string(resource, "text", field)))
    blob = _string(resource, "blob", field)
    if media_type.startswith("image/"):
        return _media(blob, media_type, field, "blob")
    content = _decoded(blob)
    if media_type.startswith("text/") and content is not None:
        return _text(_context(uri, media_type, content.decode("utf-8", errors="replace")))
    raise InvalidParams(f"{field}.mimeType", "is not supported for binary resources")


def _context(uri: str, media_type: str, text: str) -> str:
    kind = f' mimeType="{html.escape(media_type)}"' if media_type else ""
    return f'<context uri="{html.escape(uri)}"{kind}>\n{text}\n</context>'


def _stored(part: Json) -> Block | None:
    match part.get("type"):
        case "text":
            text = as_text(part.get("text"))
            return _stored_text(text) if text else None
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


def _stored_text(text: str) -> Block:
    context = _CONTEXT.match(text)
    if context:
        resource: Block = {"uri": html.unescape(context[1]), "text": context[3]}
        if context[2]:
            resource["mimeType"] = html.unescape(context[2])
        return {"type": "resource", "resource": resource}
    link = _LINK.match(text)
    if link and link[2]:
        uri = link[2].removeprefix("<").removesuffix(">")
        return {"type": "resource_link", "name": re.sub(r"\\(.)", r"\1", link[1]), "uri": uri}
    return text_block(text)
