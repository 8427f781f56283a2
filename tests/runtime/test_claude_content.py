"""What a prompt may carry, and tools and commands of MCP servers, in front of the real Claude Code."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sayagain.testing import mcp_echo
from sayagain.testing.messages_api import MessagesService, serve_messages
from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process
from support_wire import WireError, entities, text

pytestmark = pytest.mark.real

PDF = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()


@pytest.fixture
async def service(script: Script) -> AsyncIterator[MessagesService]:
    async with serve_messages(script, keep_messages=True) as service:
        yield service


class TestBlocks:
    async def test_documents_and_texts_in_binary_reach_the_model_and_come_back(
        self, agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
    ) -> None:
        notes = base64.b64encode("möwe\n".encode()).decode()
        blocks = [
            text("Look at these"),
            {
                "type": "resource",
                "resource": {"uri": "file:///a.pdf", "blob": PDF, "mimeType": "application/pdf"},
            },
            {"type": "resource", "resource": {"uri": "file:///n.txt", "blob": notes, "mimeType": "text/plain"}},
        ]
        session_id = await agent.wire.new(cwd)
        await agent.wire.request("session/prompt", {"sessionId": session_id, "prompt": blocks})
        await agent.wire.idle(session_id)
        heard = str(service.turns("Look at these")[0].messages)
        assert PDF in heard
        assert "möwe" in heard
        await agent.close()
        async with agent_process(env) as second:
            await second.wire.initialize()
            await second.wire.resume(session_id, cwd, replay=True)
            (message,) = second.wire.updates(session_id, "user_message")
            assert message["content"][:2] == blocks[:2]
            assert message["content"][2]["resource"] == {
                "uri": "file:///n.txt",
                "text": "möwe\n",
                "mimeType": "text/plain",
            }

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "audio", "data": "eA==", "mimeType": "audio/wav"},
            {"type": "image", "data": "eA==", "mimeType": "image/tiff"},
            {"type": "_custom"},
        ],
        ids=["audio", "tiff", "custom"],
    )
    async def test_what_the_runtime_cannot_take_is_refused_with_its_place(
        self, agent: AgentProcess, cwd: str, block: dict[str, Any]
    ) -> None:
        session_id = await agent.wire.new(cwd)
        with pytest.raises(WireError) as caught:
            await agent.wire.request("session/prompt", {"sessionId": session_id, "prompt": [text("See"), block]})
        assert caught.value.code == -32602
        assert caught.value.data["field"].startswith("prompt.1.")


class EchoOverHttp(BaseHTTPRequestHandler):
    """The echo server over streamable HTTP, without streams."""

    headers_seen: ClassVar[list[str | None]]

    def do_POST(self) -> None:
        self.headers_seen.append(self.headers["X-Token"])
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            self.answer(202, b"")
            return
        result = mcp_echo.answer(message["method"], message.get("params") or {})
        outcome = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode())

    def do_GET(self) -> None:
        self.answer(405, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def echo_url() -> Iterator[str]:
    EchoOverHttp.headers_seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), EchoOverHttp) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


class TestHttpServers:
    @pytest.fixture
    def script(self) -> Script:
        return Script([Step("Echo", [[ToolUse("mcp__mine__echo", {"text": "yes"})], [Text("Fine.")]])])

    async def test_a_server_over_http_serves_its_tools_and_gets_its_headers(
        self, agent: AgentProcess, cwd: str, echo_url: str
    ) -> None:
        agent.wire.handle(
            "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        )
        token = {"name": "X-Token", "value": "a-secret-token"}
        server = {"type": "http", "name": "mine", "url": echo_url, "headers": [token]}
        session_id = await agent.wire.new(cwd, mcpServers=[server])
        await agent.wire.prompt(session_id, "Echo")
        await agent.wire.idle(session_id)
        call: dict[str, Any] = {}
        for update in agent.wire.updates(session_id, "tool_call_update"):
            call |= update
        assert (call["title"], call["status"]) == ("mine: echo", "completed")
        assert call["content"] == [{"type": "content", "content": text("echo: yes")}]
        assert set(EchoOverHttp.headers_seen) == {"a-secret-token"}
        assert "a-secret-token" not in str(agent.wire.lines)


PROMPTING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"prompts": {}},
                      "serverInfo": {"name": "s", "version": "1"}}
        case "prompts/list":
            result = {"prompts": [{"name": "greet", "description": "Greets", "arguments": [{"name": "who"}]}]}
        case "prompts/get":
            words = "Please greet " + message["params"].get("arguments", {}).get("who", "nobody")
            result = {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
        case _:
            result = {}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_a_servers_prompts_are_commands(
    agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
) -> None:
    program = Path(cwd, "server.py")
    program.write_text(PROMPTING, encoding="utf-8")
    server = {"type": "stdio", "name": "mine", "command": sys.executable, "args": [str(program)], "env": []}
    session_id = await agent.wire.new(cwd, mcpServers=[server])
    await agent.wire.until(
        lambda: any(
            command["name"] == "mcp__mine__greet"
            for update in agent.wire.updates(session_id, "available_commands_update")
            for command in update["availableCommands"]
        )
    )
    await agent.wire.prompt(session_id, "/mcp__mine__greet Ann")
    await agent.wire.idle(session_id)
    assert service.count("Please greet Ann") == 1
    assert next(iter(entities(agent.wire.updates(session_id)).values())) == "/mcp__mine__greet Ann"
