"""What of a prompt a model reads as text, in a form from which the blocks come back as they were sent.

A link becomes ``[@name](uri)`` and an embedded text file ``<context uri="...">``, so that a replayed message equals the
one the client sent; a text that is written like one of these, as a whole, gets a backslash in front. What cannot come
back: a block's annotations and ``_meta``, a link's ``title``, ``description``, ``size`` and ``mimeType``, and texts
without a letter.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.protocol.loose import Block, Json, as_mapping, as_text

__all__ = ["base64_bytes", "image_link", "prompt_parts", "string_field", "text_of", "written_block"]

_CONTEXT: Final = re.compile(
    r'\A<context uri="([a-zA-Z][\w+.-]*:[^"]*)"(?: mimeType="([^"]*)")?>\n(.*)\n</context>\Z',
    re.DOTALL,
)
_LINK: Final = re.compile(r"\A\[@((?:[^\]\\]|\\.)*)\]\((<[a-zA-Z][\w+.-]*:[^<>\n]*>|[a-zA-Z][\w+.-]*:[^()\s]*)\)\Z")
_UNPLAIN_URI: Final = re.compile(r"[()\s]")


def prompt_parts(
    blocks: Sequence[Mapping[str, Any]], part: Callable[[Json, str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The parts that ``part`` makes, from each block and its field name, of those blocks that say something.

    A text part has the type ``text``; those without text are left out. Raises
    :class:`~sayagain.errors.InvalidParams` for a prompt without content, and with what ``part`` raises.
    """
    if not blocks:
        raise InvalidParams("prompt", "must have at least one content block")
    parts = [part(as_mapping(block), f"prompt.{index}") for index, block in enumerate(blocks)]
    if all(each["type"] == "text" and not each["text"].strip() for each in parts):
        raise InvalidParams("prompt", "has no content")
    return [each for each in parts if each["type"] != "text" or each["text"]]


def text_of(block: Json, field: str) -> str | None:
    """The text of a block that is one to the model; ``None`` for an image and for a binary resource.

    Raises :class:`~sayagain.errors.InvalidParams` naming what is missing below ``field``, and for all other kinds.
    """
    match block.get("type"):
        case "text":
            text = string_field(block, "text", field)
            return f"\\{text}" if _is_notation(text) else text
        case "resource_link":
            return _link(string_field(block, "name", field), string_field(block, "uri", field))
        case "resource":
            return _resource_text(as_mapping(block.get("resource")), f"{field}.resource")
        case "image":
            return None
        case _:
            raise InvalidParams(f"{field}.type", "is not supported")


def written_block(text: str) -> Block:
    """The block that :func:`text_of` made ``text`` of."""
    if text.startswith("\\") and _is_notation(text):
        return {"type": "text", "text": text[1:]}
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
    return {"type": "text", "text": text}


def _is_notation(text: str) -> bool:
    """Whether it is written like a link or a file, or like such a text that was told from them already."""
    plain = text.lstrip("\\")
    return _CONTEXT.match(plain) is not None or _LINK.match(plain) is not None


def string_field(block: Json, name: str, field: str) -> str:
    """A string that the block must have; raises :class:`~sayagain.errors.InvalidParams` naming it below ``field``."""
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidParams(f"{field}.{name}", "must be a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParams(f"{field}.{name}", "has a lone surrogate, which UTF-8 cannot encode") from None
    return value


def image_link(block: Json) -> str | None:
    """Where an image block without data has its image, if the model's service can fetch it from there."""
    uri = block.get("uri")
    return uri if not block.get("data") and isinstance(uri, str) and uri.startswith("https://") else None


def base64_bytes(data: str) -> bytes | None:
    """What ``data`` encodes; ``None`` when it is no base64."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _link(name: str, uri: str) -> str:
    escaped = re.sub(r"([\]\\])", r"\\\1", name)
    return f"[@{escaped}](<{uri}>)" if _UNPLAIN_URI.search(uri) else f"[@{escaped}]({uri})"


def _resource_text(resource: Json, field: str) -> str | None:
    uri = string_field(resource, "uri", field)
    media_type = as_text(resource.get("mimeType"))
    if "text" in resource:
        return _context(uri, media_type, string_field(resource, "text", field))
    content = base64_bytes(string_field(resource, "blob", field)) if media_type.startswith("text/") else None
    return None if content is None else _context(uri, media_type, content.decode("utf-8", errors="replace"))


def _context(uri: str, media_type: str, text: str) -> str:
    kind = f' mimeType="{html.escape(media_type)}"' if media_type else ""
    return f'<context uri="{html.escape(uri)}"{kind}>\n{text}\n</context>'
