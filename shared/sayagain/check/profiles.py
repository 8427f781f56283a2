"""How to make an agent do things: with a model of our own behind it, or with nothing but prompts.

A profile gives the environment of the agent, and texts for prompts that make it do what a check needs. Every text has
a token, a word that stands in no other prompt, by which its message and its work are known again.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sayagain.check.model import Feature
from sayagain.testing.stand_in import StandIn
from sayagain.testing.stand_in_script import AskedLike, Hold

__all__ = [
    "PLAIN_PATIENCE",
    "SERVICE_PATIENCE",
    "STREAMED",
    "Plain",
    "Profile",
    "ServiceProfile",
    "asked_for",
    "model_reply",
    "reported",
    "run_profile",
]

STREAMED: Final = tuple(f"word{number} " for number in range(8))
"""What a streamed answer is made of; each piece comes after one :meth:`Profile.step`."""

PartT = TypeVar("PartT")

PLAIN_PATIENCE: Final = 120.0
"""Seconds. A model that is asked for one word may think about it, or wait for its turn."""

SERVICE_PATIENCE: Final = 30.0
"""Seconds. The stand-in answers at once; this is for the agent and its runtime to start on a busy machine."""

_WISH: Final = re.compile(r"\[(hold|stream|delegate|report|ask) ([a-z0-9-]+)\]")


class Profile(Protocol):
    """What a check can make the agent do."""

    @property
    def name(self) -> str: ...

    @property
    def features(self) -> frozenset[Feature]:
        """What this profile can do beyond :meth:`plain`."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """The agent's whole environment."""
        ...

    @property
    def cwd(self) -> Path:
        """The directory for sessions, absolute."""
        ...

    @property
    def patience(self) -> float:
        """Seconds to wait for anything."""
        ...

    def plain(self, token: str) -> str:
        """A prompt that is answered soon."""
        ...

    def holding(self, token: str) -> str:
        """A prompt whose work goes on until :meth:`release`."""
        ...

    def streaming(self, token: str) -> str:
        """A prompt that is answered with :data:`STREAMED`, a piece a :meth:`step`."""
        ...

    def delegating(self, token: str) -> str:
        """A prompt that makes the agent start a subagent, and wait for it."""
        ...

    def asking(self, token: str) -> str:
        """A prompt that makes the agent ask for a permission."""
        ...

    def compacting(self) -> str:
        """A prompt that makes the agent compact its context."""
        ...

    async def asked(self, token: str) -> None:
        """Wait until the model was asked for the work of that prompt."""
        ...

    def release(self, token: str) -> None:
        """Let the work of a holding prompt end."""
        ...

    def step(self, token: str, steps: int) -> None:
        """Let so many pieces of a streaming prompt pass."""
        ...

    def count(self, token: str) -> int:
        """How often the model was asked to start on that prompt."""
        ...

    def spoiled(self, session_id: str) -> AbstractContextManager[None]:
        """Inside, the stored session can be read in part only."""
        ...


class Texts:
    """The texts of prompts, for profiles that understand them by :func:`asked_for`."""

    def spoiled(self, session_id: str) -> AbstractContextManager[None]:
        """See :meth:`Profile.spoiled`; not possible with a store that is not ours."""
        raise NotImplementedError

    def plain(self, token: str) -> str:
        """See :meth:`Profile.plain`."""
        return f"Say one word about {token}."

    def holding(self, token: str) -> str:
        """See :meth:`Profile.holding`."""
        return f"[hold {token}] Work on it."

    def streaming(self, token: str) -> str:
        """See :meth:`Profile.streaming`."""
        return f"[stream {token}] Tell me all."

    def delegating(self, token: str) -> str:
        """See :meth:`Profile.delegating`."""
        return f"[delegate {token}] Let a subagent do it."

    def asking(self, token: str) -> str:
        """See :meth:`Profile.asking`."""
        return f"[ask {token}] Touch a file."

    def compacting(self) -> str:
        """See :meth:`Profile.compacting`. A command of both runtimes."""
        return "/compact"


