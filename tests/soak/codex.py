"""Where the agents of one run live in front of the real Codex, and its own record for the checker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from faults.harness import Agent, Rig
from sayagain.testing.responses_api import ResponsesService, serve_responses
from sayagain.testing.responses_request import Asked
from sayagain.testing.responses_script import Hold, Reply, ScriptLike, Text, exec_command
from support_checker import Stored, Violation
from support_codex import codex_environment, codex_folder, codex_pids, user_messages

__all__ = ["codex_rig"]


class CodexAgent(Agent):
    """One ``sayagain codex``."""

    def _signal_runtime(self, number: int) -> None:
        try:
            environ = Path(f"/proc/{self.process.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return  # it has ended, and its runtime with it
        env = dict(entry.decode().partition("=")[::2] for entry in environ if entry)
        for pid in codex_pids(env):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


class CodexRig(Rig):
    """One CODEX_HOME with one stand-in for the model."""

    runtime = "codex"
    home = "CODEX_HOME"
    agents = CodexAgent
    service: ResponsesService

    def environment(self, **extra: str) -> dict[str, str]:
        return codex_environment(self.folder, self.service, **extra)

    def stored(self) -> dict[str, list[Stored]]:
        paths = (self.folder / "codex").glob("sessions/**/rollout-*.jsonl")
        # rollout-<date>T<time>-<thread id>[_<revision>].jsonl
        threads = {path.stem.partition("_")[0][-36:] for path in paths}
        return {thread: [*map(_stored, user_messages(self.env, thread))] for thread in sorted(threads)}

    def violations(self) -> list[Violation]:
        """The checker's, and the ghosts that it can't see: what the model reads is what is stored, once."""
        found = super().violations()
        stored = [message.text for messages in self.stored().values() for message in messages]
        last = self.service.requests[-1] if self.service.requests else None
        for text in sorted(self.texts) if last is not None else ():
            read = sum(said.strip() == text for said in last.inputs)
            if read != stored.count(text):
                found.append(Violation("ghost", f"{text!r} is stored {stored.count(text)} times, read {read} times"))
        return found


def _stored(row: Mapping[str, Any]) -> Stored:
    item = row["payload"]["item"]
    text = "".join(part.get("text", "") for part in item["content"])
    return Stored(item.get("client_id") or item["id"], datetime.fromisoformat(row["timestamp"]).timestamp(), text)


def _model(gate: Path) -> ScriptLike:
    """By the kind of prompt, its first word: ``slow`` stops in the middle of its answer at a gate that has the
    prompt's name, ``tool`` asks whether it may run a shell command and runs it until the file ``gate`` exists,
    ``echo`` runs a short one without asking."""
    stay = f"until [ -e {gate} ]; do sleep 0.05; done"

    def reply(asked: Asked) -> Reply | None:
        text = asked.newest_text.splitlines()[-1] if asked.newest_text else ""
        if asked.kind == "side" or asked.round > 0:
            return None
        match text.partition(" ")[0]:
            case "slow":
                return [Text("I begin "), Hold(text), Text("and end.")]
            case "tool":
                return [exec_command(stay, sandbox_permissions="require_escalated", justification="May I?")]
            case "echo":
                return [Text("I look. "), exec_command("echo stand-in")]
            case _:
                return None

    return reply


@asynccontextmanager
async def codex_rig() -> AsyncIterator[Rig]:
    """A rig in a folder of its own."""
    with codex_folder() as folder:
        async with serve_responses(_model(folder / "gate")) as service:
            rig = CodexRig(folder, service)
            try:
                yield rig
            finally:
                rig.close()
