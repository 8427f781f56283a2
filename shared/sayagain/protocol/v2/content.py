"""Content blocks: what prompts and messages are made of."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Between, Known, Open, Pick
from sayagain.protocol.v2.scalars import Base64, MediaType, Object, Timestamp, UInt64, Uri

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "ContentBlock",
    "EmbeddedResource",
    "EmbeddedResourceResource",
    "Icon",
    "IconTheme",
    "ImageContent",
    "ResourceLink",
    "Role",
    "TextContent",
    "TextResourceContents",
    "UnknownContent",
]

Role: TypeAlias = Annotated[str, Known("assistant", "user")]
IconTheme: TypeAlias = Annotated[str, Known("light", "dark")]


class Annotations(Object):
    """Hints for showing a block. ``priority`` runs from 0 (optional) to 1 (required)."""

    audience: NotRequired[list[Role] | None]
    lastModified: NotRequired[Timestamp | None]
    priority: NotRequired[Annotated[float, Between(0, 1)] | None]


class TextContent(Object):
    """Text; every agent takes it in a prompt (INI-7)."""

    type: Literal["text"]
    text: str
    annotations: NotRequired[Annotations | None]


class ImageContent(Object):
    """An image, inline; ``uri`` says where it came from. In prompts only if advertised (INI-7)."""

    type: Literal["image"]
    data: Base64
    mimeType: MediaType
    uri: NotRequired[Uri | None]
    annotations: NotRequired[Annotations | None]


class AudioContent(Object):
    """Audio, inline. In prompts only if advertised (INI-7)."""

    type: Literal["audio"]
    data: Base64
    mimeType: MediaType
    annotations: NotRequired[Annotations | None]


class Icon(Object):
    """An image for a resource; ``src`` is ``https:`` or ``data:`` (UPD-12), ``sizes`` such as ``48x48``."""

    src: Uri
    mimeType: NotRequired[MediaType | None]
    sizes: NotRequired[list[str] | None]
    theme: NotRequired[IconTheme | None]


class ResourceLink(Object):
    """Something that the agent can read by itself; every agent takes it in a prompt (INI-7). ``size`` in bytes."""

    type: Literal["resource_link"]
    name: str
    uri: Uri
    title: NotRequired[str | None]
    description: NotRequired[str | None]
    icons: NotRequired[list[Icon] | None]
    mimeType: NotRequired[MediaType | None]
    size: NotRequired[UInt64 | None]
    annotations: NotRequired[Annotations | None]


class TextResourceContents(Object):
    """A resource's text."""

    text: str
    uri: Uri
    mimeType: NotRequired[MediaType | None]


class BlobResourceContents(Object):
    """A resource's bytes."""

    blob: Base64
    uri: Uri
    mimeType: NotRequired[MediaType | None]


def _resource_kind(value: Any) -> int:
    return 1 if isinstance(value, dict) and "blob" in value and "text" not in value else 0


EmbeddedResourceResource: TypeAlias = Annotated[TextResourceContents | BlobResourceContents, Pick(_resource_kind)]


class EmbeddedResource(Object):
    """A resource that travels with the message. In prompts only if advertised (INI-7)."""

    type: Literal["resource"]
    resource: EmbeddedResourceResource
    annotations: NotRequired[Annotations | None]


class UnknownContent(TypedDict):
    """A kind of block that this version does not know: kept in what is stored, refused in a prompt (PRM-3)."""

    type: str


ContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent, Open("type")
]
