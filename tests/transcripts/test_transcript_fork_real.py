"""A fork that was made offline is a session to the real CLI: it resumes, and the model is told the parent's history."""

from __future__ import annotations

import json
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.testing.messages_api import serve_messages
from sayagain_claude.transcripts.copying import delete, fork
from sayagain_claude.transcripts.ids import contains, message_ids
from sayagain_claude.transcripts.paths import find
from sayagain_claude.transcripts.reader import Damaged, read_rows
from sayagain_claude.transcripts.row import RowKind, classify, row_text
from support_claude import claude_environment

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def executable() -> str:
    spec = find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "_bundled" / "claude")


async def prompt(env: dict[str, str], cwd: Path, option: str, message_id: str, text: str) -> None:
    """Give one prompt to a CLI of its own, and wait until it has ended."""
    frame: dict[str, Any] = {
        "type": "user",
        "uuid": message_id,
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "session_id": "",
    }
    command = [
        executable(),
        "--print",
        "--input-format=stream-json",
        "--output-format=stream-json",
        "--verbose",
        option,
    ]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, input=json.dumps(frame).encode() + b"\n", cwd=cwd, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()


async def test_a_fork_resumes_with_its_parents_history(tmp_path: Path) -> None:
    config, cwd = tmp_path / "config", tmp_path / "project"
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    first, second, third = (str(uuid.uuid4()) for _ in range(3))
    async with serve_messages(keep_messages=True) as service:
        env = claude_environment(tmp_path, service, CLAUDE_CODE_EAGER_FLUSH="1")
        await prompt(env, cwd, f"--session-id={parent}", first, "The word is sassafras")
        source = find(parent, config)
        assert source is not None
        before = source.read_bytes()

        copy = fork(source, parent, child)
        assert find(child, config) == copy
        await prompt(env, cwd, f"--resume={child}", second, "Which word was it?")
        asked = service.turns("Which word was it?")
        assert len(asked) == 1
        assert "The word is sassafras" in json.dumps(asked[0].messages)

        # It went on in the copy alone.
        assert source.read_bytes() == before
        rows = [row for row in read_rows(copy) if not isinstance(row, Damaged)]
        assert {row["sessionId"] for row in rows if "sessionId" in row} == {child}
        assert [row_text(row) for row in rows if classify(row) is RowKind.PROMPT] == [
            "The word is sassafras",
            "Which word was it?",
        ]
        assert {first, second} <= message_ids(copy)
        assert not contains(source, second)

        # The parent lives on, and deleting it leaves the fork whole.
        await prompt(env, cwd, f"--resume={parent}", third, "Still there?")
        assert "sassafras" in json.dumps(service.turns("Still there?")[0].messages)
        assert contains(source, third)
        delete(source)
        assert find(parent, config) is None
        assert contains(copy, first)
