"""What the scripts of all stand-in services share: parts of a reply, and steps that choose among replies. No I/O.

A script in JSON is ``{"steps": [{"when": "hello", "replies": [[{"text": "Hi"}]], "times": 1}], "default": [{"text":
"Done."}]}``; each part is an object with the one key that names it and its options beside it. All services know
``hold``, ``error`` and ``cut``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

__all__ = [
    "ApiError",
    "AskedLike",
    "BaseScript",
    "BaseStep",
    "Close",
    "Cut",
    "Hold",
    "Piece",
    "Wait",
    "chunks",
    "encode_event",
    "parse_common_part",
]

PartT = TypeVar("PartT")


class AskedLike(Protocol):
    """What steps and counts look at in a request."""

    @property
    def kind(self) -> str: ...

    @property
    def newest_text(self) -> str: ...

    @property
    def round(self) -> int: ...


@dataclass(frozen=True)
class Hold:
    """Wait here until the test releases ``name``."""

    name: str


@dataclass(frozen=True)
class ApiError:
    """An HTTP error if it is the first part but holds; later in the reply the service's error event in the stream."""

    status: int
    type: str
    message: str = "stand-in error"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Cut:
    """Close the connection here, in the middle of whatever block is open."""


@dataclass
class BaseStep(Generic[PartT]):
    """Replies for the requests whose newest user text contains ``when`` (``None``: any).

    ``replies[k]`` answers the request after k model messages of the same turn (``Asked.round``), so a tool loop
    is a list of replies and an HTTP retry gets the same reply again. A step is used for ``times`` requests at most:
    an error that goes away is a step with ``times=1`` in front of another one.
    """

    when: str | None
    replies: Sequence[Sequence[PartT]]
    times: int | None = None
    used: int = 0

    def matches(self, asked: AskedLike) -> bool:
        """Whether this step answers the request."""
        if self.times is not None and self.used >= self.times:
            return False
        return asked.round < len(self.replies) and (self.when is None or self.when in asked.newest_text)


@dataclass
class BaseScript(Generic[PartT]):
    """The first step that matches answers; side requests (titles, quota checks) never reach the steps."""

    steps: Sequence[BaseStep[PartT]] = ()
    default: Sequence[PartT] = ()

    def __call__(self, asked: AskedLike) -> Sequence[PartT] | None:
        if asked.kind == "side":
            return None
        for step in self.steps:
            if step.matches(asked):
                step.used += 1
                return step.replies[asked.round]
        return self.default

    @classmethod
    def parse(cls, document: Mapping[str, Any], part: Callable[[Mapping[str, Any]], PartT]) -> Self:
        """A script from its JSON form, each part by ``part``."""

        def reply(parts: Sequence[Mapping[str, Any]]) -> list[PartT]:
            return [part(each) for each in parts]

        steps = [
            BaseStep(step.get("when"), [reply(parts) for parts in step["replies"]], step.get("times"))
            for step in cast("list[dict[str, Any]]", document.get("steps", []))
        ]
        default = document.get("default")
        return cls(steps) if default is None else cls(steps, reply(default))


def parse_common_part(part: Mapping[str, Any]) -> Hold | ApiError | Cut:
    """A part of those that all services know; raises :class:`ValueError` for another one."""
    match part:
        case {"hold": name}:
            return Hold(name)
        case {"error": error_type}:
            return ApiError(part["status"], error_type, part.get("message", ApiError.message), part.get("headers", {}))
        case {"cut": True}:
            return Cut()
        case _:
            raise ValueError(f"a part of a reply has none of the known names: {sorted(part)}")


@dataclass(frozen=True)
class Wait:
    """Go on when the gate ``name`` opens, or with ``step`` when one step of it is granted."""

    name: str
    step: bool = False


@dataclass(frozen=True)
class Close:
    """Close the connection without an end."""


Piece: TypeAlias = bytes | Wait | Close
"""What a streamed reply is made of: bytes to send, waits, and its breaking off."""


def encode_event(data: Mapping[str, Any]) -> bytes:
    """One server-sent event, named by the ``type`` of its data."""
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def chunks(text: str, size: int | None) -> list[str]:
    """``text`` in pieces of ``size`` code points; whole for ``None``."""
    if size is None:
        return [text]
    return [text[start : start + size] for start in range(0, len(text), size)]
