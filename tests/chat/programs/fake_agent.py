"""Our agent over the fake runtime on standard input and output; it asks for a permission where a prompt says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from sayagain.agent import Agent
from sayagain.runtime.events import Ask, Foreground
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.fake_runtime import FakeRuntime, FakeSession, text
from sayagain.transports.stdio import take_stdio

FORM: Mapping[str, Any] = {
    "type": "object",
    "title": "A form",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "as on the door", "minLength": 2},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
        "sure": {"type": "boolean", "default": True},
    },
    "required": ["name", "colour"],
}

ELICITATIONS: Mapping[str, Mapping[str, Any]] = {
    "form": {"mode": "form", "message": "Who are you?", "requestedSchema": FORM},
    "sure": {"mode": "form", "message": "Really?", "requestedSchema": {"type": "object", "properties": {}}},
    "page": {"mode": "url", "message": "Sign in", "elicitationId": "e", "url": "https://example.com/\x1bin"},
    "odd": {"mode": "_odd", "message": "What?"},
}
"""By the prompt that makes the agent ask."""


class Runtime(FakeRuntime):
    def _session(self, session_id: str, setup: SessionSetup) -> FakeSession:
        session = self.sessions[session_id] = Session(self, session_id, setup)
        return session


class Session(FakeSession):
    async def submit(self, message_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        said = content[0]["text"]
        self.submitted.append(message_id)
        self.contents[message_id] = content
        self.emit(Foreground(self.session_id, "running"))
        self.store(message_id)
        chunk = {"sessionUpdate": "agent_message_chunk", "messageId": f"re {message_id}"}
        self.update({**chunk, "content": text(f"You said {said}")})
        if said == "may you":
            self.ask("ask")
        elif said == "may you edit":
            change = {"operation": "modify", "path": "/notes"}
            call = {"toolCallId": "t", "title": "Edit", "content": [{"type": "diff", "changes": [change]}]}
            self.ask("ask", subject={"type": "tool_call", "toolCall": call})
        elif said in ELICITATIONS:
            params = {"sessionId": self.session_id, **ELICITATIONS[said]}
            self.emit(Ask("ask", self.session_id, "elicitation/create", params))
            if said == "odd":
                self.finish()
        elif said == "withdraw":
            self.emit(Ask("ask", self.session_id, "elicitation/create", {"sessionId": "", **ELICITATIONS["form"]}))
            self.withdraw_ask("ask")
            self.finish()
        elif said != "wait":
            self.update({**chunk, "content": text(", I believe.\x1b[2J")})
            self.finish()

    async def answer(self, ask_id: str, result: Mapping[str, Any] | None) -> None:
        await super().answer(ask_id, result)
        outcome: Mapping[str, Any] = (result or {}).get("outcome") or {}
        if result is not None and "action" in result:
            self.say(f"You filled in {json.dumps(result)}.", stored=False)
            self.finish()
            return
        self.say(f"You chose {outcome.get('optionId', outcome.get('outcome'))}", stored=False)
        self.finish()

    async def interrupt(self) -> None:
        await super().interrupt()
        self.finish("cancelled")


async def main() -> None:
    async with Runtime() as runtime, Agent(runtime) as agent:
        await agent.serve(take_stdio())


anyio.run(main)
