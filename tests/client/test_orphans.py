"""The agent of a killed client lives a moment longer, and stores the prompt yet: it must not land twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import anyio
import pytest

from sayagain.client import Outbox, ResumeFailed, Retries, with_retries

AGENT = """
import json, os, sys, time
# One file for each session, made when its prompt is stored: when the file "go" is there.
folder = sys.argv[1]
for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    session = params.get("sessionId") or f"s{os.getpid()}"
    path = os.path.join(folder, session + ".stored")
    answer = {"result": {"protocolVersion": 2, "sessionId": session, "messageId": "m"}}
    if asked["method"] == "session/resume" and not os.path.exists(path):
        answer = {"error": {"code": -32002, "message": "Session not found"}}
        open(os.path.join(folder, "looked"), "w").close()
    if asked["method"] == "session/prompt":
        open(os.path.join(folder, "prompted"), "w").close()
        while not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.01)
        with open(path, "a") as file:
            file.write(json.dumps(params["prompt"]))
    try:
        print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **answer}), flush=True)
    except BrokenPipeError:
        os._exit(0)
"""
SUBMIT = Path(__file__).parent / "programs" / "submit.py"
QUICK = Retries(attempts=5, first=0.001, longest=0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(textwrap.dedent(AGENT), encoding="utf-8")
    return tmp_path


def command(folder: Path) -> list[str]:
    return [sys.executable, str(folder / "agent.py"), str(folder)]


async def killed_client(folder: Path, outbox: Path) -> str:
    """A client that is killed while its agent is about to store the prompt; the session's id."""
    first = [sys.executable, str(SUBMIT), str(outbox), "/", "the prompt", "--", *command(folder)]
    with subprocess.Popen(first, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        session_id = process.stdout.readline().decode().strip()
        assert process.stdout.readline() == b"submitted\n"
        await exists(folder / "prompted")
        process.send_signal(signal.SIGKILL)
    return session_id


async def exists(path: Path) -> None:
    # Nothing tells when a file of another process appears.
    while not path.exists():  # noqa: ASYNC110
        await anyio.sleep(0.01)


async def test_a_prompt_moves_only_when_nobody_can_store_it_any_more(folder: Path, outbox_path: Path) -> None:
    with anyio.fail_after(60):
        session_id = await killed_client(folder, outbox_path)
        async with Outbox(outbox_path) as outbox, with_retries(command(folder), QUICK, outbox=outbox) as client:
            async with anyio.create_task_group() as tasks:

                async def let_the_orphan_go_on() -> None:
                    await exists(folder / "looked")
                    (folder / "go").touch()

                tasks.start_soon(let_the_orphan_go_on)
                session, _ = await client.resume(session_id, "/")
                resent = await session.resend()
            assert session.session_id == session_id
            assert len(resent.inserted) == 1
    # The agent here knows no keys, so that it was sent again shows; what matters is where.
    assert len(stored_sessions := list(folder.glob("*.stored"))) == 1, stored_sessions


async def test_as_long_as_somebody_can_it_is_an_error_and_the_prompt_is_kept(folder: Path, outbox_path: Path) -> None:
    with anyio.fail_after(60):
        session_id = await killed_client(folder, outbox_path)
        async with Outbox(outbox_path) as outbox:
            async with with_retries(command(folder), QUICK, outbox=outbox, patience=0.5) as client:
                with pytest.raises(ResumeFailed, match="living process"):
                    await client.resume(session_id, "/")
            assert [row.session_id for row in await outbox.prompts()] == [session_id]
        (folder / "go").touch()
