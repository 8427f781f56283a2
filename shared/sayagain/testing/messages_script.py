"""What the stand-in Messages API answers: replies made of parts, and scripts that choose among them.

A reply is a list of parts. Adjacent :class:`Text` parts make one content block, even across a :class:`Hold`, so that a
test can stop a stream in the middle of a block. The JSON form is that of :mod:`sayagain.testing.stand_in_script`; its
parts are ``text``, ``thinking``, ``tool_use``, ``hold``, ``stop``, ``usage``, ``error`` and ``cut``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sayagain.testing.messages_request import Asked
from sayagain.testing.stand_in_script import ApiError, BaseScript, BaseStep, Cut, Hold, parse_common_part

__all__ = [
    "NAMED_SCRIPTS",
    "ApiError",
    "Cut",
    "Hold",
    "Part",
    "Reply",
    "Script",
    "ScriptLike",
    "Step",
    "Stop",
    "Text",
    "Thinking",
    "ToolUse",
    "Usage",
    "parse_script",
]


@dataclass(frozen=True)
class Text:
    """Text of the answer; ``chunk`` code points a delta (``None``: one delta).

    With ``gate`` every delta waits for one :meth:`~sayagain.testing.messages_api.MessagesService.step` of that name:
    a slow stream without a clock.
    """

    text: str
    chunk: int | None = None
    gate: str | None = None


@dataclass(frozen=True)
class Thinking:
    """A thinking block with its signature."""

    text: str
    signature: str = "c3RhbmQtaW4tc2lnbmF0dXJl"
    chunk: int | None = None


@dataclass(frozen=True)
class ToolUse:
    """A call of a tool; several in one reply are parallel calls. ``id`` is made up if it is ``None``."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None
    chunk: int | None = None


@dataclass(frozen=True)
class Stop:
    """The stop reason, if it is not what the parts imply (``tool_use`` or ``end_turn``)."""

    reason: str


@dataclass(frozen=True)
class Usage:
    """Token counts to report, if the small fixed ones will not do."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


Part: TypeAlias = Text | Thinking | ToolUse | Hold | Stop | Usage | ApiError | Cut
Reply: TypeAlias = Sequence[Part]
ScriptLike: TypeAlias = Callable[[Asked], Reply | None]
"""Chooses a reply; ``None`` stands for the short default text."""


@dataclass
class Step(BaseStep[Part]):
    """Replies for the requests whose newest user text contains ``when``."""


@dataclass
class Script(BaseScript[Part]):
    """The first step that matches answers; without one, the default."""

    default: Reply = (Text("Done."),)


def parse_script(document: Mapping[str, Any]) -> Script:
    """A script from its JSON form; raises :class:`ValueError` for a part that it does not know."""
    return Script.parse(document, _parse_part)


def _parse_part(part: Mapping[str, Any]) -> Part:
    match part:
        case {"text": text}:
            return Text(text, part.get("chunk"), part.get("gate"))
        case {"thinking": text}:
            return Thinking(text, part.get("signature", Thinking.signature), part.get("chunk"))
        case {"tool_use": name}:
            return ToolUse(name, part.get("input", {}), part.get("id"), part.get("chunk"))
        case {"stop": reason}:
            return Stop(reason)
        case {"usage": counts}:
            return Usage(**counts)
        case _:
            return parse_common_part(part)


def _short() -> Script:
    return Script()


def _many_deltas() -> Script:
    return Script(default=(Text("word " * 400, chunk=5),))


def _bash_once() -> Script:
    call = ToolUse("Bash", {"command": "echo stand-in", "description": "Say it"})
    return Script([Step(None, [[call], [Text("Ran it.")]])])


NAMED_SCRIPTS: Mapping[str, Callable[[], Script]] = {
    "short": _short,
    "many-deltas": _many_deltas,
    "bash-once": _bash_once,
}
"""Scripts that the command line knows by name: a short text; 400 deltas; one Bash call in each turn."""
