"""What a scenario is, and the short ways to write one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from sayagain.testing.claude_process import ClaudeProcess, Permissions, allow
from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Reply, Script, Step, Text, ToolUse

__all__ = ["EAGER_TOOLS", "OLDER_MODEL", "Prompt", "Scenario", "Stage", "always", "asking", "bash", "once"]

EAGER_TOOLS: Final = {"ENABLE_TOOL_SEARCH": "false"}
"""Environment in which every tool is offered at once; else some must be searched for before they can be called."""

OLDER_MODEL: Final = ("--model", "claude-sonnet-4-5")
"""Arguments for a model that the runtime gives its planning tools; the default one gets none (measured)."""

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Stage:
    """What a scenario has to work with: a way to start the runtime, and the service with its gates.

    ``run(arguments=(), permissions=allow)`` opens the scenario's session, and later resumes it.
    """

    run: Callable[..., AbstractAsyncContextManager[ClaudeProcess]]
    service: MessagesService
    project: Path


@dataclass(frozen=True)
class Scenario:
    """One recording: what it shows, what it needs, and how it goes.

    ``@/`` at the start of a string in a tool's input stands for the project folder. ``keeps`` are texts of our own
    making that come from neither prompts, replies nor ``files``, such as what a command prints: the scrubber leaves
    them as they are.
    """

    name: str
    shows: str
    steps: Sequence[Step]
    play: Callable[[Stage], Awaitable[None]]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, Any] | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    keeps: Sequence[str] = ()

    def script(self) -> Script:
        """A fresh script."""
        return Script([Step(step.when, step.replies, step.times) for step in self.steps])


def asking(
    *prompts: Prompt, arguments: Sequence[str] = (), permissions: Permissions = allow
) -> Callable[[Stage], Awaitable[None]]:
    """A play that asks one prompt after the other."""

    async def play(stage: Stage) -> None:
        async with stage.run(arguments=arguments, permissions=permissions) as claude:
            for prompt in prompts:
                await claude.ask(prompt)

    return play


def always(*replies: Reply) -> list[Step]:
    """Steps that give these replies to any prompt, one after each round."""
    return [Step(None, replies)]


def once(call: ToolUse, end: str = "Done with it.") -> list[Step]:
    """Steps that call one tool for any prompt."""
    return always([call], [Text(end)])


def bash(command: str, description: str = "Run") -> ToolUse:
    """A call of the shell."""
    return ToolUse("Bash", {"command": command, "description": description})