def asked_for(prompt: str) -> tuple[str, str]:
    """What a prompt of :class:`Texts` wishes, and its token; ``("plain", "")`` if that is nothing special."""
    found = _WISH.search(prompt)
    return (found[1], found[2]) if found else ("plain", "")


def reported(token: str) -> str:
    """The prompt of the subagent that :meth:`Texts.delegating` asks for."""
    return f"[report {token}] Do the work."


def model_reply(
    asked: AskedLike, text: Callable[..., PartT], *, delegate: Callable[[str], PartT], ask: Callable[[str], PartT]
) -> list[PartT | Hold] | None:
    """What the model says to a prompt of :class:`Texts`.

    ``text`` is the service's part of that name; ``delegate`` makes a call that starts a subagent with a prompt, and
    ``ask`` one that runs a command which the user is asked about.
    """
    if asked.kind not in ("turn", "continuation"):
        return None
    wish, token = asked_for(asked.newest_text)
    match wish, asked.round:
        case "hold", 0:
            return [text("Working. "), Hold(token), text("Worked.")]
        case "stream", 0:
            return [text("".join(STREAMED), chunk=len(STREAMED[0]), gate=token)]
        case "delegate", 0:
            return [delegate(reported(token))]
        case "report", 0:
            return [text("The subagent did it.")]
        case "ask", 0:
            return [ask(f"touch {token}")]
        case _:
            return [text("Done.")]


class Plain(Texts):
    """Any agent with whatever it has: the environment of the caller, prompts, and no way to look behind it."""

    name = "plain"
    features: frozenset[Feature] = frozenset()

    def __init__(self, cwd: Path, patience: float = PLAIN_PATIENCE) -> None:
        self.env = dict(os.environ)
        self.cwd = cwd
        self.patience = patience

    async def asked(self, token: str) -> None:
        """Not possible here."""
        raise NotImplementedError

    def release(self, token: str) -> None:
        """Not possible here."""
        raise NotImplementedError

    def step(self, token: str, steps: int) -> None:
        """Not possible here."""
        raise NotImplementedError

    def count(self, token: str) -> int:
        """Not possible here."""
        raise NotImplementedError


class ServiceProfile(Texts):
    """A known runtime with a stand-in for its model service."""

    def __init__(
        self,
        name: str,
        service: StandIn[Any],
        env: Mapping[str, str],
        cwd: Path,
        features: frozenset[Feature],
        patience: float = SERVICE_PATIENCE,
    ) -> None:
        self.name = name
        self._service = service
        self.env = env
        self.cwd = cwd
        self.features = features
        self.patience = patience

    async def asked(self, token: str) -> None:
        """See :meth:`Profile.asked`."""
        await self._service.asked(token)

    def release(self, token: str) -> None:
        """See :meth:`Profile.release`."""
        self._service.release(token)

    def step(self, token: str, steps: int) -> None:
        """See :meth:`Profile.step`."""
        self._service.step(token, steps)

    def count(self, token: str) -> int:
        """See :meth:`Profile.count`. A title may be asked for with the prompt in the middle of other words."""
        prompts = (self.plain(token), self.holding(token), self.streaming(token))
        return sum(asked.newest_text.strip() in prompts for asked in self._service.turns(token))


def run_profile(
    name: str, folder: Path, cwd: Path | None, patience: float | None = None
) -> AbstractAsyncContextManager[Profile]:
    """A profile that is ready, with its services; ``folder`` is its own and empty.

    ``cwd`` and ``patience`` (seconds) are the user's wish.
    """
    if name == "plain":
        return _plain((cwd or folder).absolute(), patience or PLAIN_PATIENCE)
    if name == "claude":
        from sayagain.check.profile_claude import claude_profile

        return claude_profile(folder, patience or SERVICE_PATIENCE)
    from sayagain.check.profile_codex import codex_profile

    return codex_profile(folder, patience or SERVICE_PATIENCE)


@asynccontextmanager
async def _plain(cwd: Path, patience: float) -> AsyncGenerator[Profile]:
    yield Plain(cwd, patience)
