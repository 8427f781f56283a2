"""Every block of code in ``docs/client.md`` runs."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from client.places import Place
from sayagain.cli import _parser
from sayagain.client import Outbox, connect, new_key
from sayagain.client.a2a import EXTENSION, FrozenMessage
from sayagain.runtime.events import Ask

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
AGENT = ROOT / "tests" / "chat" / "programs" / "fake_agent.py"


def blocks() -> dict[str, str]:
    """The Python blocks by the heading above each: no section has two."""
    found: dict[str, str] = {}
    for section in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]:
        code = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        if code:
            (found[section.partition("\n")[0]],) = code
    return found


def test_all_of_them_are_run_here() -> None:
    assert set(blocks()) == {"The client", "Prompts", "What the agent asks", "After a restart of the client", "A2A"}


async def run(heading: str, **names: Any) -> dict[str, Any]:
    """The names after a block, in which ``await`` may stand outside of functions."""
    code = compile(blocks()[heading], heading, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, names)
    if inspect.isawaitable(made):
        await made
    return names


def test_the_first_program(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "sayagain"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{AGENT}"\n', encoding="utf-8")
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", blocks()["The client"]],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().startswith("You said Explain this project, I believe.")
    assert (tmp_path / "outbox.db").exists()


async def test_prompts() -> None:
    place = Place()
    with anyio.fail_after(20):
        async with connect(place.open) as client:
            session = await client.new_session("/")
            names = await run("Prompts", session=session)
    assert place.store.ids(session.session_id) == [names["message_id"]]


async def test_what_the_agent_asks() -> None:
    place = Place()
    with anyio.fail_after(20):
        names = await run("What the agent asks", command=place.open)
        options = {"on_permission": names["allow"], "handlers": names["asked"], "capabilities": names["can"]}
        async with connect(place.open, **options) as client:
            session = await client.new_session("/")
            fake = place.fake(session)
            fake.ask("permission")
            form = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            fake.emit(Ask("form", session.session_id, "elicitation/create", {"sessionId": session.session_id, **form}))
            await fake.until(lambda: len(fake.answers) == 2)
    assert fake.answers["permission"] == {"outcome": {"outcome": "selected", "optionId": "allow"}}
    assert fake.answers["form"] == {"action": "accept", "content": {"colour": "red"}}


async def test_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place()
    with anyio.fail_after(30):
        async with connect(place.open) as client:
            session_id = (await client.new_session("/")).session_id
            await client._inbox.sessions[session_id].prompt("first")
        async with Outbox("outbox.db") as outbox:
            await outbox.add(session_id, "/", new_key(), [{"type": "text", "text": "left"}])
        names = await run("After a restart of the client", command=place.open)
    assert names["replay"].whole
    assert place.store.ids(session_id)[1:] == list(names["resent"].inserted.values())
    assert len(names["resent"].inserted) == 1


class Agent(BaseHTTPRequestHandler):
    """Does the work at once and loses the answer; its record has it."""

    works: dict[str, bytes]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        card = b'{"capabilities": {"extensions": [{"uri": "%s", "required": true}]}}' % EXTENSION.encode()
        self._answer(card)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["A2A-Extensions"] == EXTENSION
        if body.decode() in self.works:
            self._answer(self.works[body.decode()], "Idempotent-Replayed: true", f"A2A-Extensions: {EXTENSION}")
            return
        self.works[body.decode()] = b'{"result": {}}'
        self.close_connection = True

    def log_message(self, *_: Any) -> None: ...

    def _answer(self, body: bytes, *headers: str) -> None:
        self.send_response(200)
        for header in (*headers, f"Content-Length: {len(body)}"):
            self.send_header(*header.split(": "))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def agent() -> Iterator[str]:
    Agent.works = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a2a(agent: str) -> None:
    stored: list[str] = []
    with anyio.fail_after(30):
        names = await run("A2A", store=stored.append)
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await names["ask"](http, agent)
    assert (answer.status, answer.replayed, answer.governed) == (200, True, True)
    assert list(Agent.works) == [FrozenMessage.load(stored[0]).body.decode()]


def commands() -> list[str]:
    """The lines of the indented blocks."""
    return re.findall(
        r"^    ([a-z].*)$", re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )


@pytest.mark.parametrize("line", commands())
def test_commands_are_there(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "sayagain":
        assert _parser().parse_args(words[1:])
        return
    assert words[:2] == ["python", "-m"]
    done = subprocess.run(
        [sys.executable, *words[1:3], "--help"], cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    for option in words[3::2]:
        assert option in done.stdout.decode()
    for value in words[4::2]:
        assert value.isdecimal() or value in done.stdout.decode()
