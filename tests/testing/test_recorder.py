from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing import mcp_echo
from sayagain.testing.recorder import record
from sayagain.testing.scenarios import SCENARIOS

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"


def rows(folder: Path) -> list[tuple[Any, Any]]:
    lines = (folder / "transcript.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [(row["type"], row["message"]["content"]) for row in found if row["type"] in ("user", "assistant")]


@pytest.mark.real
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ["plain", "bash", "killed_tool", "compaction"])
async def test_a_recording_says_what_the_committed_one_says(name: str, tmp_path: Path) -> None:
    folder = await record(SCENARIOS[name], tmp_path)
    assert rows(folder) == rows(FIXTURES / name)


def test_the_mcp_server_answers_by_hand() -> None:
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}},
        {"jsonrpc": "2.0", "id": 4, "method": "nothing"},
    ]
    done = subprocess.run(
        [sys.executable, str(Path(mcp_echo.__file__))],
        input="".join(json.dumps(line) + "\n" for line in asked),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=20,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4]
    assert answers[2]["result"]["content"][0]["text"] == "echo: hi"
    assert answers[3]["error"]["code"] == -32601
