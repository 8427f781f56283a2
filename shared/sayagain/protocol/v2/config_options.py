"""Session settings that the user can change."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from sayagain.protocol.v2.markers import Known, NonEmpty, Open, Pick, Rule
from sayagain.protocol.v2.scalars import Object, SessionConfigGroupId, SessionConfigId, SessionConfigValueId, SessionId

__all__ = [
    "SessionConfigBoolean",
    "SessionConfigOption",
    "SessionConfigOptionCategory",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "SessionConfigSelectOption",
    "SessionConfigSelectOptions",
    "SetBooleanConfigOption",
    "SetSelectConfigOption",
    "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionResponse",
    "SetUnknownConfigOption",
    "UnknownConfigOption",
]

SessionConfigOptionCategory: TypeAlias = Annotated[str, Known("mode", "model", "model_config", "thought_level")]
"""A hint for placing the option, nothing more (CFG-5)."""


class SessionConfigSelectOption(Object):
    """One value to choose."""

    value: SessionConfigValueId
    name: str
    description: NotRequired[str | None]


class SessionConfigSelectGroup(Object):
    """Values under a heading."""

    groupId: SessionConfigGroupId
    name: str
    options: Annotated[list[SessionConfigSelectOption], NonEmpty()]


def _grouped(value: Any) -> int:
    first: object = cast("list[object]", value)[0] if isinstance(value, list) and value else None
    return 1 if isinstance(first, dict) and "groupId" in first else 0


SessionConfigSelectOptions: TypeAlias = Annotated[
    Annotated[list[SessionConfigSelectOption], NonEmpty()] | Annotated[list[SessionConfigSelectGroup], NonEmpty()],
    Pick(_grouped),
]


class _ConfigOption(Object):
    configId: SessionConfigId
    name: str
    description: NotRequired[str | None]
    category: NotRequired[SessionConfigOptionCategory | None]


class SessionConfigSelect(_ConfigOption):
    """One of several values; the current one is among them, and each is there once, over all groups (CFG-4)."""

    type: Literal["select"]
    currentValue: SessionConfigValueId
    options: SessionConfigSelectOptions


class SessionConfigBoolean(_ConfigOption):
    """On or off."""

    type: Literal["boolean"]
    currentValue: bool


class UnknownConfigOption(_ConfigOption):
    """A kind of option that this version does not know."""

    type: str


def _consistent(option: dict[str, Any]) -> str | None:
    if option["type"] != "select":
        return None
    values: list[str] = []
    for entry in option["options"]:
        values.extend(item["value"] for item in (entry["options"] if "groupId" in entry else [entry]))
    if len(set(values)) != len(values):
        return "must offer each value once"
    return None if option["currentValue"] in values else "must offer its current value"


SessionConfigOption: TypeAlias = Annotated[
    SessionConfigSelect | SessionConfigBoolean | UnknownConfigOption, Open("type"), Rule(_consistent)
]


class _SetConfigOption(Object):
    sessionId: SessionId
    configId: SessionConfigId


class SetSelectConfigOption(_SetConfigOption):
    """Choose a value of a select option."""

    type: Literal["id"]
    value: SessionConfigValueId


class SetBooleanConfigOption(_SetConfigOption):
    """Switch a boolean option."""

    type: Literal["boolean"]
    value: bool


class SetUnknownConfigOption(_SetConfigOption):
    """A kind of value that this version does not know; refused (CFG-2)."""

    type: str
    value: Any


SetSessionConfigOptionRequest: TypeAlias = Annotated[
    SetSelectConfigOption | SetBooleanConfigOption | SetUnknownConfigOption, Open("type")
]


class SetSessionConfigOptionResponse(Object):
    """All options with their current values: others may have changed too (CFG-3)."""

    configOptions: list[SessionConfigOption]
