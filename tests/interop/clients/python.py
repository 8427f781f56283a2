"""Drives the agent through the Python SDK's v2 client, and tells what it saw as one JSON array on standard output.

usage: python python.py CWD COMMAND...   (runs in an environment that has the SDK; COMMAND starts the agent)
"""

import asyncio
import json
import os
import sys
from typing import Any

from acp import RequestError
from acp.experimental.v2 import ClientSideConnection, schema
from pydantic import BaseModel

CWD, *COMMAND = sys.argv[1:]


def plain(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


class Seen:
    """The client's handlers."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self.changed = asyncio.Event()
        self.idle_count = 0

    def saw(self, event: str, **fact: Any) -> None:
        self.facts.append({"event": event, **fact})
        self.changed.set()

    async def session_update(self, session_id: str, update: BaseModel, **_: Any) -> None:
        self.saw("update", sessionId=session_id, update=plain(update))

    async def request_permission(self, session_id: str, title: str, options: Any, **rest: Any) -> Any:
        params = {"sessionId": session_id, "title": title, "options": [plain(option) for option in options]}
        subject = rest.get("subject")
        self.saw("permission", params=params | ({"subject": plain(subject)} if subject else {}))
        (option,) = (o for o in options if o.kind == "allow_once")
        return {"outcome": {"outcome": "selected", "optionId": option.option_id}}

    def updates(self, session_id: str, kind: str) -> list[dict[str, Any]]:
        return [
            fact["update"]
            for fact in self.facts
            if fact["event"] == "update"
            and fact["sessionId"] == session_id
            and fact["update"].get("sessionUpdate") == kind
        ]

    async def until(self, condition: Any) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def turn_ends(self, session_id: str) -> None:
        def idles() -> int:
            return sum(update["state"] == "idle" for update in self.updates(session_id, "state_update"))

        await self.until(lambda: idles() > self.idle_count)
        self.idle_count = idles()


class Agent:
    """One agent process; killed at the end."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    async def __aenter__(self) -> "Agent":
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe, env=os.environ)
        self.client = ClientSideConnection(self.seen, self.process.stdin, self.process.stdout)
        info = schema.Implementation(name="interop", version="1.0")
        await self.call("initialize", self.client.initialize(protocol_version=2, info=info))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.kill()
        await self.process.wait()
        await self.client.close()

    async def call(self, method: str, request: Any) -> Any:
        try:
            result = await request
        except RequestError as error:
            self.seen.saw("error", method=method, code=error.code, message=str(error), data=error.data)
            return None
        self.seen.saw("result", method=method, result=plain(result))
        return result

    async def prompt(self, session_id: str, text: str, key: str | None = None) -> None:
        block = schema.TextContentBlock(type="text", text=text)
        if key is None:
            request = self.client.prompt(session_id=session_id, prompt=[block])
        else:
            request = self.keyed(session_id, block, key)
        await self.call("session/prompt", request)

    async def keyed(self, session_id: str, block: BaseModel, key: str) -> Any:
        # The SDK's model does not know the field and drops it: its connection, one layer below, sends any params.
        params = {"sessionId": session_id, "prompt": [plain(block)], "idempotencyKey": key}
        return schema.PromptResponse.model_validate(await self.client._conn.send_request("session/prompt", params))


async def main() -> None:
    seen = Seen()
    async with Agent(seen) as agent:
        client = agent.client
        session_id = (await agent.call("session/new", client.new_session(cwd=CWD))).session_id
        await agent.prompt(session_id, "Say something", "key-1")
        await seen.turn_ends(session_id)
        await agent.prompt(session_id, "Say something", "key-1")
        await agent.prompt(session_id, "Write a file")
        await seen.turn_ends(session_id)
        await agent.prompt(session_id, "Delegate")
        await seen.turn_ends(session_id)
        chunks = len(seen.updates(session_id, "agent_message_chunk"))
        await agent.prompt(session_id, "Long work")
        await seen.until(lambda: len(seen.updates(session_id, "agent_message_chunk")) > chunks)
        await client.cancel_session(session_id=session_id)
        await seen.turn_ends(session_id)
        await agent.call("session/list", client.list_sessions(cwd=CWD))
        await agent.call("session/close", client.close_session(session_id=session_id))
        await agent.prompt(session_id, "Too late")
    async with Agent(seen) as agent:
        client = agent.client
        start = schema.ReplayFromStartVariant(type="start")
        await agent.call("session/resume", client.resume_session(session_id=session_id, cwd=CWD, replay_from=start))
        await agent.prompt(session_id, "Say something", "key-1")
        fork = (await agent.call("session/fork", client.fork_session(session_id=session_id, cwd=CWD))).session_id
        await agent.call("session/list", client.list_sessions())
        await agent.call("session/delete", client.delete_session(session_id=fork))
        await agent.call("session/list", client.list_sessions())
    print(json.dumps(seen.facts))


asyncio.run(main())
