"""ACP prompt blocks as the CLI's user content, and stored user content as ACP blocks.

Each block becomes one block, and comes back as the same one, so that a replayed message equals the one the client
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
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, display_block, text_block
from sayagain_claude.translate.harness import only_reminders

__all__ = ["prompt_content", "stored_content"]

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that the Messages API takes."""

_CONTEXT: Final = re.compile(
    r'\A<context uri="([a-zA-Z][\w+.-]*:[^"]*)"(?: mimeType="([^"]*)")?>\n(.*)\n</context>\Z',
    re.DOTALL,
)
_LINK: Final = re.compile(r"\A\[@((?:[^\]\\]|\\.)*)\]\((<[a-zA-Z][\w+.-]*:[^<>\n]*>|[a-zA-Z][\w+.-]*:[^()\s]*)\)\Z")
_UNPLAIN_URI: Final = re.compile(r"[()\s]")


def prompt_content(blocks: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """The ``content`` of the CLI's user message: a string for a single text, else one block for each.

    Raises :class:`~sayagain.errors.InvalidParams` naming the block: kinds that the model cannot take, and blocks
    without their content. An empty prompt is one too.
    """
    if not blocks:
        raise InvalidParams("prompt", "must have at least one content block")
    content = [_prompt_block(as_mapping(block), f"prompt.{index}") for index, block in enumerate(blocks)]
    if all(block["type"] == "text" and not block["text"].strip() for block in content):
        raise InvalidParams("prompt", "has no content")
    if len(content) == 1 and content[0]["type"] == "text":
        text: str = content[0]["text"]
        return text
    # The model's API refuses empty text blocks, and they say nothing.
    return [block for block in content if block["type"] != "text" or block["text"]]


def stored_content(content: object, *, verbatim: bool = True) -> list[Block]:
    """The ACP blocks of a stored user message's ``content``.

    ``verbatim`` is false for rows of which nobody knows whether a client sent them so: older versions put reminders
    among a user's blocks, and those are left out.
    """
    if isinstance(content, str):
        return [_stored_text(as_text(content))] if content else []
    blocks: list[Block] = []
    for block in map(as_mapping, as_list(content)):
        if block.get("type") == "text":
            text = as_text(block.get("text"))
            if text and (verbatim or not only_reminders(text)):
                blocks.append(_stored_text(text))
        else:
            shown = display_block(block)
            if shown is not None:
                blocks.append(shown)
    return blocks


def _prompt_block(block: Json, field: str) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": _string(block, "text", field)}
        case "image":
            return _image(block, field)
        case "resource_link":
            return {"type": "text", "text": _link(_string(block, "name", field), _string(block, "uri", field))}
        case "resource":
            return _resource(as_mapping(block.get("resource")), field)
        case _:
            raise InvalidParams(f"{field}.type", "is not supported")


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
        return {"type": "image", "source": {"type": "url", "url": uri}}
    return _media("image", _string(block, "data", field), _string(block, "mimeType", field), f"{field}.data")


def _media(kind: str, data: str, media_type: str, field: str) -> dict[str, Any]:
    if kind == "image" and media_type not in _IMAGES:
        raise InvalidParams(field.rpartition(".")[0] + ".mimeType", "is no image type that the model takes")
    if not data or not _is_base64(data):
        raise InvalidParams(field, "must be base64 data")
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _link(name: str, uri: str) -> str:
    escaped = re.sub(r"([\]\\])", r"\\\1", name)
    return f"[@{escaped}](<{uri}>)" if _UNPLAIN_URI.search(uri) else f"[@{escaped}]({uri})"


def _resource(resource: Json, field: str) -> dict[str, Any]:
    field = f"{field}.resource"
    uri = _string(resource, "uri", field)
    media_type = as_text(resource.get("mimeType"))
    if "text" in resource:
        return {"type": "text", "text": _context(uri, media_type, _string(resource, "text", field))}
    blob = _string(resource, "blob", field)
    if media_type in _IMAGES:
        return _media("image", blob, media_type, f"{field}.blob")
    if media_type == "application/pdf":
        return {**_media("document", blob, media_type, f"{field}.blob"), "title": uri}
    if media_type.startswith("text/") and _is_base64(blob):
        text = base64.b64decode(blob).decode("utf-8", errors="replace")
        return {"type": "text", "text": _context(uri, media_type, text)}
    raise InvalidParams(f"{field}.mimeType", "is not supported for binary resources")


def _context(uri: str, media_type: str, text: str) -> str:
    kind = f' mimeType="{html.escape(media_type)}"' if media_type else ""
    return f'<context uri="{html.escape(uri)}"{kind}>\n{text}\n</context>'


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
