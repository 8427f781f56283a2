"""What the demo shows: a prompt, a crash before its answer is read, and the same prompt sent again."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from sayagain.demo.agent import AgentProcess, start_agent
from sayagain.demo.profiles import PROFILES, DemoProfile
from sayagain.demo.timeline import Timeline
from sayagain.identity import derive_message_id
from sayagain.protocol.versions import PROTOCOL_VERSION
from sayagain.testing.stand_in import StandIn

__all__ = ["tell"]

PROMPT: Final = "Deploy the new version"
REPLY: Final = "Deployed. (A second run would have deployed it twice.)"

PATIENCE: Final = 60.0
"""Seconds for the whole story; a cold start of the runtime takes a few."""


async def tell(runtime: str) -> bool:
    """Run the story; whether it ended as promised."""
    profile = PROFILES[runtime]
    timeline = Timeline()
    timeline.title(f"sayagain demo {runtime}: real {profile.title}, a stand-in for the model, no account, no network")
    with tempfile.TemporaryDirectory(prefix="sayagain-demo-", ignore_cleanup_errors=True) as folder:
        async with profile.serve(PROMPT, REPLY) as service:
            with anyio.fail_after(PATIENCE):
                return await _tell(runtime, profile, timeline, Path(folder), service)


async def _tell(runtime: str, profile: DemoProfile, timeline: Timeline, folder: Path, service: StandIn[Any]) -> bool:
    env = profile.environment(folder, service.url)
    project = folder / "project"
    project.mkdir()
    key = str(uuid.uuid4())

    async with start_agent(runtime, env) as agent:
        await _initialize(agent, timeline)
        timeline.sent("session/new")
        session, _ = await agent.request("session/new", {"cwd": str(project)})
        session_id: str = session["sessionId"]
        timeline.received(f"session {session_id}")
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": PROMPT}], "idempotencyKey": key}
        timeline.sent(f'session/prompt "{PROMPT}", with an idempotencyKey')
        await agent.send("session/prompt", prompt)
        await service.asked(PROMPT)
        timeline.note("the model is asked; the client reads nothing")
        await _until_replied(profile, folder, session_id)
        timeline.note(f"{profile.title} has stored the prompt and the reply")
        await agent.kill()
        timeline.crashed("the agent, before the client read an answer: did the prompt land?")

    async with start_agent(runtime, env) as agent:
        timeline.note("a new agent process")
        await _initialize(agent, timeline)
        timeline.sent("session/resume, with replay")
        resume = {"sessionId": session_id, "cwd": str(project), "replayFrom": {"type": "start"}}
        _, updates = await agent.request("session/resume", resume)
        for update in updates:
            if shown := _describe(update):
                timeline.received(shown)
        timeline.sent("session/prompt, the same again with the same key")
        answer, _ = await agent.request("session/prompt", prompt)
        timeline.received(f"messageId {answer['messageId']}: it landed before, nothing runs again")
        await agent.close()

    message_id = derive_message_id(session_id, key)
    stored = profile.stored(folder, session_id, message_id)
    asked = service.count(PROMPT)
    complete = sum(update["sessionUpdate"] == "replay_complete" for update in updates)
    good = answer["messageId"] == message_id and (stored, asked, complete) == (1, 1, 1)
    timeline.verdict(
        f"prompts sent: 2; messages stored in the transcript: {stored}; "
        f"times the model was asked: {asked}; replays marked complete: {complete}",
        good=good,
    )
    return good


async def _initialize(agent: AgentProcess, timeline: Timeline) -> None:
    timeline.sent("initialize")
    info = {"name": "sayagain-demo", "version": "1"}
    result, _ = await agent.request("initialize", {"protocolVersion": PROTOCOL_VERSION, "info": info})
    timeline.received(f"{result['info']['title']}, protocol {result['protocolVersion']}")


def _describe(update: Mapping[str, Any]) -> str | None:
    kind: str = update["sessionUpdate"]
    match kind:
        case "user_message" | "agent_message":
            text = "".join(block.get("text", "") for block in update["content"])
            return f'{kind} "{text}"'
        case "replay_complete":
            return "replay_complete: the history is whole"
        case "state_update":
            return f"state_update {update['state']}"
        case _:
            return None


async def _until_replied(profile: DemoProfile, folder: Path, session_id: str) -> None:
    # Nothing tells when a file of another process changes, and the client of this story must not read the agent.
    while True:
        if profile.has_reply(folder, session_id, REPLY):
            return
        await anyio.sleep(0.02)
