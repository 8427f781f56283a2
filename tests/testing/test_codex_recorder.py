from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing import mcp_asking
from sayagain.testing.codex_process import accept, decide
from sayagain.testing.codex_recorder import record
from sayagain.testing.codex_scenarios import SCENARIOS
from sayagain.testing.codex_scrubber import CodexScrubber, shell_words

FIXTURES = Path(__file__).parents[2] / "fixtures" / "codex"


def stored(folder: Path) -> list[Any]:
    """The stored items of every thread in order, without what is measured or named by chance."""
    found: list[Any] = []
    for line in (folder / "items.jsonl").read_text(encoding="utf-8").splitlines():
        exchange = json.loads(line)
        if exchange["method"] == "thread/items/list":
            items = [entry["item"] for entry in exchange["result"]["data"]]
            found.append([(item["type"], item.get("status"), item.get("text")) for item in items])
    return found


@pytest.mark.real
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ["plain", "command", "patches_approved", "compaction_in_turn", "subagent_v2"])
async def test_a_recording_says_what_the_committed_one_says(name: str, tmp_path: Path) -> None:
    folder = await record(SCENARIOS[name], tmp_path)
    assert stored(folder) == stored(FIXTURES / name)
    assert any(stored(folder))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_prompts_are_stored_once_unless_the_scenario_takes_them_away(name: str) -> None:
    about = json.loads((FIXTURES / name / "scenario.json").read_text(encoding="utf-8"))
    text = (FIXTURES / name / "items.jsonl").read_text(encoding="utf-8")
    pages = [json.loads(line) for line in text.splitlines()]
    known = [page for page in pages if page["params"].get("threadId") == about["threadId"] and "result" in page]
    ids = [entry["item"].get("clientId") for page in known for entry in page["result"]["data"] if "item" in entry] + [
        item.get("clientId") for page in known for turn in page["result"]["data"] for item in turn.get("items", [])
    ]
    taken_away = {"reverted", "steer_lost"}
    for client_id in about["prompts"]:
        assert ids.count(client_id) == 1 or name in taken_away, client_id
    assert name not in taken_away or len(about["prompts"]) == sum(map(bool, ids)) + 1


def scrubber(*ours: str) -> CodexScrubber:
    return CodexScrubber("test", {"/build/home": "/home/user"}, ours)


def test_the_scrubber_knows_what_codex_makes_of_our_texts() -> None:
    scrub = scrubber("echo hello", "one", "two").scrub
    assert scrub("/bin/bash -lc 'echo hello'", "command") == "/bin/bash -lc 'echo hello'"
    assert scrub("/bin/bash -lc 'rm everything'", "command") == "<placeholder 29 chars>"
    patch = "diff --git a/x b/x\nindex 0000..1234\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert scrub(patch, "diff") == patch
    assert scrub("one\n\n\ntwo\n") == "one\n\n\ntwo\n"
    assert scrub("Use this tool whenever you must.", "text") == "<placeholder 32 chars>"


def test_the_scrubber_names_what_the_runtime_names_by_chance() -> None:
    scrub = scrubber().scrub
    path = (
        "/build/home/.codex/sessions/2031/12/24/rollout-2031-12-24T18-30-00-0198c0de-0000-7000-8000-000000000000.jsonl"
    )
    assert scrub(path).startswith("/home/user/.codex/sessions/2026/01/01/rollout-2026-01-01T00-00-00-")
    assert [scrub(value, "processId") for value in ("97736", "12", "97736")] == ["1000", "1001", "1000"]
    assert [scrub(value, "agentNickname") for value in ("Ada", "Eve", "Ada")] == ["Helper1", "Helper2", "Helper1"]
    renamed = scrub("msg_0198c0de-0000-7000-8000-000000000000")
    assert renamed.startswith("msg_")
    assert renamed == f"msg_{scrub('0198c0de-0000-7000-8000-000000000000')}"
    assert "0198c0de" not in renamed
    assert scrub(1_796_062_297_781, "emittedAtMs") == scrub(1_796_062_297_999, "startedAtMs")
    assert scrub("recorder/0.163.0 (Some 12; x86_64) unknown (recorder; 1)", "userAgent") == (
        "recorder/0.163.0 (Linux; x86_64)"
    )


def test_shell_words_are_those_of_a_login_shell() -> None:
    assert shell_words("/bin/bash -lc 'echo it'") == "echo it"
    assert shell_words("/bin/bash -lc 'echo it") is None
    assert shell_words("echo it") is None


def test_decisions_fit_what_was_asked() -> None:
    asked: dict[str, Any] = {"method": "item/commandExecution/requestApproval", "params": {}}
    assert accept(asked) == {"decision": "accept"}
    question = {"id": "q", "options": [{"label": "A"}, {"label": "B"}]}
    assert accept({"method": "item/tool/requestUserInput", "params": {"questions": [question]}}) == {
        "answers": {"q": {"answers": ["A"]}}
    }
    form = {"requestedSchema": {"properties": {"colour": {"type": "string"}}}}
    elicited = {"method": "mcpServer/elicitation/request", "params": form}
    assert accept(elicited) == {"action": "accept", "content": {"colour": "red"}, "_meta": None}
    assert decide("decline")(elicited) == {"action": "decline", "content": None, "_meta": None}
    assert decide("acceptForSession")(elicited) == {
        "action": "accept",
        "content": {"colour": "red"},
        "_meta": {"persist": "session"},
    }


def test_the_asking_server_answers_by_hand() -> None:
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {}},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "ask", "arguments": {"mode": "url"}}},
        {"id": "ask-1", "result": {"action": "cancel"}},
        {"id": 4, "method": "nothing"},
    ]
    done = subprocess.run(
        [sys.executable, str(Path(mcp_asking.__file__))],
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in said),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=20,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers["ask-1"]["params"]["mode"] == "url"
    assert answers[3]["result"]["content"][0]["text"] == 'answer: {"action": "cancel"}'
    assert answers[4]["error"]["code"] == -32601
