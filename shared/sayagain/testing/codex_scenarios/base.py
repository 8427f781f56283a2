"""What a scenario of Codex is, and the short ways to write one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from sayagain.testing.codex_process import CodexProcess, Decide, accept
from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Reply, Script, Step, Text, ToolUse

__all__ = ["CODE_MODEL", "FREE", "PLAIN_MODEL", "V1_MODEL", "CodexScenario", "CodexStage", "always", "asking", "once"]

PLAIN_MODEL: Final = "gpt-5.5"
"""A model that is offered its tools one by one, ``apply_patch`` among them (measured)."""

CODE_MODEL: Final = "gpt-6.1-sol"
"""The default model: it gets its tools by way of JavaScript, and subagents of version 2."""

V1_MODEL: Final = "stand-in-model"
"""One that the runtime has not heard of: subagents of version 1, no patches."""

FREE: Final[Mapping[str, Any]] = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
"""No sandbox and no approvals."""

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]
Play: TypeAlias = "Callable[[CodexStage], Awaitable[None]]"


@dataclass(frozen=True)
class CodexStage:
    """What a scenario has to work with: a way to start the runtime, and the service with its gates.

    ``run(decide=accept, **thread)`` opens the scenario's thread, and later resumes it.
    """

    run: Callable[..., AbstractAsyncContextManager[CodexProcess]]
    service: ResponsesService
    project: Path


@dataclass(frozen=True)
class CodexScenario:
    """One recording: what it shows, what it needs, and how it goes.

    ``thread`` goes into ``thread/start``, and ``config`` are lines of the configuration. ``keeps`` are texts of our
    own making that come from neither prompts, replies nor ``files``, such as what a command prints: the scrubber
    leaves them as they are.
    """

    name: str
    shows: str
    steps: Sequence[Step]
    play: Play
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    thread: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: str = PLAIN_MODEL
    config: str = ""
    keeps: Sequence[str] = ()

    def script(self) -> Script:
        """A fresh script."""
        return Script([Step(step.when, step.replies, step.times) for step in self.steps])


def asking(*prompts: Prompt, decide: Decide = accept, **turn: Any) -> Play:
    """A play that asks one prompt after the other; ``turn`` goes into each ``turn/start``."""

    async def play(stage: CodexStage) -> None:
        async with stage.run(decide=decide) as codex:
            for prompt in prompts:
                await codex.ask(prompt, **turn)

    return play


def always(*replies: Reply) -> list[Step]:
    """Steps that give these replies to any prompt, one after each round."""
    return [Step(None, replies)]


def once(call: ToolUse, end: str = "Done with it.") -> list[Step]:
    """Steps that call one tool for any prompt."""
    return always([call], [Text(end)])
