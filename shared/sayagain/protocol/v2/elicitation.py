"""Asking the user for data: by a form, or on a web page."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Known, NonEmpty, Open, Pick, Rule
from sayagain.protocol.v2.scalars import (
    ElicitationId,
    Int64,
    Object,
    RequestId,
    SessionId,
    ToolCallId,
    UInt32,
    UInt64,
    Uri,
)

__all__ = [
    "AcceptedElicitation",
    "BooleanPropertySchema",
    "CancelledElicitation",
    "CompleteElicitationNotification",
    "CreateElicitationRequest",
    "CreateElicitationResponse",
    "DeclinedElicitation",
    "ElicitationPropertySchema",
    "ElicitationSchema",
    "EnumOption",
    "FormElicitation",
    "IntegerPropertySchema",
    "MultiSelectItems",
    "MultiSelectPropertySchema",
    "NumberPropertySchema",
    "StringFormat",
    "StringMultiSelectItems",
    "StringPropertySchema",
    "TitledMultiSelectItems",
    "UnknownElicitation",
    "UnknownElicitationAction",
    "UnknownMultiSelectItems",
    "UnknownPropertySchema",
    "UrlElicitation",
]

StringFormat: TypeAlias = Annotated[str, Known("email", "uri", "date", "date-time")]


class EnumOption(Object):
    """A value to choose, with a name for people."""

    const: str
    title: str
    description: NotRequired[str | None]


class _Property(Object):
    title: NotRequired[str | None]
    description: NotRequired[str | None]


class StringPropertySchema(_Property):
    """Text, or one of several (``enum``, or ``oneOf`` with titles)."""

    type: Literal["string"]
    minLength: NotRequired[UInt32 | None]
    maxLength: NotRequired[UInt32 | None]
    pattern: NotRequired[str | None]
    format: NotRequired[StringFormat | None]
    default: NotRequired[str | None]
    enum: NotRequired[Annotated[list[str], NonEmpty()] | None]
    oneOf: NotRequired[Annotated[list[EnumOption], NonEmpty()] | None]


class NumberPropertySchema(_Property):
    """A number."""

    type: Literal["number"]
    minimum: NotRequired[float | None]
    maximum: NotRequired[float | None]
    default: NotRequired[float | None]


class IntegerPropertySchema(_Property):
    """An integer."""

    type: Literal["integer"]
    minimum: NotRequired[Int64 | None]
    maximum: NotRequired[Int64 | None]
    default: NotRequired[Int64 | None]


class BooleanPropertySchema(_Property):
    """Yes or no."""

    type: Literal["boolean"]
    default: NotRequired[bool | None]


class StringMultiSelectItems(Object):
    """The values, bare."""

    type: Literal["string"]
    enum: Annotated[list[str], NonEmpty()]


class TitledMultiSelectItems(Object):
    """The values, with names for people."""

    anyOf: Annotated[list[EnumOption], NonEmpty()]


class UnknownMultiSelectItems(TypedDict):
    """A kind of items that this version does not know."""

    type: str


def _items_kind(value: Any) -> int:
    if not isinstance(value, dict):
        return 0
    items = cast("dict[str, object]", value)
    kind = items.get("type")
    if isinstance(kind, str) and kind != "string":
        return 2
    return 1 if "anyOf" in items and not (kind == "string" and "enum" in items) else 0


MultiSelectItems: TypeAlias = Annotated[
    StringMultiSelectItems | TitledMultiSelectItems | UnknownMultiSelectItems, Pick(_items_kind)
]


class MultiSelectPropertySchema(_Property):
    """Several of several values."""

    type: Literal["array"]
    minItems: NotRequired[UInt64 | None]
    maxItems: NotRequired[UInt64 | None]
    items: MultiSelectItems
    default: NotRequired[list[str] | None]


class UnknownPropertySchema(TypedDict):
    """A kind of field that this version does not know."""

    type: str


ElicitationPropertySchema: TypeAlias = Annotated[
    StringPropertySchema
    | NumberPropertySchema
    | IntegerPropertySchema
    | BooleanPropertySchema
    | MultiSelectPropertySchema
    | UnknownPropertySchema,
    Open("type"),
]


class ElicitationSchema(Object):
    """The form: a flat object. Secrets have no place in it (ELI-3)."""

    type: Literal["object"]
    title: NotRequired[str | None]
    properties: dict[str, ElicitationPropertySchema]
    required: NotRequired[list[str] | None]
    description: NotRequired[str | None]


class _Elicitation(Object):
    # Bound to a session (and maybe a tool call of it) or to a request, never to both (ELI-2).
    message: str
    sessionId: NotRequired[SessionId]
    toolCallId: NotRequired[ToolCallId | None]
    requestId: NotRequired[RequestId]


class FormElicitation(_Elicitation):
    """Fill in a form."""

    mode: Literal["form"]
    requestedSchema: ElicitationSchema


class UrlElicitation(_Elicitation):
    """Visit a page. Accepting is not finishing: that is told by ``elicitation/complete`` (ELI-6)."""

    mode: Literal["url"]
    elicitationId: ElicitationId
    url: Uri


class UnknownElicitation(_Elicitation):
    """A mode that this version does not know."""

    mode: str


def _one_scope(value: dict[str, Any]) -> str | None:
    return None if ("sessionId" in value) != ("requestId" in value) else "must have either a sessionId or a requestId"


CreateElicitationRequest: TypeAlias = Annotated[
    FormElicitation | UrlElicitation | UnknownElicitation, Open("mode"), Rule(_one_scope)
]


class AcceptedElicitation(Object):
    """The user's answers, not checked by the client (ELI-4)."""

    action: Literal["accept"]
    content: NotRequired[dict[str, Any] | None]


class DeclinedElicitation(Object):
    """The user said no."""

    action: Literal["decline"]


class CancelledElicitation(Object):
    """The user said nothing."""

    action: Literal["cancel"]


class UnknownElicitationAction(Object):
    """An action that this version does not know counts as cancel (ELI-5)."""

    action: str


CreateElicitationResponse: TypeAlias = Annotated[
    AcceptedElicitation | DeclinedElicitation | CancelledElicitation | UnknownElicitationAction, Open("action")
]


class CompleteElicitationNotification(Object):
    """The user is done on the page."""

    elicitationId: ElicitationId
