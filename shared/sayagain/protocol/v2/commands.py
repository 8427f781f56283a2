"""Slash commands that a session offers."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Open, Rule, unique
from sayagain.protocol.v2.scalars import Object

__all__ = [
    "AvailableCommand",
    "AvailableCommandInput",
    "AvailableCommands",
    "Command",
    "TextCommandInput",
    "UnknownCommand",
    "UnknownCommandInput",
]


def _command_name(value: str) -> str | None:
    if value.startswith("/"):
        return "must not start with a slash"
    return "must not contain whitespace" if any(map(str.isspace, value)) else None


_CommandName: TypeAlias = Annotated[str, Rule(_command_name)]


class TextCommandInput(Object):
    """All text after the name is the input; ``hint`` is shown while there is none."""

    type: Literal["text"]
    hint: str


class UnknownCommandInput(TypedDict):
    """A kind of input that this version does not know."""

    type: str


AvailableCommandInput: TypeAlias = Annotated[TextCommandInput | UnknownCommandInput, Open("type")]


class Command(Object):
    """A command; its name has no leading slash and no whitespace (UPD-11)."""

    type: Literal["command"]
    name: _CommandName
    description: str
    input: NotRequired[AvailableCommandInput | None]


class UnknownCommand(TypedDict):
    """A kind of command that this version does not know."""

    type: str
    name: _CommandName
    description: str


AvailableCommand: TypeAlias = Annotated[Command | UnknownCommand, Open("type")]

AvailableCommands: TypeAlias = Annotated[list[AvailableCommand], unique("name")]
"""The whole list each time; names are unique in it (UPD-11)."""
