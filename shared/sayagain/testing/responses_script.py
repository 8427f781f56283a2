"""What the stand-in Responses API answers: replies made of parts, and scripts that choose among them.

A reply is a list of parts. Adjacent :class:`Text` parts make one message item, even across a :class:`Hold`, so that a
test can stop a stream in the middle of a message. The JSON form is that of :mod:`sayagain.testing.stand_in_script`; its
parts are ``text``, ``reasoning``, ``tool_use``, ``web_search``, ``item``, ``hold``, ``stop``, ``usage``, ``error`` and
``cut``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sayagain.testing.responses_request import Asked
from sayagain.testing.stand_in_script import ApiError, BaseScript, BaseStep, Cut, Hold, parse_common_part

__all__ = [
    "CONTEXT_OVERFLOW",
    "NAMED_SCRIPTS",
    "ApiError",
    "Cut",
    "Hold",
    "Item",
    "Part",
    "Reasoning",
    "Reply",
    "Script",
    "ScriptLike",
    "Step",
    "Stop",
    "Text",
    "ToolUse",
    "Usage",
    "WebSearch",
    "apply_patch",
    "exec_command",
    "in_code",
    "mcp_tool",
    "parse_script",
    "request_user_input",
    "spawn_agent",
    "update_plan",
]


@dataclass(frozen=True)
class Text:
    """Text of the answer; ``chunk`` code points a delta (``None``: one delta).

    With ``gate`` every delta waits for one :meth:`~sayagain.testing.stand_in.StandIn.step` of that name: a slow stream
    without a clock. ``phase`` is ``commentary``, ``final_answer`` or ``None``; another phase begins another message.
    """

    text: str
    chunk: int | None = None
    gate: str | None = None
    phase: str | None = None


@dataclass(frozen=True)
class Reasoning:
    """A reasoning item: parts of its summary, and texts of its content; both are streamed."""

    summary: Sequence[str] = ()
    content: Sequence[str] = ()
    chunk: int | None = None


@dataclass(frozen=True)
class ToolUse:
    """A call of a tool; several in one reply are parallel calls. ``id``, the call's, is made up if it is ``None``.

    An ``input`` that is a mapping makes a function call, text a call of a custom tool. ``namespace`` is that of the
    tool as the runtime offers it, such as ``mcp__echo`` (:attr:`~.responses_request.Asked.tools` has them all).
    """

    name: str
    input: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None
    namespace: str | None = None
    chunk: int | None = None


@dataclass(frozen=True)
class WebSearch:
    """A search that the service itself makes."""

    query: str


@dataclass(frozen=True)
class Item:
    """An output item in wire form, sent as added and as done; an ``id`` is given to it if it has none."""

    item: Mapping[str, Any]


@dataclass(frozen=True)
class Stop:
    """End the response as incomplete, for a reason such as ``max_output_tokens``."""

    reason: str


@dataclass(frozen=True)
class Usage:
    """Token counts to report, if the small fixed ones will not do; ``input_tokens`` includes the cached ones."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


Part: TypeAlias = Text | Reasoning | ToolUse | WebSearch | Item | Hold | Stop | Usage | ApiError | Cut
Reply: TypeAlias = Sequence[Part]
ScriptLike: TypeAlias = Callable[[Asked], Reply | None]
"""Chooses a reply; ``None`` stands for the short default text."""

CONTEXT_OVERFLOW: Final = ApiError(
    200, "context_length_exceeded", "Your input exceeds the context window of this model."
)
"""A response that fails because the input is too long. An error of status 200 is one inside the stream."""


@dataclass
class Step(BaseStep[Part]):
    """Replies for the requests whose newest user text contains ``when``."""


@dataclass
class Script(BaseScript[Part]):
    """The first step that matches answers; without one, the default."""

    default: Reply = (Text("Done."),)


def exec_command(command: str, *, id: str | None = None, **more: Any) -> ToolUse:  # noqa: A002 - as the field is named
    """A call of the shell; ``more`` may be ``yield_time_ms``, ``sandbox_permissions``, ``justification``, ..."""
    return ToolUse("exec_command", {"cmd": command, **more}, id)


def apply_patch(patch: str, *, id: str | None = None) -> ToolUse:  # noqa: A002
    """A patch by way of the custom tool; only some models are offered it."""
    return ToolUse("apply_patch", patch, id)


def in_code(call: ToolUse) -> ToolUse:
    """The same call as models make it that are offered nothing but JavaScript (the tool ``exec``)."""
    name = f"{call.namespace}__{call.name}" if call.namespace else call.name
    code = f"const result = await tools.{name}({json.dumps(call.input)});\ntext(JSON.stringify(result));\n"
    return ToolUse("exec", code, call.id)


def update_plan(*steps: tuple[str, str], explanation: str | None = None) -> ToolUse:
    """A plan; each step is its text and a status: ``pending``, ``in_progress`` or ``completed``."""
    plan = [{"step": step, "status": status} for step, status in steps]
    return ToolUse("update_plan", {"plan": plan, **({"explanation": explanation} if explanation else {})})


def mcp_tool(server: str, tool: str, arguments: Mapping[str, Any]) -> ToolUse:
    """A call of a tool of an MCP server."""
    return ToolUse(tool, arguments, namespace=f"mcp__{server}")


def request_user_input(*questions: Mapping[str, Any]) -> ToolUse:
    """Ask the user; a question has ``id``, ``header``, ``question`` and ``options`` of ``label``, ``description``."""
    return ToolUse("request_user_input", {"questions": list(questions)})


def spawn_agent(message: str, *, version: int = 1, name: str = "helper") -> ToolUse:
    """Start a subagent; version 2 agents have names."""
    if version == 1:
        return ToolUse("spawn_agent", {"message": message}, namespace="multi_agent_v1")
    return ToolUse("spawn_agent", {"task_name": name, "message": message}, namespace="collaboration")


def parse_script(document: Mapping[str, Any]) -> Script:
    """A script from its JSON form; raises :class:`ValueError` for a part that it does not know."""
    return Script.parse(document, _parse_part)


def _parse_part(part: Mapping[str, Any]) -> Part:
    match part:
        case {"text": text}:
            return Text(text, part.get("chunk"), part.get("gate"), part.get("phase"))
        case {"reasoning": summary}:
            return Reasoning(summary, part.get("content", ()), part.get("chunk"))
        case {"tool_use": name}:
            return ToolUse(name, part.get("input", {}), part.get("id"), part.get("namespace"), part.get("chunk"))
        case {"web_search": query}:
            return WebSearch(query)
        case {"item": item}:
            return Item(item)
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


def _command_once() -> Script:
    return Script([Step(None, [[exec_command("echo stand-in")], [Text("Ran it.")]])])


NAMED_SCRIPTS: Mapping[str, Callable[[], Script]] = {
    "short": _short,
    "many-deltas": _many_deltas,
    "command-once": _command_once,
}
"""Scripts that the command line knows by name: a short text; 400 deltas; one command in each turn."""
